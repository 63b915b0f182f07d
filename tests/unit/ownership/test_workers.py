"""Incarnations: register, supersede, beat, die, be buried."""

import asyncio
from collections.abc import Callable

import pytest

from ownership import keys
from ownership.generations import commit_generation, confirm_gone
from ownership.kv import int64
from ownership.memory import MemoryDatabase
from ownership.model import (
    AlreadyDead,
    BeatMoved,
    BeatOk,
    Buried,
    CommitGeneration,
    CommittedGeneration,
    MarkedDead,
    NotDead,
    Registered,
    StateSet,
    StillHolds,
    UnknownWorker,
    WorkerDead,
    WorkerNotReady,
)
from ownership.workers import (
    beat,
    bury_worker,
    get_worker,
    list_workers,
    mark_dead,
    register_worker,
    set_draining,
    worker_signal_key,
)
from schemas.store_values import WorkerState
from tests.unit.ownership.world import (
    counts,
    created,
    fresh,
    load,
    lost_answer,
    with_workers,
    worker,
)


async def signal(db: MemoryDatabase, worker_id: str) -> int:
    return int64(await db.read(lambda tr: tr.get(worker_signal_key(worker_id))))


async def beat_of(db: MemoryDatabase, worker_id: str) -> int:
    return int64(await db.read(lambda tr: tr.get(keys.beat(worker_id))))


async def test_a_worker_registers_once() -> None:
    db = fresh()
    assert await register_worker(db, worker("w1")) == Registered(None)
    before = dict(db.store.contents.values)
    assert await register_worker(db, worker("w1")) == Registered(None)
    assert db.store.contents.values == before
    (view,) = await list_workers(db)
    assert (view.value, view.beat, view.load, view.free_slots) == (worker("w1"), 1, None, 2)


async def test_a_new_incarnation_supersedes_the_nodes_earlier_one() -> None:
    db = await with_workers(worker("n-1", node="n"), worker("other"))
    before = await signal(db, "n-1")
    assert await register_worker(db, worker("n-2", node="n")) == Registered("n-1")
    states = {view.value.worker_id: view.value.state for view in await list_workers(db)}
    assert states == {
        "n-1": WorkerState.DEAD,
        "n-2": WorkerState.READY,
        "other": WorkerState.READY,
    }
    assert await signal(db, "n-1") == before + 1
    assert await register_worker(db, worker("n-1", node="n")) == WorkerDead("n-1")
    assert await beat(db, "n-1", load("n-1")) == WorkerDead("n-1")


async def test_an_answer_that_was_lost_still_names_the_superseded() -> None:
    db = await with_workers(worker("n-1", node="n"))
    again = await lost_answer(db, lambda: register_worker(db, worker("n-2", node="n")))
    assert again == Registered("n-1")
    assert await beat_of(db, "n-2") == 1


async def test_two_incarnations_at_once_leave_one() -> None:
    db = fresh()
    both = [worker("n-1", node="n"), worker("n-2", node="n")]
    done = await asyncio.gather(*(register_worker(db, value) for value in both))
    assert sorted(str(result.superseded) for result in done) in (["None", "n-1"], ["None", "n-2"])
    alive = [v for v in await list_workers(db) if v.value.state is WorkerState.READY]
    assert len(alive) == 1


@pytest.mark.parametrize("capacity", [0, -1, 2**21])
async def test_a_capacity_out_of_range(capacity: int) -> None:
    with pytest.raises(ValueError, match="capacity"):
        await register_worker(fresh(), worker("w", capacity))


async def test_beats_count_and_carry_the_load() -> None:
    db = await with_workers(worker("w"))
    assert await beat(db, "w", load("w")) == BeatOk(draining=False)
    assert await set_draining(db, "w") == StateSet("w")
    assert await beat(db, "w", load("w")) == BeatOk(draining=True)
    (view,) = await list_workers(db)
    assert (view.beat, view.load) == (3, load("w"))
    assert await beat(db, "nobody", load("nobody")) == WorkerDead("nobody")


async def test_a_worker_is_dead_only_when_its_beat_stands_still() -> None:
    db = await with_workers(worker("w"))
    seen = await beat_of(db, "w")
    await beat(db, "w", load("w"))
    assert await mark_dead(db, "w", seen) == BeatMoved(seen + 1)
    assert await mark_dead(db, "w", seen + 1) == MarkedDead("w")
    assert await mark_dead(db, "w", seen + 1) == AlreadyDead("w")
    assert await mark_dead(db, "x", 0) == UnknownWorker("x")
    assert await beat(db, "w", load("w")) == WorkerDead("w")
    value = await get_worker(db, "w")
    assert value is not None
    assert value.state is WorkerState.DEAD


async def test_a_beat_and_a_death_at_once_agree() -> None:
    for order in (0, 1):
        db = await with_workers(worker("w"))
        calls: list[Callable] = [
            lambda db=db: beat(db, "w", load("w")),
            lambda db=db: mark_dead(db, "w", 1),
        ]
        done = await asyncio.gather(*(call() for call in (calls, calls[::-1])[order]))
        beat_result, dead_result = (done, done[::-1])[order]
        if isinstance(dead_result, MarkedDead):
            assert beat_result == WorkerDead("w")
        else:
            assert (beat_result, dead_result) == (BeatOk(False), BeatMoved(2))


async def test_a_draining_worker_is_admitted_nothing_until_it_may_again() -> None:
    db = await with_workers(worker("w"), worker("v"))
    generation = await created(db, "a", "v")
    await set_draining(db, "w")
    move = CommitGeneration("a", generation, "w", "m", 20)
    assert await commit_generation(db, move) == WorkerNotReady("w")
    assert await set_draining(db, "w", draining=False) == StateSet("w")
    assert isinstance(await commit_generation(db, move), CommittedGeneration)
    assert await set_draining(db, "x") == UnknownWorker("x")
    await mark_dead(db, "w", 1)
    assert await set_draining(db, "w") == AlreadyDead("w")


async def test_a_dead_worker_is_buried_when_its_lives_have_gone() -> None:
    db = await with_workers(worker("w"), worker("v"))
    moved_before = await created(db, "a", "w")
    generation = await created(db, "b", "w")
    await commit_generation(db, CommitGeneration("a", moved_before, "v", "m1", 20))
    assert await counts(db, "w") == (1, 1, 0)
    assert await bury_worker(db, "w") == NotDead("w")
    assert await bury_worker(db, "x") == UnknownWorker("x")
    await mark_dead(db, "w", 1)
    assert await bury_worker(db, "w") == StillHolds(1)
    await commit_generation(db, CommitGeneration("b", generation, "v", "m2", 20))
    # Its slot went with it; the one that was leaving stays listed until the burial.
    assert await counts(db, "w") == (0, 1, 0)
    assert await bury_worker(db, "w") == Buried("w")
    assert await bury_worker(db, "w") == Buried("w")
    assert [view.value.worker_id for view in await list_workers(db)] == ["v"]
    assert [key for key in db.store.contents.between(b"", b"\xff") if b"\x02w\x00" in key] == [
        keys.tomb("w")
    ]
    # A zombie of it is refused, however late.
    assert await register_worker(db, worker("w")) == WorkerDead("w")
    assert await beat(db, "w", load("w")) == WorkerDead("w")
    assert not await confirm_gone(db, "a", moved_before)
    assert await register_worker(db, worker("w-2", node="w")) == Registered(None)
