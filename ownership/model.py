"""Requests and results of the protocol's transactions. A refusal is a value, never an exception.

Ids (`commit_id`, `create_id`, `claim_id`, `release_id`, `token`) are minted by the caller, once per
intent: whoever repeats an intent, because its outcome is unknown, repeats it with the same id and
gets the answer of the first time. `slot_draw` is any non-negative integer drawn at random by the
caller; it says where the search for a free slot begins, so that callers seldom meet.

PURE.
"""

from dataclasses import dataclass

from ownership.release_model import AlreadyDisposed as AlreadyDisposed
from ownership.release_model import BelongsToOpenLive as BelongsToOpenLive
from ownership.release_model import CursorMoved as CursorMoved
from ownership.release_model import Disposed as Disposed
from ownership.release_model import LivedBefore as LivedBefore
from ownership.release_model import OpenedForRecord as OpenedForRecord
from ownership.release_model import OpenForRecord as OpenForRecord
from ownership.release_model import Released as Released
from ownership.release_model import ReleaseItem as ReleaseItem
from ownership.release_model import Stale as Stale
from schemas.options import LiveOptions
from schemas.store_values import (
    Checkpoint,
    ClaimValue,
    Cursor,
    Generation,
    GenerationValue,
    LiveState,
    LiveStatus,
    LoadView,
    OrphanValue,
    WorkerValue,
)


def generation_of(value: GenerationValue | None) -> Generation | None:
    """The owner that `gen/<id>` names; None when nobody owns the live."""
    if value is None or not value.worker_id:
        return None
    return Generation(value.worker_id, value.epoch)


# -- workers ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Registered:
    """The incarnation is in. `superseded` is the node's earlier one, now marked dead."""

    superseded: str | None


@dataclass(frozen=True, slots=True)
class WorkerDead:
    """This incarnation was marked dead: it stops everything and starts anew under a new id."""

    worker_id: str


@dataclass(frozen=True, slots=True)
class BeatOk:
    """The beat counts; `state` is what an operator wants of this worker (ready or draining)."""

    draining: bool


@dataclass(frozen=True, slots=True)
class MarkedDead:
    """From now on the worker is admitted nothing, and its lives may be taken over."""

    worker_id: str


@dataclass(frozen=True, slots=True)
class BeatMoved:
    """The worker beat since the caller looked: it is alive. `beat` is its counter now."""

    beat: int


@dataclass(frozen=True, slots=True)
class AlreadyDead:
    """Somebody marked the worker dead before."""

    worker_id: str


@dataclass(frozen=True, slots=True)
class UnknownWorker:
    """No such incarnation (or it was buried)."""

    worker_id: str


@dataclass(frozen=True, slots=True)
class StateSet:
    """The worker is in the state that was asked for."""

    worker_id: str


@dataclass(frozen=True, slots=True)
class WorkerView:
    """A worker as dispatch sees it. The three counts are of slots, exact when they were read."""

    value: WorkerValue
    beat: int
    load: LoadView | None
    held: int
    leaving: int
    reserved: int

    @property
    def free_slots(self) -> int:
        """Slots that nobody has; never negative."""
        return self.value.capacity - self.held - self.leaving - self.reserved


@dataclass(frozen=True, slots=True)
class Buried:
    """The dead worker's slots, beats and load are gone; its id stays refused."""

    worker_id: str


@dataclass(frozen=True, slots=True)
class StillHolds:
    """Lives of this dead worker wait for a new owner first."""

    lives: int


@dataclass(frozen=True, slots=True)
class NotDead:
    """The worker is alive as far as the store knows."""

    worker_id: str


# -- lives ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CreateLive:
    """Open a live and commit its first generation to worker `target`, in one transaction.

    Where `target` cannot take it, the `others` are asked in their order, in the same transaction.
    """

    live_id: str
    options: LiveOptions
    partition: int
    target: str
    commit_id: str
    create_id: str
    now_ms: int
    slot_draw: int = 0
    idempotency_key: str | None = None
    request_hash: str = ""
    others: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LiveView:
    """Everything the store knows of a live, read at one version."""

    live_id: str
    live: LiveState
    generation_value: GenerationValue | None
    claim: ClaimValue | None
    cursor: Cursor | None
    checkpoint: Checkpoint | None
    owner: WorkerValue | None

    @property
    def generation(self) -> Generation | None:
        """The owner, None when nobody owns the live."""
        return generation_of(self.generation_value)

    @property
    def open(self) -> bool:
        """Whether text of this live is still spoken."""
        return self.live.state is LiveStatus.OPEN


