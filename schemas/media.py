"""The media clock and the tick: 40 ms of sound and the picture that belongs to it.

Sound and picture of a tick travel together from the first stage to the viewer, so no hop can move
them apart. A live's ticks are numbered without a gap from its first one, over every move.

PURE.
"""

from dataclasses import dataclass
from enum import IntFlag

from schemas.quick_init import quick_init

FRAMES_PER_S = 25
SAMPLE_RATE_HZ = 24_000
TICK_MS = 1000 // FRAMES_PER_S
TICK_SAMPLES = SAMPLE_RATE_HZ // FRAMES_PER_S
OPUS_PACKETS_PER_TICK = 2
OPUS_PACKET_SAMPLES = TICK_SAMPLES // OPUS_PACKETS_PER_TICK
RTP_AUDIO_CLOCK_HZ = 48_000
RTP_VIDEO_CLOCK_HZ = 90_000


class TickFlag(IntFlag):
    """What a tick carries besides its samples."""

    NONE = 0
    FIRST_OF_SEGMENT = 1
    LAST_OF_SEGMENT = 2
    KEYFRAME = 4
    MUTED = 8


@quick_init
@dataclass(frozen=True, slots=True)
class MediaTick:
    """One encoded tick as the encode stage hands it to the egress.

    `binding` and `epoch` say under whose authority it was made, `utterance` which turn it belongs
    to. `sample_start` is the 24 kHz sample of the segment at which this tick's speech starts, -1
    when the tick is idle. `opus` holds two 20 ms packets, `video` one Annex-B access unit.
    `stamps_us` are CLOCK_MONOTONIC times: fed, voiced, drawn, encoded (0 where it does not apply).
    """

    live_slot: int
    binding: int
    epoch: int
    utterance: int
    frame_index: int
    segment_id: int
    sample_start: int
    speech_samples: int
    flags: TickFlag
    opus: tuple[bytes, bytes]
    video: bytes
    stamps_us: tuple[int, int, int, int]

    @property
    def keyframe(self) -> bool:
        """Whether a viewer may start decoding at this tick."""
        return bool(self.flags & TickFlag.KEYFRAME)
