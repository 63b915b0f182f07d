"""The value of a record of the events topic: what happened to a live, and because of what."""

import json
import math
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, cast, final

from schemas.bad_record import BadRecord, DeadLetterReason
from schemas.codec import Codec
from schemas.value import Value

__all__ = ["EVENT_BYTES_MAX", "EventData", "EventKind", "LiveEvent"]

EVENT_BYTES_MAX: Final = 65_536

_CODEC: Final = Codec("live_event")
_PLAIN: Final = frozenset({str, int, bool, type(None)})
_JSON: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


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

    # An enum's own runs as Python.
    __hash__ = str.__hash__


EventData = Mapping[str, str | int | float | bool | None]


@final
class LiveEvent(Value):
    """One event. `source_event_id` names the record or event that caused it ("" where none did).

    `offset` is the text record it belongs to, `at_ms` Unix time, `data` a flat JSON object.
    """

    __match_args__ = (
        "kind",
        "event_id",
        "source_event_id",
        "live_id",
        "worker_id",
        "epoch",
        "at_ms",
        "offset",
        "data",
    )
    __slots__ = __match_args__

    def __init__(
        self,
        kind: EventKind,
        event_id: str,
        source_event_id: str,
        live_id: str,
        worker_id: str,
        epoch: int,
        at_ms: int,
        offset: int | None = None,
        data: EventData | None = None,
    ) -> None:
        self.kind: Final = kind
        self.event_id: Final = event_id
        self.source_event_id: Final = source_event_id
        self.live_id: Final = live_id
        self.worker_id: Final = worker_id
        self.epoch: Final = epoch
        self.at_ms: Final = at_ms
        self.offset: Final = offset
        self.data: Final[EventData] = {} if data is None else data

    def encode(self) -> bytes:
        """An Avro single object. Raises BadRecord when it is too large or `data` is not flat."""
        data = _check_flat(dict(self.data))
        value = _CODEC.encode(_Written(self, _JSON.encode(data)))
        if len(value) > EVENT_BYTES_MAX:
            raise BadRecord(DeadLetterReason.TOO_LARGE, f"{len(value)} of {EVENT_BYTES_MAX} bytes")
        return value

    @classmethod
    def decode(cls, value: bytes | None) -> "LiveEvent":
        """Raises BadRecord."""
        if not value:
            raise BadRecord(DeadLetterReason.NOT_AVRO_OR_JSON, "the value is null or empty")
        fields = _CODEC.decode(value, bytes_max=EVENT_BYTES_MAX)
        try:
            fields["kind"] = EventKind(fields["kind"])
            data = json.loads(fields["data"])
        except (ValueError, RecursionError) as error:
            raise BadRecord(DeadLetterReason.BAD_SHAPE, str(error)) from error
        if not isinstance(data, dict):
            raise BadRecord(DeadLetterReason.BAD_SHAPE, "data is not a JSON object")
        fields["data"] = _check_flat(cast("dict[str, Any]", data))
        return cls(**fields)


class _Written:
    """The fields of an event as the schema has them: `data` is JSON."""

    def __init__(self, event: LiveEvent, data: str) -> None:
        self.kind = event.kind
        self.event_id = event.event_id
        self.source_event_id = event.source_event_id
        self.live_id = event.live_id
        self.worker_id = event.worker_id
        self.epoch = event.epoch
        self.at_ms = event.at_ms
        self.offset = event.offset
        self.data = data


def _check_flat(data: dict[str, Any]) -> dict[str, Any]:
    for name, value in data.items():
        if type(value) in _PLAIN:
            continue
        if isinstance(value, float) and not math.isfinite(value):
            raise BadRecord(DeadLetterReason.BAD_SHAPE, f"data[{name!r}] is not finite")
        if value is not None and not isinstance(value, str | int | float):
            raise BadRecord(DeadLetterReason.BAD_SHAPE, f"data[{name!r}] is not flat")
    return data
