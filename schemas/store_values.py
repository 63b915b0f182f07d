"""The values of the store, each an Avro single object, so that versions may be read side by side.

`decode` raises BadRecord: in the store that is a broken invariant, not a caller's fault.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from schemas.options import LiveOptions


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
    """What every value of the store can do."""

    __slots__ = ()

    def encode(self) -> bytes:
        """An Avro single object of the newest schema."""
        raise NotImplementedError

    @classmethod
    def decode(cls, value: bytes) -> Self:
        """Raises BadRecord."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class LiveState(StoreValue):
    """`live/<id>`."""

    state: LiveStatus
    options: LiveOptions
    partition: int
    created_at_ms: int
    closed_at_ms: int | None = None
    close_reason: str = ""
    create_id: str = ""


@dataclass(frozen=True, slots=True)
class GenerationValue(StoreValue):
    """`gen/<id>`. `worker_id` "" is nobody, `slot` -1 is none."""

    worker_id: str
    epoch: int
    slot: int = -1
    commit_id: str = ""
    at_ms: int = 0


@dataclass(frozen=True, slots=True)
class ClaimValue(StoreValue):
    """`claim/<id>`."""

    worker_id: str
    epoch: int
    claim_id: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class Cursor(StoreValue):
    """`cursor/<id>`. The skipped range, end exclusive, is that of the commit named by release_id."""

    next_offset: int
    last_seq: int | None = None
    release_id: str = ""
    skipped_from: int | None = None
    skipped_to: int | None = None


@dataclass(frozen=True, slots=True)
class SegmentBounds:
    """Characters from (start_offset, start_char) up to, not including, (end_offset, end_char)."""

    start_offset: int
    start_char: int
    end_offset: int
    end_char: int


@dataclass(frozen=True, slots=True)
class Checkpoint(StoreValue):
    """`progress/<id>`: where a new owner goes on.

    `segments` are released and not fully spoken; the first is being spoken, and
    `samples_emitted` of it (24 kHz) were sent. `next_char`: how many characters of the record at
    `cursor.next_offset - 1` segments already hold, -1 for all. `media_frame`: 25 fps frames since
    the live began.
    """

    segments: tuple[SegmentBounds, ...] = ()
    samples_emitted: int = 0
    next_char: int = -1
    utterance: int = 0
    media_frame: int = 0
    at_ms: int = 0


@dataclass(frozen=True, slots=True)
class WorkerValue(StoreValue):
    """`worker/<wid>`."""

    worker_id: str
    node: str
    capacity: int
    url: str
    state: WorkerState
    started_at_ms: int


@dataclass(frozen=True, slots=True)
class SlotValue(StoreValue):
    """`slot/<wid>/<i>`. `token` is the reservation's, "" where there is none."""

    live_id: str
    epoch: int
    state: SlotState
    since_ms: int
    token: str = ""


@dataclass(frozen=True, slots=True)
class LoadView(StoreValue):
    """`load/<wid>`: a hint for placement, never authority."""

    worker_id: str
    lives: int
    speaking: int
    capacity: int
    free_slots: int
    partitions: tuple[int, ...] = ()
    at_ms: int = 0


@dataclass(frozen=True, slots=True)
class OrphanValue(StoreValue):
    """`orphan/<id>`: a live whose owner died and that has no capacity elsewhere yet."""

    worker_id: str
    epoch: int
    since_ms: int


@dataclass(frozen=True, slots=True)
class IdempotencyValue(StoreValue):
    """`idem/<key>`."""

    live_id: str
    request_hash: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class Meta(StoreValue):
    """`meta`: what the text topic looked like when the store was first used."""

    partition_count: int
    topic_id: str = ""
    schema_version: int = 1
