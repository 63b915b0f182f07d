"""A WHEP viewer that notes when each packet came and which of its samples can be heard.

Times are Unix seconds of the moment at which the packet arrived: what a jitter buffer adds is the
viewer's own choice. aiortc decodes everything as for any other viewer; sound is decoded once more
at its arrival, because aiortc's own way goes through its jitter buffer.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx
import numpy as np
from aiortc import MediaStreamTrack, RTCConfiguration, RTCPeerConnection, RTCSessionDescription
from aiortc.codecs.opus import OpusDecoder
from aiortc.jitterbuffer import JitterFrame
from aiortc.mediastreams import MediaStreamError
from aiortc.rtp import RtcpSrPacket, RtpPacket

from schemas.media import RTP_AUDIO_CLOCK_HZ, RTP_VIDEO_CLOCK_HZ
from tests.support.wait import until

AUDIBLE = 300  # int16, 41 dB below full scale; coding noise of a silent live stays below 50
NTP_EPOCH_S = 2_208_988_800
CONNECT_S = 20.0
PAUSE_LOOK_S = 0.005
PAUSE_S = 0.02
PAUSE_AFTER_S = 0.02


@dataclass(frozen=True, slots=True)
class Arrival:
    """A picture (its last packet) or 20 ms of sound. `media_s` is its RTP time in seconds."""

    at_s: float
    media_s: float


@dataclass(frozen=True, slots=True)
class Lateness:
    """Of one unit. It is due one step of the media clock after the unit before it, so that a gap
    (the live stood still and its clock was moved, or a unit was lost) is lateness too."""

    at_s: float
    late_s: float


class Pauses:
    """When this process itself did not run: what it then read late says nothing of the sender."""

    def __init__(self) -> None:
        self._pauses: list[tuple[float, float]] = []

    async def watch(self) -> None:
        """Until cancelled."""
        while True:
            before_s = time.time()
            await asyncio.sleep(PAUSE_LOOK_S)
            if time.time() - before_s > PAUSE_LOOK_S + PAUSE_S:
                self._pauses.append((before_s, time.time() + PAUSE_AFTER_S))

    def between(self, from_s: float, to_s: float) -> int:
        """How many."""
        return sum(from_s <= began_s < to_s for began_s, _ in self._pauses)

    def covers(self, at_s: float) -> bool:
        """Whether what was read at this moment had waited here."""
        return any(began_s <= at_s <= over_s for began_s, over_s in self._pauses)


class MediaLine:
    """What arrived of one kind, and the clock it is due by.

    Sender reports pair wall time with RTP time, and the media clock is one straight line, so the
    earliest line of all reports is the one that no delay in making a report has moved.
    """

    def __init__(self, clock_hz: int) -> None:
        self.arrivals: list[Arrival] = []
        self.origin_s: float | None = None
        self._clock_hz = clock_hz
        self._last: int | None = None
        self._total = 0

    def arrived(self, rtp_time: int) -> None:
        self.arrivals.append(Arrival(time.time(), self._unwrapped(rtp_time)))

    def reported(self, ntp: int, rtp_time: int) -> None:
        if self._last is None:
            return
        wall_s = (ntp >> 32) - NTP_EPOCH_S + (ntp & 0xFFFFFFFF) / 2**32
        origin_s = wall_s - self._unwrapped(rtp_time)
        self.origin_s = origin_s if self.origin_s is None else min(self.origin_s, origin_s)

    def lateness(self, from_s: float, to_s: float) -> list[Lateness]:
        """Of all that arrived between. Raises ValueError without a sender report."""
        if self.origin_s is None:
            raise ValueError("no sender report came")
        step_s = min(
            b.media_s - a.media_s for a, b in zip(self.arrivals, self.arrivals[1:], strict=False)
        )
        return [
            Lateness(one.at_s, one.at_s - (self.origin_s + before.media_s + step_s))
            for before, one in zip(self.arrivals, self.arrivals[1:], strict=False)
            if from_s <= one.at_s < to_s
        ]

    def _unwrapped(self, rtp_time: int) -> float:
        """Seconds on a line of its own; RTP time starts anywhere and wraps after 2**32."""
        if self._last is not None:
            self._total += (rtp_time - self._last + 2**31) % 2**32 - 2**31
        self._last = rtp_time
        return self._total / self._clock_hz


class Viewer:
    """See the module. Use `watching`."""

    def __init__(self) -> None:
        self.sound = MediaLine(RTP_AUDIO_CLOCK_HZ)
        self.pictures = MediaLine(RTP_VIDEO_CLOCK_HZ)
        self.heard: list[tuple[float, float]] = []
        """First and last audible moment of each piece of sound that has one."""
        self._pc = RTCPeerConnection(RTCConfiguration(iceServers=[]))
        self._opus = OpusDecoder()
        self._drains: list[asyncio.Task[None]] = []

    async def connect(self, http: httpx.AsyncClient, live_id: str) -> None:
        """Returns when both kinds of media arrive."""
        for kind in ("audio", "video"):
            self._pc.addTransceiver(kind, direction="recvonly")
        await self._pc.setLocalDescription()
        answer = await http.post(
            f"/v1/lives/{live_id}/whep",
            content=self._pc.localDescription.sdp,
            headers={"Content-Type": "application/sdp"},
        )
        if answer.status_code != 201:
            raise RuntimeError(f"no viewer: {answer.status_code} {answer.text}")
        await self._pc.setRemoteDescription(RTCSessionDescription(answer.text, "answer"))
        for receiver in self._pc.getReceivers():
            self._listen_in(receiver)
            self._drains.append(asyncio.create_task(_drain(receiver.track)))
        await until(
            lambda: self.sound.origin_s and self.pictures.origin_s,
            timeout_s=CONNECT_S,
            what="media of both kinds",
        )

    def _listen_in(self, receiver: Any) -> None:
        """aiortc offers no door to packets: its receiver's own handlers are called after ours."""
        take_rtp, take_rtcp = receiver._handle_rtp_packet, receiver._handle_rtcp_packet
        sound = receiver.track.kind == "audio"
        line = self.sound if sound else self.pictures

        async def rtp(packet: RtpPacket, arrival_time_ms: int) -> None:
            if sound:
                line.arrived(packet.timestamp)
                self._hear(packet)
            elif packet.marker:
                line.arrived(packet.timestamp)
            await take_rtp(packet, arrival_time_ms)

        async def rtcp(packet: object) -> None:
            if isinstance(packet, RtcpSrPacket):
                info = packet.sender_info
                line.reported(info.ntp_timestamp, info.rtp_timestamp)
            await take_rtcp(packet)

        receiver._handle_rtp_packet, receiver._handle_rtcp_packet = rtp, rtcp

    def _hear(self, packet: RtpPacket) -> None:
        at_s = self.sound.arrivals[-1].at_s
        for frame in self._opus.decode(JitterFrame(packet.payload, packet.timestamp)):
            samples = frame.to_ndarray().reshape(-1, 2)[:, 0]
            loud = np.flatnonzero(np.abs(samples.astype(np.int32)) >= AUDIBLE)
            if loud.size:
                first, last = (at_s + int(loud[i]) / RTP_AUDIO_CLOCK_HZ for i in (0, -1))
                self.heard.append((first, last))

    def first_heard_after(self, at_s: float) -> float | None:
        """When the first audible sample after this moment came; None while there is none."""
        return next((first for first, _ in self.heard if first >= at_s), None)

    @property
    def last_heard_s(self) -> float:
        """When the last audible sample came, 0 before any."""
        return self.heard[-1][1] if self.heard else 0.0

    async def silence(self, for_s: float, timeout_s: float = 20.0) -> None:
        """Returns once nothing was heard for so long."""
        await until(
            lambda: time.time() - self.last_heard_s >= for_s, timeout_s=timeout_s, what="silence"
        )

    async def speech(self, after_s: float, timeout_s: float = 20.0) -> float:
        """When the first audible sample after `after_s` came; waits for it."""
        return await until(
            lambda: self.first_heard_after(after_s), timeout_s=timeout_s, what="speech"
        )

    async def close(self) -> None:
        await self._pc.close()
        for task in self._drains:
            task.cancel()
        await asyncio.gather(*self._drains, return_exceptions=True)


async def _drain(track: MediaStreamTrack) -> None:
    with contextlib.suppress(MediaStreamError):
        while True:
            await track.recv()


@contextlib.asynccontextmanager
async def watching(http: httpx.AsyncClient, live_id: str) -> AsyncIterator[Viewer]:
    """A viewer to whom sound and picture come."""
    viewer = Viewer()
    try:
        await viewer.connect(http, live_id)
        yield viewer
    finally:
        await viewer.close()
