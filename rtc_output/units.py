"""What the egress gives to whoever takes the media of a live: 20 ms of sound, and every second
time the picture that belongs to it.

PURE.
"""

from dataclasses import dataclass
from typing import Protocol

from schemas.media import OPUS_PACKETS_PER_TICK, RTP_AUDIO_CLOCK_HZ, RTP_VIDEO_CLOCK_HZ, TICK_MS

UNIT_MS = TICK_MS // OPUS_PACKETS_PER_TICK
UNIT_US = UNIT_MS * 1000
TICK_US = TICK_MS * 1000


@dataclass(frozen=True, slots=True)
class MediaUnit:
    """One Opus packet of 20 ms, and with the first one of a tick its H.264 access unit (Annex B).

    `media_us` is the place on the live's one media clock, in microseconds since its first unit and
    always a multiple of 20 ms; sound and picture of a tick share it. It follows the wall clock, so
    it jumps where the live stood still, and never goes back. `stream_us` counts only what was sent
    (no jumps): the time line of a recording. `due_us` is the CLOCK_MONOTONIC time it was due at.
    """

    frame_index: int
    half: int
    opus: bytes
    video: bytes
    keyframe: bool
    media_us: int
    stream_us: int
    due_us: int

    @property
    def audio_pts(self) -> int:
        """RTP time of the Opus packet, 48 kHz."""
        return self.media_us * (RTP_AUDIO_CLOCK_HZ // 1000) // 1000

    @property
    def video_pts(self) -> int:
        """RTP time of the picture, 90 kHz."""
        return self.media_us * (RTP_VIDEO_CLOCK_HZ // 1000) // 1000


class Subscriber(Protocol):
    """Takes the units of a live in order, on the event loop. It must return at once."""

    def take(self, unit: MediaUnit) -> None:
        """One unit. An exception ends the subscription."""
        ...

    def ended(self) -> None:
        """No unit comes any more: the egress closed, or the subscriber was removed for an error."""
        ...
