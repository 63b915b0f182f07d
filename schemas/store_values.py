"""The values of the store, each an Avro single object, so that versions may be read side by side.

`decode` raises BadRecord: in the store that is a broken invariant, not a caller's fault.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any, ClassVar, Self, cast

from schemas.bad_record import BadRecord, DeadLetterReason
from schemas.codec import Codec
from schemas.options import LiveOptions
from schemas.quick_init import quick_init

# A transaction reads the same generation, claim and worker again and again. The values cannot
# change, so one decoded object may serve everybody; the bound is per kind of value.
_DECODED_MAX = 2048


class LiveStatus(StrEnum):
    OPEN = "open"
    CLOSED = "closed"


class WorkerState(StrEnum):
    READY = "ready"
    DRAINING = "draining"
    DEAD = "dead"


class SlotState(StrEnum):
    """`LEAVING`: its runtime may still be alive. `RESERVED`: for a planned move, not used yet."""

    HELD = "held"
    LEAVING = "leaving"
    RESERVED = "reserved"


@dataclass(frozen=True, slots=True)
class Generation:
    """Who may release: a worker incarnation and the epoch, which only grows."""

    worker_id: str
    epoch: int


class StoreValue:
    """What every value of the store can do. Each subclass names its schema, whose fields its
    attributes are.
    """

    __slots__ = ()
    schema: ClassVar[str]

    def encode(self) -> bytes:
        """An Avro single object of the newest schema."""
        cls = type(self)
        return (_codecs.get(cls) or _codec(cls)).encode(self)

    @classmethod
    def decode(cls, value: bytes) -> Self:
        """Raises BadRecord."""
        return cast(Self, _decoder(cls)(value))

    @classmethod
    def _from_fields(cls, values: dict[str, Any]) -> dict[str, Any]:
        """The attributes from the schema's fields. May raise ValueError."""
        return values


_codecs: dict[type[StoreValue], Codec] = {}
_decoders: dict[type[StoreValue], Callable[[bytes], StoreValue]] = {}


def _codec(cls: type[StoreValue]) -> Codec:
    codec = _codecs.get(cls)
    if codec is None:
        codec = _codecs[cls] = Codec(cls.schema)
    return codec


def _decoder(cls: type[StoreValue]) -> Callable[[bytes], StoreValue]:
    decoder = _decoders.get(cls)
    if decoder is None:
        codec = _codec(cls)

        @lru_cache(maxsize=_DECODED_MAX)
        def decode(value: bytes) -> StoreValue:
            found = codec.decode(value)
            try:
                return cls(**cls._from_fields(found))  # pyright: ignore[reportPrivateUsage]
            except (TypeError, ValueError) as error:
                raise BadRecord(DeadLetterReason.BAD_SHAPE, f"{cls.schema}: {error}") from error

        decoder = _decoders[cls] = decode
    return decoder


@dataclass(frozen=True, slots=True)
class LiveState(StoreValue):
    """`live/<id>`."""

    schema: ClassVar[str] = "live_state"

    state: LiveStatus
    options: LiveOptions
    partition: int
    created_at_ms: int
    closed_at_ms: int | None = None
    close_reason: str = ""
    create_id: str = ""

    @classmethod
    def _from_fields(cls, values: dict[str, Any]) -> dict[str, Any]:
        values["state"] = LiveStatus(values["state"])
        values["options"] = LiveOptions(**values["options"])
        return values


@dataclass(frozen=True, slots=True)
class GenerationValue(StoreValue):
    """`gen/<id>`. `worker_id` "" is nobody, `slot` -1 is none."""

    schema: ClassVar[str] = "generation"

    worker_id: str
    epoch: int
    slot: int = -1
    commit_id: str = ""
    at_ms: int = 0


@dataclass(frozen=True, slots=True)
class ClaimValue(StoreValue):
    """`claim/<id>`."""

    schema: ClassVar[str] = "claim"

    worker_id: str
    epoch: int
    claim_id: str
    at_ms: int


