"""WHEP over a real connection on this machine: aiortc receives what the egress sends."""

import asyncio
import gc
import os
import threading
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
from aiortc import RTCConfiguration, RTCPeerConnection, RTCSessionDescription
from aiortc.mediastreams import MediaStreamError
from aiortc.rtp import RtcpSrPacket

from rtc_output.offer import OfferRefusal, OfferRefused
from rtc_output.pacing_loop import PacingLoop
from rtc_output.whep import WhepServer, WhepSettings
from tests.browser.synthetic import SyntheticLive, until


@dataclass
class Stage:
    """One live, paced, and a WHEP server."""

    live: SyntheticLive
    pacing: PacingLoop
    server: WhepServer


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    live, pacing = SyntheticLive(), PacingLoop()
    server = WhepServer(WhepSettings(look_every_s=0.1))
    pacing.add(live.egress)
    yield Stage(live, pacing, server)
    await server.close()
    live.close()
    pacing.close()
    await asyncio.sleep(0)


@dataclass
class Receiver:
    """A receiving peer that decodes nothing but counts, unless told to."""

    pc: RTCPeerConnection = field(
        default_factory=lambda: RTCPeerConnection(RTCConfiguration(iceServers=[]))
    )
    resource_id: str = ""
    frames: dict[str, list[object]] = field(default_factory=lambda: {"audio": [], "video": []})
    reports: list[RtcpSrPacket] = field(default_factory=list)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    async def connect(self, stage: Stage, *, listen: bool = True) -> "Receiver":
        for kind in ("audio", "video"):
            self.pc.addTransceiver(kind, direction="recvonly")
        await self.pc.setLocalDescription()
        self.resource_id, answer = await stage.server.offer(
            stage.live.egress, self.pc.localDescription.sdp
        )
        await self.pc.setRemoteDescription(RTCSessionDescription(sdp=answer, type="answer"))
        for receiver in self.pc.getReceivers():
            handle = receiver._handle_rtcp_packet

            async def note(packet: object, handle: object = handle) -> None:
                if isinstance(packet, RtcpSrPacket):
                    self.reports.append(packet)
                await handle(packet)  # type: ignore[operator]

            receiver._handle_rtcp_packet = note  # type: ignore[method-assign]
            if listen:
                self.tasks.append(asyncio.create_task(self._listen(receiver.track)))
        return self

    async def _listen(self, track: object) -> None:
        while True:
            try:
                self.frames[track.kind].append(await track.recv())  # type: ignore[attr-defined]
            except MediaStreamError:
                return

    def level(self, last: int = 10) -> float:
        """Root mean square of the last decoded 20 ms blocks of sound, int16 units."""
        blocks = [frame.to_ndarray().astype(float) for frame in self.frames["audio"][-last:]]  # type: ignore[attr-defined]
        return float(sum((block**2).mean() for block in blocks) / max(1, len(blocks))) ** 0.5

    async def close(self) -> None:
        await self.pc.close()
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


@pytest.fixture
async def receiver(stage: Stage) -> AsyncIterator[Receiver]:
    made = await Receiver().connect(stage)
    yield made
    await made.close()


async def test_a_viewer_gets_pictures_and_sound_that_share_a_clock(
    stage: Stage, receiver: Receiver
) -> None:
    await until(lambda: len(receiver.frames["video"]) >= 30, "30 pictures")
    first = receiver.frames["video"][0]
    assert (first.width, first.height) == (256, 256)  # type: ignore[attr-defined]
    await until(lambda: len(receiver.frames["audio"]) >= 60, "60 blocks of sound")
    assert receiver.level() < 50, "an idle live is silent"
    stage.live.speak(10)
    await until(lambda: receiver.level() > 2000, "speech")
    stats = stage.live.egress.stats()
    assert stats.lateness.p50_us < 40_000


async def test_reports_tell_one_line_from_wall_time_to_media_time(
    stage: Stage, receiver: Receiver
) -> None:
    def of(kind: str) -> list[RtcpSrPacket]:
        ssrc = next(s._ssrc for s in _senders(stage) if s.kind == kind)
        return [report for report in receiver.reports if report.ssrc == ssrc]

    await until(lambda: min(len(of("audio")), len(of("video"))) >= 3, "three reports of each kind")
    for kind, clock in (("audio", 48_000), ("video", 90_000)):
        reports = of(kind)
        offsets = [
            report.sender_info.ntp_timestamp / 2**32 - report.sender_info.rtp_timestamp / clock
            for report in reports
        ]
        assert max(offsets) - min(offsets) < 0.010, f"{kind} wanders against the wall clock"


