"""The places where we reach into aiortc 1.16 and aioice, because they offer no door.

Each says what is missing and checks that the place is still there, so that another version of the
library fails at the first viewer with a clear message and not silently.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from aiortc import RTCPeerConnection, RTCRtpSender
from aiortc.rtp import RtcpSrPacket

from rtc_output.tracks import PacketTrack


class AiortcChanged(Exception):
    """The installed aiortc lacks a place that we hook into."""


def _place(owner: object, name: str) -> Any:
    found = getattr(owner, name, None)
    if found is None:
        raise AiortcChanged(f"{type(owner).__name__} has no {name}: aiortc 1.16 is needed")
    return found


def on_picture_loss(sender: RTCRtpSender, callback: Callable[[], None]) -> None:
    """Call back on PLI and FIR.

    aiortc turns them into a flag for its own encoder, which packets that are encoded already never
    meet.
    """
    _place(sender, "_send_keyframe")
    sender._send_keyframe = callback  # pyright: ignore[reportPrivateUsage]


def report_media_time(sender: RTCRtpSender, track: PacketTrack, clock_hz: int) -> None:
    """Make sender reports tell the media clock.

    aiortc pairs the RTP time of the last packet with the time it happened to be sent; a packet that
    went out late would shift sound against picture. The RTP time is moved to what the media clock
    showed at that moment. Before the first packet there is nothing to report, and nothing is sent.
    """
    send: Callable[[list[Any]], Awaitable[None]] = _place(sender, "_send_rtcp")

    async def send_corrected(packets: list[Any]) -> None:
        for packet in packets:
            if isinstance(packet, RtcpSrPacket):
                info = packet.sender_info
                if info.packet_count == 0:
                    return
                late = track.late_us * clock_hz // 1_000_000
                info.rtp_timestamp = (info.rtp_timestamp + late) & 0xFFFFFFFF
        await send(packets)

    sender._send_rtcp = send_corrected  # pyright: ignore[reportPrivateUsage]


def offer_addresses(pc: RTCPeerConnection, addresses: Iterable[str], *, only: bool) -> None:
    """Gather host candidates on `addresses` too, or on nothing else.

    aioice leaves the loopback out, and on a machine without a network nothing is left.
    """
    wanted = list(addresses)
    for transceiver in pc.getTransceivers()[:1]:
        gatherer = transceiver.sender.transport.transport.iceGatherer
        connection = _place(gatherer, "_connection")
        gather: Callable[..., Awaitable[Any]] = _place(connection, "get_component_candidates")

        async def gather_more(
            component: int,
            addresses: list[str],
            timeout: int = 5,
            gather: Callable[..., Awaitable[Any]] = gather,
        ) -> Any:
            found = wanted if only else [*addresses, *(a for a in wanted if a not in addresses)]
            return await gather(component=component, addresses=found, timeout=timeout)

        connection.get_component_candidates = gather_more


async def datagrams(sender: RTCRtpSender) -> tuple[int, int]:
    """(received, sent) on the transport so far; what comes from a viewer is mostly RTCP."""
    for entry in (await sender.getStats()).values():
        if entry.type == "transport":
            return entry.packetsReceived, entry.packetsSent
    return 0, 0
