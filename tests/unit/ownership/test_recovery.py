"""Orphans and the recovery of a dead worker's lives; the store's meta record."""

import asyncio

from ownership.generations import commit_generation
from ownership.lives import close_live
from ownership.meta import ensure_meta, get_meta
from ownership.model import (
    CommitGeneration,
    CommittedGeneration,
    Generation,
    MetaMismatch,
    MetaOk,
    OrphanMarked,
    OwnerAlive,
    SourceMoved,
)
from ownership.recovery import clear_orphan, dead_workers_lives, list_orphans, mark_orphan
from ownership.workers import mark_dead
from schemas.store_values import Meta
from tests.unit.ownership.world import created, fresh, lost_answer, with_workers, worker


async def test_lives_of_a_dead_worker_are_found_only_when_it_is_dead() -> None:
    db = await with_workers(worker("w", 5))
    owned = [(name, await created(db, name, "w")) for name in "abc"]
    assert await dead_workers_lives(db, "w") == []
    await mark_dead(db, "w", 1)
    assert await dead_workers_lives(db, "w") == owned


async def test_an_orphan_waits_until_a_generation_is_committed() -> None:
    db = await with_workers(worker("w", 5), worker("v", 5))
    dead = await created(db, "a", "w")
    assert await mark_orphan(db, "a", dead, 20) == OwnerAlive(dead)
    await mark_dead(db, "w", 1)
    assert await lost_answer(db, lambda: mark_orphan(db, "a", dead, 20)) == OrphanMarked("a")
    assert await mark_orphan(db, "a", dead, 99) == OrphanMarked("a")
    (orphan,) = await list_orphans(db, None, 10)
    assert (orphan.live_id, orphan.generation, orphan.value.since_ms) == ("a", dead, 20)
    moved = await commit_generation(db, CommitGeneration("a", orphan.generation, "v", "r", 30))
    assert moved == CommittedGeneration(Generation("v", 2))
    assert await list_orphans(db, None, 10) == []
    assert await mark_orphan(db, "a", dead, 40) == SourceMoved(Generation("v", 2))


async def test_several_dispatchers_recover_a_live_once() -> None:
    db = await with_workers(worker("w", 5), *(worker(f"v{i}", 5) for i in range(4)))
    dead = await created(db, "a", "w")
    await mark_dead(db, "w", 1)
    done = await asyncio.gather(
        *(
            commit_generation(db, CommitGeneration("a", dead, f"v{i}", f"r{i}", 30))
            for i in range(4)
        )
    )
    assert (
        sorted(type(result).__name__ for result in done)
        == ["CommittedGeneration"] + ["SourceMoved"] * 3
    )


async def test_a_closed_live_waits_no_more() -> None:
    db = await with_workers(worker("w", 5))
    dead = await created(db, "a", "w")
    await mark_dead(db, "w", 1)
    await mark_orphan(db, "a", dead, 20)
    await close_live(db, "a", None, "api", 30)
    assert await list_orphans(db, None, 10) == []
    assert await mark_orphan(db, "a", dead, 20) == SourceMoved(None)
    assert await dead_workers_lives(db, "w") == []


async def test_orphans_are_listed_in_order_and_cleared() -> None:
    db = await with_workers(worker("w", 9))
    dead = {name: await created(db, name, "w") for name in "dbac"}
    await mark_dead(db, "w", 1)
    for name, generation in dead.items():
        await mark_orphan(db, name, generation, 20)
    assert [orphan.live_id for orphan in await list_orphans(db, None, 2)] == ["a", "b"]
    assert [orphan.live_id for orphan in await list_orphans(db, "b", 9)] == ["c", "d"]
    assert await clear_orphan(db, "c")
    assert not await clear_orphan(db, "c")
    assert [orphan.live_id for orphan in await list_orphans(db, None, 9)] == ["a", "b", "d"]


async def test_a_store_belongs_to_one_topic() -> None:
    db = fresh()
    assert await get_meta(db) is None
    assert await ensure_meta(db, Meta(12, "topic", 1)) == MetaOk()
    assert await ensure_meta(db, Meta(12, "topic", 1)) == MetaOk()
    assert await ensure_meta(db, Meta(12, "", 1)) == MetaOk()
    assert await get_meta(db) == Meta(12, "topic", 1)
    for other in (Meta(24, "topic", 1), Meta(12, "other", 1), Meta(12, "topic", 2)):
        assert await ensure_meta(db, other) == MetaMismatch(12, "topic", 1)