def _senders(stage: Stage) -> list[object]:
    (viewer,) = stage.server._viewers.values()
    return viewer.pc.getSenders()  # type: ignore[return-value]


async def test_picture_loss_asks_the_encoder_for_a_key_frame(
    stage: Stage, receiver: Receiver
) -> None:
    await until(lambda: len(receiver.frames["video"]) >= 5, "pictures")
    await asyncio.sleep(0.4)
    asked = stage.live.keyframes_asked
    video = next(r for r in receiver.pc.getReceivers() if r.track.kind == "video")
    (ssrc,) = [s._ssrc for s in _senders(stage) if s.kind == "video"]  # type: ignore[attr-defined]
    await video._send_rtcp_pli(ssrc)
    await until(lambda: stage.live.keyframes_asked > asked, "the request")


async def test_ticks_of_an_old_epoch_reach_nobody(stage: Stage, receiver: Receiver) -> None:
    await until(lambda: len(receiver.frames["video"]) >= 5, "pictures")
    stage.live.egress.raise_epoch(2)
    await asyncio.sleep(0.3)
    seen = len(receiver.frames["video"])
    await asyncio.sleep(0.3)
    assert len(receiver.frames["video"]) <= seen + 1
    assert sum(stage.live.egress.stats().refused.values()) > 0


async def test_an_interrupt_is_heard_as_silence(stage: Stage, receiver: Receiver) -> None:
    stage.live.speak(30)
    await until(lambda: receiver.level() > 2000, "speech")
    stage.live.interrupt()
    start = time.monotonic()
    await until(lambda: receiver.level(1) < 200, "silence")
    assert time.monotonic() - start < 1.0
    count = len(receiver.frames["video"])
    await until(lambda: len(receiver.frames["video"]) > count + 5, "pictures going on")


async def test_a_deleted_viewer_is_unsubscribed_and_its_peer_told(
    stage: Stage, receiver: Receiver
) -> None:
    await until(lambda: len(receiver.frames["video"]) >= 2, "pictures")
    assert stage.server.viewers(stage.live.egress) == 1
    assert await stage.server.delete(receiver.resource_id)
    assert not await stage.server.delete(receiver.resource_id)
    assert stage.server.viewers() == 0
    assert stage.live.egress.stats().subscribers == 0
    await until(lambda: receiver.pc.connectionState in ("closed", "failed"), "the peer noticing")


async def test_a_viewer_that_leaves_is_forgotten(stage: Stage) -> None:
    receiver = await Receiver().connect(stage)
    await until(lambda: len(receiver.frames["video"]) >= 2, "pictures")
    await receiver.close()
    await until(lambda: stage.server.viewers() == 0, "the server noticing")


async def test_a_viewer_that_vanishes_without_a_word_is_forgotten_in_seconds() -> None:
    live, pacing = SyntheticLive(), PacingLoop()
    server = WhepServer(WhepSettings(look_every_s=0.1, silent_timeout_s=6))
    pacing.add(live.egress)
    stage = Stage(live, pacing, server)
    receiver = await Receiver().connect(stage)
    try:
        await until(lambda: len(receiver.frames["video"]) >= 2, "pictures")
        for end in receiver.pc.getReceivers():
            end.transport.transport._connection.send = _swallow
            end.transport.transport._send = _swallow
        start = time.monotonic()
        await until(lambda: server.viewers() == 0, "the silence being noticed", 12)
        assert time.monotonic() - start < 10
        assert server.ended == {"it fell silent": 1}
    finally:
        await receiver.close()
        await server.close()
        live.close()
        pacing.close()


async def _swallow(_data: bytes) -> None:
    """A cut cable."""


async def test_a_viewer_that_never_connects_is_forgotten() -> None:
    live = SyntheticLive()
    server = WhepServer(WhepSettings(look_every_s=0.05, connect_timeout_s=0.3))
    peer = RTCPeerConnection(RTCConfiguration(iceServers=[]))
    peer.addTransceiver("video", direction="recvonly")
    await peer.setLocalDescription()
    await server.offer(live.egress, peer.localDescription.sdp)
    await peer.close()
    await until(lambda: server.viewers() == 0, "the timeout")
    assert server.ended == {"it never connected": 1}
    await server.close()
    live.close()


async def test_the_number_of_viewers_is_limited(stage: Stage) -> None:
    server = WhepServer(WhepSettings(viewers_max=1, viewers_per_live_max=1))
    peer = RTCPeerConnection(RTCConfiguration(iceServers=[]))
    peer.addTransceiver("audio", direction="recvonly")
    await peer.setLocalDescription()
    offer = peer.localDescription.sdp
    await server.offer(stage.live.egress, offer)
    with pytest.raises(OfferRefused, match="at most 1") as refused:
        await server.offer(stage.live.egress, offer)
    assert refused.value.reason is OfferRefusal.TOO_MANY_VIEWERS
    assert refused.value.reason.http_status == 503
    await server.close()
    with pytest.raises(OfferRefused) as refused:
        await server.offer(stage.live.egress, offer)
    assert refused.value.reason.http_status == 409
    await peer.close()


