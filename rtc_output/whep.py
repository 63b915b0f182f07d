"""WHEP (draft-ietf-wish-whep, in the style of RFC 9725): one HTTP exchange makes a viewer.

The server side of the exchange without the HTTP: an offer comes in, an answer with every candidate
goes out, and what a viewer gets afterwards is the live's packets as the encode stage made them.
A viewer lives until it is deleted, its connection fails, it falls silent, or the live's egress
closes. aiortc itself needs about 30 s to miss a vanished peer, so we look ourselves: a receiver
that gets media sends reports at least every few seconds.
"""

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from aiortc import (
    RTCBundlePolicy,
    RTCConfiguration,
    RTCPeerConnection,
    RTCRtpSender,
    RTCSessionDescription,
)
from aiortc.exceptions import InvalidAccessError, InvalidStateError, OperationError

from rtc_output.aiortc_hooks import (
    datagrams,
    offer_addresses,
    on_picture_loss,
    report_media_time,
)
from rtc_output.egress import LiveEgress
from rtc_output.offer import Offer, OfferRefusal, OfferRefused, check_offer
from rtc_output.pacing_loop import monotonic_us
from rtc_output.tracks import AudioPackets, PacketTrack, VideoPackets
from rtc_output.units import MediaUnit
from schemas.media import RTP_AUDIO_CLOCK_HZ, RTP_VIDEO_CLOCK_HZ

__all__ = ["OfferRefusal", "OfferRefused", "WhepServer", "WhepSettings"]

log = logging.getLogger(__name__)

H264_PROFILE = "42e01f"
LOOPBACK = "127.0.0.1"
CLOSE_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class WhepSettings:
    """Limits of the viewers of one worker.

    `host_addresses` binds and offers only these; empty means every interface, and the loopback
    too where `loopback` is set (a viewer on a machine without a network needs it).
    """

    viewers_max: int = 64
    viewers_per_live_max: int = 16
    connect_timeout_s: float = 10.0
    silent_timeout_s: float = 8.0
    look_every_s: float = 1.0
    loopback: bool = True
    host_addresses: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.silent_timeout_s < 6:
            raise ValueError("silent_timeout_s below 6 would end viewers who only listen")
        if not 1 <= self.viewers_per_live_max <= self.viewers_max:
            raise ValueError("viewers_per_live_max must lie between 1 and viewers_max")


class Viewer:
    """One peer connection. Subscribed to the egress from connected until ended."""

    def __init__(self, egress: LiveEgress, resource_id: str, offer: Offer) -> None:
        self.egress = egress
        self.resource_id = resource_id
        self.made_us = self.heard_us = monotonic_us()
        self.connected = False
        self.over = asyncio.Event()
        self.pc = RTCPeerConnection(
            RTCConfiguration(iceServers=[], bundlePolicy=RTCBundlePolicy.MAX_BUNDLE)
        )
        self._audio: AudioPackets | None = None
        self._video: VideoPackets | None = None
        self._seen = (0, 0)
        for kind in offer.kinds:
            if kind == "audio":
                self._audio = AudioPackets(monotonic_us)
                self._add(self._audio, "audio/opus", RTP_AUDIO_CLOCK_HZ)
            else:
                self._video = VideoPackets(monotonic_us, egress.request_keyframe)
                sender = self._add(self._video, "video/H264", RTP_VIDEO_CLOCK_HZ)
                on_picture_loss(sender, egress.request_keyframe)
        self.pc.add_listener("connectionstatechange", self._state_changed)

    def _add(self, track: PacketTrack, mime: str, clock_hz: int) -> RTCRtpSender:
        transceiver = self.pc.addTransceiver(track, direction="sendonly")
        capabilities = RTCRtpSender.getCapabilities(track.kind).codecs
        transceiver.setCodecPreferences(
            [
                codec
                for codec in capabilities
                if codec.mimeType == mime
                and codec.parameters.get("profile-level-id", H264_PROFILE) == H264_PROFILE
            ]
            + [codec for codec in capabilities if codec.mimeType == "video/rtx"]
        )
        report_media_time(transceiver.sender, track, clock_hz)
        return transceiver.sender

    async def answer(self, offer: Offer, settings: WhepSettings) -> str:
        """Negotiate; returns the answer with all candidates gathered."""
        if settings.host_addresses:
            offer_addresses(self.pc, settings.host_addresses, only=True)
        elif settings.loopback:
            offer_addresses(self.pc, [LOOPBACK], only=False)
        try:
            await self.pc.setRemoteDescription(RTCSessionDescription(sdp=offer.sdp, type="offer"))
        except OperationError as error:
            raise OfferRefused(
                OfferRefusal.NOT_ACCEPTABLE,
                "the viewer must receive H.264 (constrained baseline, packetization-mode 1) and"
                " Opus",
            ) from error
        except (
            ValueError, IndexError, KeyError, AttributeError, AssertionError,
            InvalidAccessError, InvalidStateError,
        ) as error:  # fmt: skip
            # aiortc's parser has no error of its own.
            raise OfferRefused(OfferRefusal.MALFORMED, f"the offer does not parse: {error}") from (
                error
            )
        await self.pc.setLocalDescription()
        return self.pc.localDescription.sdp

    def _state_changed(self) -> None:
        state = self.pc.connectionState
        if state == "connected" and not self.connected:
            self.connected = True
            self.heard_us = monotonic_us()
            for unit in self.egress.subscribe(self):
                # The picture can be caught up with in one go, sound cannot: it begins with now.
                self._take_picture(unit)
        elif state in ("failed", "closed"):
            self.over.set()

    def take(self, unit: MediaUnit) -> None:
        """Queue the sound and the picture of this unit."""
        if self._audio is not None:
            self._audio.put(unit)
        self._take_picture(unit)

    def _take_picture(self, unit: MediaUnit) -> None:
        if self._video is not None and unit.video:
            self._video.put(unit)

    def ended(self) -> None:
        """The live has no more media here."""
        self.over.set()

    async def gone(self, settings: WhepSettings) -> str:
        """Why this viewer is no longer there; empty while it is."""
        now_us = monotonic_us()
        if self.over.is_set():
            return "its connection or the live ended"
        if not self.connected:
            waited_s = (now_us - self.made_us) / 1e6
            return "it never connected" if waited_s > settings.connect_timeout_s else ""
        if any(t is not None and t.readyState == "ended" for t in (self._audio, self._video)):
            return "a sender failed"
        received, sent = await datagrams(self.pc.getSenders()[0])
        heard, media_since = received != self._seen[0], sent != self._seen[1]
        if heard or not media_since:
            # A receiver that gets nothing has nothing to report; then only ICE consent tells.
            self._seen = (received, sent)
            self.heard_us = now_us
        silent_s = (now_us - self.heard_us) / 1e6
        return "it fell silent" if silent_s > settings.silent_timeout_s else ""

    async def close(self) -> None:
        """Unsubscribe and free the connection."""
        self.egress.unsubscribe(self)
        for track in (self._audio, self._video):
            if track is not None:
                track.stop()
        async with asyncio.timeout(CLOSE_TIMEOUT_S):
            await self.pc.close()