@dataclass(frozen=True, slots=True)
class Created:
    """The live is open. After a repeat: as it is now, for it may have moved or closed since."""

    generation: Generation


@dataclass(frozen=True, slots=True)
class Existing:
    """The same idempotency key made this live before."""

    view: LiveView


@dataclass(frozen=True, slots=True)
class LiveExists:
    """A live of that id is open already."""

    generation: Generation | None


@dataclass(frozen=True, slots=True)
class IdempotencyMismatch:
    """The same idempotency key came with another request, which made `live_id`."""

    live_id: str


@dataclass(frozen=True, slots=True)
class NoFreeSlot:
    """Every slot of the target is held, leaving or reserved."""

    worker_id: str


@dataclass(frozen=True, slots=True)
class WorkerNotReady:
    """The target is unknown, draining or dead: it is admitted nothing."""

    worker_id: str


@dataclass(frozen=True, slots=True)
class Closed:
    """The live is closed and owned by nobody; `generation` is the one that ended."""

    generation: Generation | None


@dataclass(frozen=True, slots=True)
class AlreadyClosed:
    """The live was closed before."""

    reason: str


@dataclass(frozen=True, slots=True)
class UnknownLive:
    """No live of that id was ever created."""

    live_id: str


@dataclass(frozen=True, slots=True)
class StaleGeneration:
    """The caller does not own the live; `actual` does (None: nobody)."""

    actual: Generation | None


# -- generations ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CommitGeneration:
    """Give `live_id` to worker `target`, if `expected` still owns it (None: nobody does).

    With `reserved_token` the slot that was reserved under it is used, else a free one is searched.
    """

    live_id: str
    expected: Generation | None
    target: str
    commit_id: str
    now_ms: int
    slot_draw: int = 0
    reserved_token: str | None = None


@dataclass(frozen=True, slots=True)
class CommittedGeneration:
    """The live belongs to `generation`, whose epoch is one more than the last."""

    generation: Generation


@dataclass(frozen=True, slots=True)
class SourceMoved:
    """The guard refused: `actual` owns the live, not who was expected."""

    actual: Generation | None


@dataclass(frozen=True, slots=True)
class LiveNotOpen:
    """There is no such live, or it is closed."""

    live_id: str


@dataclass(frozen=True, slots=True)
class Claimed:
    """All that a new owner needs; it never asks the old one."""

    live: LiveState
    cursor: Cursor
    checkpoint: Checkpoint | None
    slot: int


@dataclass(frozen=True, slots=True)
class Reserved:
    """Slot `slot` of the target waits for the move named by the token."""

    slot: int


@dataclass(frozen=True, slots=True)
class ReservationGone:
    """No slot is reserved under that token (it was used, freed, or never was)."""

    token: str


@dataclass(frozen=True, slots=True)
class Reservation:
    """One reserved slot, as its worker lists them, to prepare a standby or to free what is old."""

    token: str
    live_id: str
    slot: int
    since_ms: int


@dataclass(frozen=True, slots=True)
class Standby:
    """What the target of a planned move prepares from, while `generation` still speaks."""

    live: LiveState
    generation: Generation
    cursor: Cursor
    checkpoint: Checkpoint | None


# -- recovery and set-up ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Orphan:
    """A live that waits for capacity, still guarded by the generation of its dead owner; or one
    that a record opened where nobody had room, and that never had an owner."""

    live_id: str
    value: OrphanValue

    @property
    def generation(self) -> Generation | None:
        """The guard of the recovery's `commit_generation`: the dead generation, or nobody's."""
        if not self.value.worker_id:
            return None
        return Generation(self.value.worker_id, self.value.epoch)


@dataclass(frozen=True, slots=True)
class OrphanMarked:
    """The live is listed as waiting."""

    live_id: str


@dataclass(frozen=True, slots=True)
class OwnerAlive:
    """The recovery is not needed: the owner of the live is alive."""

    generation: Generation


@dataclass(frozen=True, slots=True)
class MetaOk:
    """The store and the topic agree."""


@dataclass(frozen=True, slots=True)
class MetaMismatch:
    """The store was first used with another topic: offsets and partitions would not fit."""

    partition_count: int
    topic_id: str
    schema_version: int