@pytest.mark.parametrize("only", [(), ("127.0.0.1",)])
async def test_the_answer_names_every_candidate(stage: Stage, only: tuple[str, ...]) -> None:
    server = WhepServer(WhepSettings(host_addresses=only))
    peer = RTCPeerConnection(RTCConfiguration(iceServers=[]))
    peer.addTransceiver("audio", direction="recvonly")
    await peer.setLocalDescription()
    _, answer = await server.offer(stage.live.egress, peer.localDescription.sdp)
    lines = answer.splitlines()
    hosts = {line.split()[4] for line in lines if line.startswith("a=candidate:")}
    assert "127.0.0.1" in hosts, "a machine without a network can still watch itself"
    assert "a=end-of-candidates" in lines
    assert "a=sendonly" in lines
    if only:
        assert hosts == set(only)
    await peer.close()
    await server.close()


async def test_closing_the_egress_ends_its_viewers(stage: Stage, receiver: Receiver) -> None:
    await until(lambda: len(receiver.frames["video"]) >= 2, "pictures")
    stage.live.egress.close()
    await until(lambda: stage.server.viewers() == 0, "the end")


def _files() -> int:
    return len(os.listdir("/proc/self/fd"))


async def test_twenty_viewers_leave_nothing_behind(stage: Stage) -> None:
    async def round_of(count: int) -> None:
        receivers = await asyncio.gather(*(Receiver().connect(stage) for _ in range(count)))
        await until(
            lambda: all(len(r.frames["audio"]) >= 2 for r in receivers), "sound for everybody", 30
        )
        await asyncio.gather(*(r.close() for r in receivers))
        await until(lambda: stage.server.viewers() == 0, "everybody gone")

    async def settled(tasks: int, files: int, threads: int) -> None:
        await until(lambda: len(asyncio.all_tasks()) <= tasks, "tasks to end")
        await until(lambda: _files() <= files, "files to be closed")
        await until(lambda: threading.active_count() <= threads, "threads to end")

    await round_of(1)  # what is made once per process
    await until(lambda: len(asyncio.all_tasks()) == 1, "tasks to end")
    gc.collect()
    before = (len(asyncio.all_tasks()), _files(), threading.active_count())
    for _ in range(2):
        await round_of(10)
    gc.collect()
    await settled(*before)


async def test_an_offer_without_our_codecs_is_not_acceptable(stage: Stage) -> None:
    peer = RTCPeerConnection(RTCConfiguration(iceServers=[]))
    peer.addTransceiver("video", direction="recvonly")
    await peer.setLocalDescription()
    offer = peer.localDescription.sdp
    await peer.close()
    for spoiled in (
        offer.replace("H264/90000", "H265/90000"),
        offer.replace("packetization-mode=1", "packetization-mode=0"),
    ):
        with pytest.raises(OfferRefused) as refused:
            await stage.server.offer(stage.live.egress, spoiled)
        assert refused.value.reason is OfferRefusal.NOT_ACCEPTABLE
    assert stage.server.viewers() == 0


async def test_broken_offers_are_refused_and_leave_nothing(stage: Stage) -> None:
    peer = RTCPeerConnection(RTCConfiguration(iceServers=[]))
    peer.addTransceiver("audio", direction="recvonly")
    await peer.setLocalDescription()
    lines = peer.localDescription.sdp.splitlines()
    await peer.close()
    files = _files()
    answered = 0
    reasons: set[OfferRefusal] = set()
    for index in range(len(lines)):
        broken = [line for at, line in enumerate(lines) if at != index]
        cut = [*lines[:index], lines[index][: len(lines[index]) // 2], *lines[index + 1 :]]
        for sdp in ("\r\n".join(broken), "\r\n".join(cut)):
            try:
                resource_id, _ = await stage.server.offer(stage.live.egress, sdp + "\r\n")
            except OfferRefused as refused:
                reasons.add(refused.reason)
            else:
                answered += 1
                await stage.server.delete(resource_id)
    assert answered > 0
    assert reasons == {OfferRefusal.MALFORMED, OfferRefusal.NOT_ACCEPTABLE}
    assert stage.server.viewers() == 0
    await until(lambda: _files() <= files, "sockets to be closed")
    await until(lambda: len(asyncio.all_tasks()) <= 2, "tasks to end")
