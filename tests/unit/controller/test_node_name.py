"""One node name, one worker: who is refused, who waits a moment, who gives way."""

import asyncio

import pytest

from controller.node_name import NodeTaken, give_way, refuse_taken_node
from hosting.start import StartFailed
from ownership.memory import Faults, MemoryDatabase
from ownership.workers import beat, mark_dead, register_worker
from tests.unit.ownership.world import load, with_workers
from tests.unit.ownership.world import worker as ready

BEAT_MS = 20


async def test_a_name_that_nobody_has_is_free_at_once() -> None:
    db = await with_workers(ready("a-1", node="a"))
    await mark_dead(db, "a-1", 1)
    await refuse_taken_node(db, "a", 3_600_000)
    await refuse_taken_node(db, "b", 3_600_000)


async def test_a_name_whose_worker_is_still_is_free_after_some_beats() -> None:
    db = await with_workers(ready("a-1", node="a"))
    await refuse_taken_node(db, "a", BEAT_MS)


async def test_a_name_whose_worker_beats_is_taken() -> None:
    db = await with_workers(ready("a-1", node="a"))

    async def beats() -> None:
        while True:
            await beat(db, "a-1", load("a-1"))
            await asyncio.sleep(0.01)

    beating = asyncio.create_task(beats())
    try:
        with pytest.raises(StartFailed, match="under the node name a already: a-1 at http://a"):
            await refuse_taken_node(db, "a", 60_000)
    finally:
        beating.cancel()
        await asyncio.gather(beating, return_exceptions=True)


async def test_a_worker_that_ends_while_it_is_watched_frees_its_name() -> None:
    db = await with_workers(ready("a-1", node="a"))
    asking = asyncio.create_task(refuse_taken_node(db, "a", 60_000))
    await asyncio.sleep(0.01)
    await mark_dead(db, "a-1", 1)
    await asking


async def test_a_start_without_a_store_says_so() -> None:
    db = MemoryDatabase()
    db.faults = Faults(away=1.0)
    with pytest.raises(StartFailed, match="the store does not answer"):
        await refuse_taken_node(db, "a", BEAT_MS)


async def test_only_who_was_superseded_by_a_living_one_gives_way() -> None:
    db = await with_workers(ready("a-1", node="a"))
    await mark_dead(db, "a-1", 1)
    await give_way(db, "a", "a-1")  # declared dead by a dispatcher: it may begin anew
    await register_worker(db, ready("a-2", node="a"))
    with pytest.raises(NodeTaken, match="a-1 was superseded: a-2 at http://a"):
        await give_way(db, "a", "a-1")
    await mark_dead(db, "a-2", 1)
    await give_way(db, "a", "a-1")