@quick_init
@dataclass(frozen=True, slots=True)
class Cursor(StoreValue):
    """`cursor/<id>`. The skipped range, end exclusive, is of the commit that release_id names."""

    schema: ClassVar[str] = "cursor"

    next_offset: int
    last_seq: int | None = None
    release_id: str = ""
    skipped_from: int | None = None
    skipped_to: int | None = None


@quick_init
@dataclass(frozen=True, slots=True)
class SegmentBounds:
    """Characters from (start_offset, start_char) up to, not including, (end_offset, end_char)."""

    start_offset: int
    start_char: int
    end_offset: int
    end_char: int


@quick_init
@dataclass(frozen=True, slots=True)
class Checkpoint(StoreValue):
    """`progress/<id>`: where a new owner goes on.

    `segments` are released and not fully spoken; the first is being spoken, and
    `samples_emitted` of it (24 kHz) were sent. `next_char`: how many characters of the record at
    `cursor.next_offset - 1` segments already hold, -1 for all. `media_frame`: 25 fps frames since
    the live began.
    """

    schema: ClassVar[str] = "checkpoint"

    segments: tuple[SegmentBounds, ...] = ()
    samples_emitted: int = 0
    next_char: int = -1
    utterance: int = 0
    media_frame: int = 0
    at_ms: int = 0

    @classmethod
    def _from_fields(cls, values: dict[str, Any]) -> dict[str, Any]:
        values["segments"] = tuple(SegmentBounds(**bounds) for bounds in values["segments"])
        return values


@dataclass(frozen=True, slots=True)
class WorkerValue(StoreValue):
    """`worker/<wid>`."""

    schema: ClassVar[str] = "worker"

    worker_id: str
    node: str
    capacity: int
    url: str
    state: WorkerState
    started_at_ms: int

    @classmethod
    def _from_fields(cls, values: dict[str, Any]) -> dict[str, Any]:
        values["state"] = WorkerState(values["state"])
        return values


@dataclass(frozen=True, slots=True)
class SlotValue(StoreValue):
    """`slot/<wid>/<i>`. `token` is the reservation's, "" where there is none."""

    schema: ClassVar[str] = "slot"

    live_id: str
    epoch: int
    state: SlotState
    since_ms: int
    token: str = ""

    @classmethod
    def _from_fields(cls, values: dict[str, Any]) -> dict[str, Any]:
        values["state"] = SlotState(values["state"])
        return values


@dataclass(frozen=True, slots=True)
class LoadView(StoreValue):
    """`load/<wid>`: a hint for placement, never authority."""

    schema: ClassVar[str] = "load_view"

    worker_id: str
    lives: int
    speaking: int
    capacity: int
    free_slots: int
    partitions: tuple[int, ...] = ()
    at_ms: int = 0

    @classmethod
    def _from_fields(cls, values: dict[str, Any]) -> dict[str, Any]:
        values["partitions"] = tuple(values["partitions"])
        return values


@dataclass(frozen=True, slots=True)
class OrphanValue(StoreValue):
    """`orphan/<id>`: a live whose owner died and that has no capacity elsewhere yet."""

    schema: ClassVar[str] = "orphan"

    worker_id: str
    epoch: int
    since_ms: int


@dataclass(frozen=True, slots=True)
class IdempotencyValue(StoreValue):
    """`idem/<key>`."""

    schema: ClassVar[str] = "idempotency"

    live_id: str
    request_hash: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class Meta(StoreValue):
    """`meta`: what the text topic looked like when the store was first used.

    `service_id` was drawn then: a store that has another one, or none, is not the store that was.
    `group` is the consumer group of the workers, "" before the first of them began. Empty ids are
    those of a store, or a broker, that knew none.
    """

    schema: ClassVar[str] = "meta"

    partition_count: int
    topic_id: str = ""
    schema_version: int = 1
    service_id: str = ""
    group: str = ""
