"""The value of a record of the events topic: what happened to a live, and because of what."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class EventKind(StrEnum):
    """What happened."""

    STATE_UPDATED = "state_updated"
    GENERATION_COMMITTED = "generation_committed"
    SPEAK_STARTED = "speak_started"
    SPEAK_ENDED = "speak_ended"
    INTERRUPTED = "interrupted"
    FENCED = "fenced"
    ERROR = "error"
    DEAD_LETTERED = "dead_lettered"
    CLAIMED = "claimed"
    MOVED = "moved"


@dataclass(frozen=True, slots=True)
class LiveEvent:
    """One event. `source_event_id` names the record or event that caused it ("" where none did).

    `offset` is the text record it belongs to, `at_ms` Unix time, `data` a flat JSON object.
    """

    kind: EventKind
    event_id: str
    source_event_id: str
    live_id: str
    worker_id: str
    epoch: int
    at_ms: int
    offset: int | None = None
    data: Mapping[str, str | int | float | bool | None] = field(
        default_factory=dict[str, "str | int | float | bool | None"]
    )

    def encode(self) -> bytes:
        """An Avro single object."""
        raise NotImplementedError

    @classmethod
    def decode(cls, value: bytes | None) -> "LiveEvent":
        """Raises BadRecord."""
        raise NotImplementedError
