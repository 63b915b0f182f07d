"""The two tracks of one viewer: bounded queues of encoded packets that aiortc sends as they are.

aiortc pulls from a track without end and has no back pressure, so the bound is here. What overflows
is dropped from the old end: sound packet by packet, pictures up to the next key frame, which is
asked for, because a decoder cannot go on across a hole.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import av
from aiortc import MediaStreamTrack
from aiortc.mediastreams import MediaStreamError

from rtc_output.units import MediaUnit
from schemas.media import RTP_AUDIO_CLOCK_HZ, RTP_VIDEO_CLOCK_HZ

AUDIO_PACKETS_MAX = 20
PICTURES_MAX = 14
AUDIO_TIME_BASE = Fraction(1, RTP_AUDIO_CLOCK_HZ)
VIDEO_TIME_BASE = Fraction(1, RTP_VIDEO_CLOCK_HZ)


class PacketTrack(MediaStreamTrack):
    """A queue that `recv` empties; `late_us` says how late the packet last taken was."""

    def __init__(self, now_us: Callable[[], int]) -> None:
        super().__init__()
        self.late_us = 0
        self.dropped = 0
        self._now_us = now_us
        self._queue: deque[MediaUnit] = deque()
        self._waiter: asyncio.Future[None] | None = None

    async def recv(self) -> "av.Packet[Any]":
        """The next packet, with its RTP time as pts. Raises MediaStreamError once stopped."""
        while not self._queue:
            if self.readyState != "live":
                raise MediaStreamError
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        if self.readyState != "live":
            raise MediaStreamError
        unit = self._queue.popleft()
        self.late_us = max(0, self._now_us() - unit.due_us)
        return self._packet(unit)

    def stop(self) -> None:
        """End the track; a waiting `recv` raises."""
        super().stop()
        self._queue.clear()
        self._wake()

    def _put(self, unit: MediaUnit) -> None:
        self._queue.append(unit)
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _packet(self, unit: MediaUnit) -> "av.Packet[Any]":
        raise NotImplementedError


class AudioPackets(PacketTrack):
    """Opus, one packet per 20 ms."""

    kind = "audio"

    def put(self, unit: MediaUnit) -> None:
        """Queue the sound of this unit; the oldest goes when there is no room."""
        if len(self._queue) >= AUDIO_PACKETS_MAX:
            self._queue.popleft()
            self.dropped += 1
        self._put(unit)

    def _packet(self, unit: MediaUnit) -> "av.Packet[Any]":
        packet = av.Packet(unit.opus)
        packet.pts = packet.dts = unit.audio_pts
        packet.time_base = AUDIO_TIME_BASE
        return packet


class VideoPackets(PacketTrack):
    """H.264, one access unit per 40 ms, beginning with a key frame."""

    kind = "video"

    def __init__(self, now_us: Callable[[], int], request_keyframe: Callable[[], None]) -> None:
        super().__init__(now_us)
        self._request_keyframe = request_keyframe
        self._needs_keyframe = True

    def put(self, unit: MediaUnit) -> None:
        """Queue the picture of this unit, unless a key frame must come first."""
        if unit.keyframe:
            self._needs_keyframe = False
        if self._needs_keyframe:
            self.dropped += 1
            return
        if len(self._queue) >= PICTURES_MAX:
            self.dropped += len(self._queue)
            self._queue.clear()
            if not unit.keyframe:
                self.dropped += 1
                self._needs_keyframe = True
                self._request_keyframe()
                return
        self._put(unit)

    def _packet(self, unit: MediaUnit) -> "av.Packet[Any]":
        packet = av.Packet(unit.video)
        packet.pts = packet.dts = unit.video_pts
        packet.time_base = VIDEO_TIME_BASE
        packet.is_keyframe = unit.keyframe
        return packet
