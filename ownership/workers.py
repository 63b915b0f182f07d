"""Worker incarnations: register, beat, drain, be marked dead, be buried."""

from ownership.kv import Database
from ownership.model import (
    AlreadyDead,
    BeatMoved,
    BeatOk,
    Buried,
    MarkedDead,
    NotDead,
    Registered,
    StateSet,
    StillHolds,
    UnknownWorker,
    WorkerDead,
    WorkerView,
)
from schemas.store_values import LoadView, WorkerValue


async def register_worker(db: Database, value: WorkerValue) -> Registered | WorkerDead:
    """Let an incarnation in, and mark its node's earlier one dead in the same transaction."""
    raise NotImplementedError


async def beat(db: Database, worker_id: str, load: LoadView) -> BeatOk | WorkerDead:
    """Count one sign of life and publish the load view. Refused once marked dead."""
    raise NotImplementedError


async def mark_dead(
    db: Database, worker_id: str, beat_seen: int
) -> MarkedDead | BeatMoved | AlreadyDead | UnknownWorker:
    """Declare a worker dead whose counter still stands at `beat_seen`."""
    raise NotImplementedError


async def set_draining(
    db: Database, worker_id: str, *, draining: bool = True
) -> StateSet | AlreadyDead | UnknownWorker:
    """Admit nothing more to a worker (or admit again)."""
    raise NotImplementedError


async def list_workers(db: Database) -> list[WorkerView]:
    """Every worker not yet buried, dead ones too."""
    raise NotImplementedError


async def bury_worker(
    db: Database, worker_id: str
) -> Buried | StillHolds | NotDead | UnknownWorker:
    """Clear what a dead worker left, once no live is guarded by its generation."""
    raise NotImplementedError


def worker_signal_key(worker_id: str) -> bytes:
    """The key to watch: it changes with every transaction that changes what the worker owns."""
    raise NotImplementedError
