"""Short ways to say what the tests of the transactions need."""

from collections.abc import Callable, Coroutine
from typing import Any

from ownership.kv import Database
from ownership.lives import create_live
from ownership.memory import Faults, MemoryDatabase
from ownership.model import Created, CreateLive, Generation, Registered, ReleaseItem
from ownership.workers import list_workers, register_worker
from schemas.options import LiveOptions
from schemas.store_values import (
    Checkpoint,
    LoadView,
    SegmentBounds,
    WorkerState,
    WorkerValue,
)

CHECKPOINT = Checkpoint((SegmentBounds(0, 0, 1, 5),), 480, -1, 2, 17, 1000)


def fresh() -> MemoryDatabase:
    """An empty store without faults."""
    return MemoryDatabase()


def worker(worker_id: str, capacity: int = 2, node: str | None = None) -> WorkerValue:
    """A ready worker on a node of its own."""
    name = worker_id if node is None else node
    return WorkerValue(worker_id, name, capacity, f"http://{name}", WorkerState.READY, 1)


def load(worker_id: str) -> LoadView:
    return LoadView(worker_id, 0, 0, 2, 2, (0, 1), 5)


def create(live_id: str, target: str, **more: Any) -> CreateLive:
    """A request whose ids are made from the live's id, unless they are given."""
    given = {
        "options": LiveOptions(),
        "partition": 0,
        "commit_id": f"commit {live_id}",
        "create_id": f"create {live_id}",
        "now_ms": 10,
        **more,
    }
    return CreateLive(live_id=live_id, target=target, **given)


def item(
    live_id: str, generation: Generation, at: int, to: int, release_id: str = "", **more: Any
) -> ReleaseItem:
    return ReleaseItem(live_id, generation, at, to, release_id or f"release {live_id} {to}", **more)


async def with_workers(*values: WorkerValue) -> MemoryDatabase:
    """A store with these workers registered."""
    db = fresh()
    for value in values:
        assert isinstance(await register_worker(db, value), Registered)
    return db


async def created(db: Database, live_id: str, target: str, **more: Any) -> Generation:
    """The generation of a new live."""
    result = await create_live(db, create(live_id, target, **more))
    assert isinstance(result, Created), result
    return result.generation


async def counts(db: Database, worker_id: str) -> tuple[int, int, int]:
    """(held, leaving, reserved) as the worker's tally has them."""
    for view in await list_workers(db):
        if view.value.worker_id == worker_id:
            return view.held, view.leaving, view.reserved
    raise AssertionError(f"{worker_id} is not listed")


async def lost_answer(db: MemoryDatabase, call: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Run a call whose first attempt is applied without an answer, so that its body runs again."""
    db.faults = Faults(unknown_applied=1)

    def restore(*_: object) -> None:
        db.faults = None

    db.store.on_commit = restore
    try:
        return await call()
    finally:
        db.store.on_commit = None
        restore()
