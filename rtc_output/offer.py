"""What a viewer's SDP offer must be, checked before a connection is made for it.

WHEP (draft-ietf-wish-whep-03, section 4) and RFC 9725 section 4.4 ask for one bundled transport,
rtcp-mux and receive-only media. Remote candidates that only a multicast name service could resolve
are taken out: the viewer reaches us, and its checks tell us its address.

PURE.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Never

OFFER_BYTES_MAX = 64 * 1024


class OfferRefusal(StrEnum):
    """Why an offer was refused."""

    MALFORMED = "malformed"
    NOT_ACCEPTABLE = "not_acceptable"
    TOO_MANY_VIEWERS = "too_many_viewers"
    EGRESS_CLOSED = "egress_closed"

    @property
    def http_status(self) -> int:
        """400 not SDP, 406 nothing in common, 503 no room, 409 not (any more) owned here."""
        return {
            OfferRefusal.MALFORMED: 400,
            OfferRefusal.NOT_ACCEPTABLE: 406,
            OfferRefusal.TOO_MANY_VIEWERS: 503,
            OfferRefusal.EGRESS_CLOSED: 409,
        }[self]


class OfferRefused(Exception):
    """The offer made no viewer; nothing is left of it."""

    def __init__(self, reason: OfferRefusal, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Offer:
    """An offer that may be answered: its kinds of media in order, its SDP without noise."""

    kinds: tuple[str, ...]
    sdp: str


def _malformed(detail: str) -> Never:
    raise OfferRefused(OfferRefusal.MALFORMED, detail)


def _unacceptable(detail: str) -> Never:
    raise OfferRefused(OfferRefusal.NOT_ACCEPTABLE, detail)


def check_offer(sdp: str) -> Offer:
    """The offer, cleaned. Raises OfferRefused (MALFORMED or NOT_ACCEPTABLE)."""
    if len(sdp.encode()) > OFFER_BYTES_MAX:
        _malformed(f"the offer is longer than {OFFER_BYTES_MAX} bytes")
    lines = sdp.replace("\r\n", "\n").rstrip("\n").split("\n")
    if lines[0] != "v=0":
        _malformed("an SDP offer begins with v=0")
    for line in lines:
        if line and (len(line) < 2 or line[1] != "="):
            _malformed(f"not an SDP line: {line[:60]!r}")
    sections = _sections(lines)
    session, media = sections[0], sections[1:]
    if not media:
        _malformed("the offer has no media section")
    kinds = tuple(_kind(section) for section in media)
    if len(set(kinds)) != len(kinds):
        _unacceptable("at most one audio and one video section")
    for section in media:
        _check_section(session, section)
    _check_bundle(session, media)
    clean = [line for line in lines if not _is_noise(line)]
    return Offer(kinds=kinds, sdp="\r\n".join(clean) + "\r\n")


def _sections(lines: list[str]) -> list[list[str]]:
    sections: list[list[str]] = [[]]
    for line in lines:
        if line.startswith("m="):
            sections.append([])
        sections[-1].append(line)
    return sections


def _kind(section: list[str]) -> str:
    fields = section[0][2:].split()
    if len(fields) < 4 or not fields[1].split("/")[0].isdigit():
        _malformed(f"not a media line: {section[0][:60]!r}")
    if fields[0] not in ("audio", "video"):
        _unacceptable(f"media of kind {fields[0][:20]!r}; a viewer receives audio and video")
    if fields[1] == "0":
        _unacceptable("a media section of port 0 asks for nothing")
    return fields[0]


def _check_section(session: list[str], section: list[str]) -> None:
    for name in ("a=ice-ufrag:", "a=ice-pwd:", "a=fingerprint:"):
        if not any(line.startswith(name) for line in (*session, *section)):
            _malformed(f"missing {name[2:-1]}")
    if "a=rtcp-mux" not in section:
        _unacceptable("rtcp-mux is required")
    directions = [
        line[2:]
        for line in (*session, *section)
        if line in ("a=sendrecv", "a=sendonly", "a=recvonly", "a=inactive")
    ]
    if not directions or directions[-1] != "recvonly":
        _unacceptable(f"a viewer is recvonly, not {directions[-1] if directions else 'sendrecv'}")


def _check_bundle(session: list[str], media: list[list[str]]) -> None:
    mids = [line[6:] for section in media for line in section if line.startswith("a=mid:")]
    if len(mids) != len(media) or len(set(mids)) != len(mids):
        _malformed("every media section needs a mid of its own")
    groups = [line.split()[1:] for line in session if line.startswith("a=group:BUNDLE")]
    if len(media) > 1 and (len(groups) != 1 or set(groups[0]) != set(mids)):
        _unacceptable("all media must be in one BUNDLE group")


def _is_noise(line: str) -> bool:
    if line == "a=end-of-candidates":
        return True
    if not line.startswith("a=candidate:"):
        return False
    fields = line.split()
    return len(fields) < 8 or fields[2].lower() != "udp" or fields[4].endswith(".local")