class WhepServer:
    """All viewers of a worker."""

    def __init__(self, settings: WhepSettings | None = None) -> None:
        self._settings = settings or WhepSettings()
        self._viewers: dict[str, Viewer] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closed = False
        self.refused: dict[OfferRefusal, int] = dict.fromkeys(OfferRefusal, 0)
        self.ended: dict[str, int] = {}

    async def offer(self, egress: LiveEgress, sdp: str) -> tuple[str, str]:
        """(resource id, answer SDP with every candidate). Raises OfferRefused."""
        try:
            return await self._offer(egress, sdp)
        except OfferRefused as refused:
            self.refused[refused.reason] += 1
            raise

    async def _offer(self, egress: LiveEgress, sdp: str) -> tuple[str, str]:
        offer = check_offer(sdp)
        if self._closed or egress.closed:
            raise OfferRefused(OfferRefusal.EGRESS_CLOSED, "the live is not served here any more")
        limits = self._settings
        if (
            len(self._viewers) >= limits.viewers_max
            or self.viewers(egress) >= limits.viewers_per_live_max
        ):
            raise OfferRefused(
                OfferRefusal.TOO_MANY_VIEWERS,
                f"{self.viewers(egress)} viewers of this live (at most"
                f" {limits.viewers_per_live_max}), {len(self._viewers)} of this worker (at most"
                f" {limits.viewers_max})",
            )
        viewer = Viewer(egress, secrets.token_urlsafe(12), offer)
        self._viewers[viewer.resource_id] = viewer
        # By the time the viewer is connected the key frame is there, or nearly.
        egress.request_keyframe()
        try:
            answer = await viewer.answer(offer, limits)
            if self._closed or egress.closed:
                raise OfferRefused(OfferRefusal.EGRESS_CLOSED, "the live ended meanwhile")
        except BaseException:
            self._viewers.pop(viewer.resource_id, None)
            await self._end(viewer)
            raise
        self._spawn(self._attend(viewer))
        return viewer.resource_id, answer

    async def delete(self, resource_id: str) -> bool:
        """End a viewer; False when there is none of that id."""
        return await self._drop(resource_id, "deleted")

    def viewers(self, egress: LiveEgress | None = None) -> int:
        """Viewers connecting or connected, of one live or of all."""
        return sum(egress is None or v.egress is egress for v in self._viewers.values())

    async def close(self) -> None:
        """End every viewer; leaves no task, socket or thread."""
        self._closed = True
        for viewer in self._viewers.values():
            viewer.over.set()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _attend(self, viewer: Viewer) -> None:
        """Wait for the end of one viewer, looking now and then whether it is still there."""
        reason = ""
        try:
            while not (reason := await viewer.gone(self._settings)):
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._settings.look_every_s):
                        await viewer.over.wait()
        except Exception:
            log.exception("viewer %s: looking after it failed", viewer.resource_id)
            reason = "looking after it failed"
        finally:
            await self._drop(viewer.resource_id, reason)

    async def _drop(self, resource_id: str, reason: str) -> bool:
        viewer = self._viewers.pop(resource_id, None)
        if viewer is None:
            return False
        self.ended[reason] = self.ended.get(reason, 0) + 1
        log.info("live %s: viewer %s ended: %s", viewer.egress.live_id, resource_id, reason)
        viewer.over.set()
        await self._end(viewer)
        return True

    async def _end(self, viewer: Viewer) -> None:
        try:
            await viewer.close()
        except TimeoutError:
            log.warning("viewer %s: closing its connection hangs", viewer.resource_id)
        except Exception:
            log.exception("viewer %s: closing its connection failed", viewer.resource_id)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
