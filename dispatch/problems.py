"""Problem details (RFC 9457): the closed list of what can go wrong, and what a client does then.

`type` is a stable name that programs branch on, `title` its meaning in general, `detail` what
happened here and what to do about it. Further members carry numbers that a client can act on.

PURE.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

PROBLEM_MEDIA_TYPE = "application/problem+json"
TYPE_PREFIX = "urn:dhsched:problem:"

Member = str | int | float | bool | None | list[dict[str, str]] | dict[str, int]


class ProblemKind(StrEnum):
    """The last part of a problem's type URI."""

    NOT_FOUND = "not-found"
    METHOD_NOT_ALLOWED = "method-not-allowed"
    MALFORMED = "malformed-request"
    INVALID = "invalid-request"
    BAD_LIVE_ID = "bad-live-id"
    BAD_OPTIONS = "bad-options"
    BAD_TEXT = "bad-text"
    BAD_SDP = "bad-sdp"
    BAD_EVENT_ID = "bad-event-id"
    TOO_LARGE = "too-large"
    TOO_SLOW = "too-slow"
    UNSUPPORTED_MEDIA = "unsupported-media-type"
    UNKNOWN_LIVE = "unknown-live"
    LIVE_CLOSED = "live-closed"
    LIVE_EXISTS = "live-exists"
    UNKNOWN_WORKER = "unknown-worker"
    UNKNOWN_VIEWER = "unknown-viewer"
    IDEMPOTENCY_MISMATCH = "idempotency-mismatch"
    NO_CAPACITY = "no-capacity"
    MOVE_REFUSED = "move-refused"
    TOO_MANY_STREAMS = "too-many-streams"
    OWNER_NOT_READY = "owner-not-ready"
    NOT_READY = "not-ready"
    STORE_AWAY = "store-away"
    BROKER_AWAY = "broker-away"
    OUTCOME_UNKNOWN = "outcome-unknown"
    INTERNAL = "internal"


KINDS: Mapping[ProblemKind, tuple[int, str]] = {
    ProblemKind.NOT_FOUND: (404, "No such address"),
    ProblemKind.METHOD_NOT_ALLOWED: (405, "Method not allowed here"),
    ProblemKind.MALFORMED: (400, "The request cannot be read"),
    ProblemKind.INVALID: (422, "The request is not valid"),
    ProblemKind.BAD_LIVE_ID: (422, "The live id is not valid"),
    ProblemKind.BAD_OPTIONS: (422, "The options are not valid"),
    ProblemKind.BAD_TEXT: (422, "The text cannot be spoken"),
    ProblemKind.BAD_SDP: (422, "The session description is not valid"),
    ProblemKind.BAD_EVENT_ID: (422, "The event id is not valid"),
    ProblemKind.TOO_LARGE: (413, "The request is too large"),
    ProblemKind.TOO_SLOW: (408, "The request took too long to arrive"),
    ProblemKind.UNSUPPORTED_MEDIA: (415, "The body has another media type than is read here"),
    ProblemKind.UNKNOWN_LIVE: (404, "No such live"),
    ProblemKind.LIVE_CLOSED: (410, "The live is closed"),
    ProblemKind.LIVE_EXISTS: (409, "The live exists already"),
    ProblemKind.UNKNOWN_WORKER: (404, "No such worker"),
    ProblemKind.UNKNOWN_VIEWER: (404, "No such viewer connection"),
    ProblemKind.IDEMPOTENCY_MISMATCH: (422, "The Idempotency-Key was used for another request"),
    ProblemKind.NO_CAPACITY: (429, "Every slot is taken"),
    ProblemKind.MOVE_REFUSED: (409, "The live cannot be moved there"),
    ProblemKind.TOO_MANY_STREAMS: (503, "This replica serves as many streams as it may"),
    ProblemKind.OWNER_NOT_READY: (503, "The live's worker is not ready yet"),
    ProblemKind.NOT_READY: (503, "This replica cannot serve now"),
    ProblemKind.STORE_AWAY: (503, "The store does not answer"),
    ProblemKind.BROKER_AWAY: (503, "The broker does not answer"),
    ProblemKind.OUTCOME_UNKNOWN: (503, "The text may have been accepted or not"),
    ProblemKind.INTERNAL: (500, "Something went wrong here"),
}


@dataclass(eq=False)
class Problem(Exception):
    """A refusal on its way to the client."""

    kind: ProblemKind
    detail: str
    members: Mapping[str, Member] = field(default_factory=dict[str, Member])
    retry_after_s: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def status(self) -> int:
        return KINDS[self.kind][0]

    def body(self, instance: str | None) -> dict[str, object]:
        """The JSON document. The standard members cannot be overwritten by further ones."""
        document: dict[str, object] = dict(self.members)
        document["type"] = TYPE_PREFIX + self.kind
        document["title"] = KINDS[self.kind][1]
        document["status"] = self.status
        document["detail"] = self.detail
        if instance is not None:
            document["instance"] = instance
        if self.retry_after_s is not None:
            document["retry_after_s"] = self.retry_after_s
        return document

    def all_headers(self) -> dict[str, str]:
        headers = dict(self.headers)
        headers["Cache-Control"] = "no-store"
        if self.retry_after_s is not None:
            headers["Retry-After"] = str(self.retry_after_s)
        return headers
