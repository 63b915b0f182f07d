"""Generations: commit, claim, hand over, and the slots that go with them."""

from ownership.kv import Database
from ownership.model import (
    Claimed,
    CommitGeneration,
    CommittedGeneration,
    Generation,
    LiveNotOpen,
    NoFreeSlot,
    Reservation,
    ReservationGone,
    Reserved,
    SourceMoved,
    StaleGeneration,
    Standby,
    WorkerNotReady,
)
from schemas.store_values import Checkpoint


async def commit_generation(
    db: Database, request: CommitGeneration
) -> (
    CommittedGeneration | SourceMoved | NoFreeSlot | ReservationGone | WorkerNotReady | LiveNotOpen
):
    """Advance a live to a new owner, guarded by the generation that is expected to own it now."""
    raise NotImplementedError


async def claim(
    db: Database, live_id: str, generation: Generation, claim_id: str, now_ms: int
) -> Claimed | StaleGeneration:
    """Accept a generation durably, and get all that is needed to go on from it."""
    raise NotImplementedError


async def hand_over(
    db: Database,
    live_id: str,
    me: Generation,
    target: str,
    checkpoint: Checkpoint,
    commit_id: str,
    now_ms: int,
    reserved_token: str | None = None,
    slot_draw: int = 0,
) -> (
    CommittedGeneration | SourceMoved | NoFreeSlot | ReservationGone | WorkerNotReady | LiveNotOpen
):
    """A planned move by its source: its exact checkpoint and the target's generation at once."""
    raise NotImplementedError


async def reserve(
    db: Database, target: str, token: str, now_ms: int, *, live_id: str = "", slot_draw: int = 0
) -> Reserved | NoFreeSlot | WorkerNotReady:
    """Keep a slot of the target for a planned move of `live_id`."""
    raise NotImplementedError


async def free_reserved(db: Database, worker_id: str, token: str) -> bool:
    """Give a reserved slot back; False when it was used or freed before."""
    raise NotImplementedError


async def reservations(db: Database, worker_id: str) -> list[Reservation]:
    """The reserved slots of a worker, for it to prepare standbys and to free old ones."""
    raise NotImplementedError


async def claim_standby(
    db: Database, live_id: str, worker_id: str, token: str
) -> Standby | ReservationGone | LiveNotOpen:
    """What the target of a planned move prepares from, as long as its reservation stands."""
    raise NotImplementedError


async def confirm_gone(db: Database, live_id: str, old: Generation) -> bool:
    """The worker says that its runtime of an ended generation is gone: its slot is free.

    False when there was nothing to free (done before, or the worker is dead and buried).
    """
    raise NotImplementedError


async def owned_by(db: Database, worker_id: str) -> list[tuple[str, Generation]]:
    """The lives whose committed generation names this worker, in order of their ids."""
    raise NotImplementedError


async def leaving_of(db: Database, worker_id: str) -> list[tuple[str, Generation]]:
    """The ended generations whose runtimes this worker has not yet confirmed gone."""
    raise NotImplementedError
