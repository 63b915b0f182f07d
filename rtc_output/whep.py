"""WHEP (draft-ietf-wish-whep): one HTTP exchange makes a viewer of a live."""

from dataclasses import dataclass
from enum import StrEnum

from rtc_output.egress import LiveEgress


class OfferRefusal(StrEnum):
    """Why an offer was refused; `http_status` is what a caller should answer."""

    MALFORMED = "malformed"
    NOT_ACCEPTABLE = "not_acceptable"
    TOO_MANY_VIEWERS = "too_many_viewers"
    EGRESS_CLOSED = "egress_closed"

    @property
    def http_status(self) -> int:
        """400 not SDP, 406 nothing in common, 503 no room, 409 not (any more) owned here."""
        return {"malformed": 400, "not_acceptable": 406, "too_many_viewers": 503}.get(self, 409)


class OfferRefused(Exception):
    """The offer made no viewer; nothing is left of it."""

    def __init__(self, reason: OfferRefusal, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


@dataclass(frozen=True, slots=True)
class WhepSettings:
    """Limits of the viewers of one worker."""

    viewers_max: int = 64
    viewers_per_live_max: int = 16
    connect_timeout_s: float = 10.0
    silent_timeout_s: float = 8.0
    loopback: bool = True


class WhepServer:
    """All viewers of a worker."""

    def __init__(self, settings: WhepSettings | None = None) -> None:
        raise NotImplementedError

    async def offer(self, egress: LiveEgress, sdp: str) -> tuple[str, str]:
        """(resource id, answer SDP with every candidate). Raises OfferRefused."""
        raise NotImplementedError

    async def delete(self, resource_id: str) -> bool:
        """End a viewer; False when there is none of that id."""
        raise NotImplementedError

    def viewers(self, egress: LiveEgress | None = None) -> int:
        """Viewers connecting or connected, of one live or of all."""
        raise NotImplementedError

    async def close(self) -> None:
        """End every viewer; leaves no task, socket or thread."""
        raise NotImplementedError
