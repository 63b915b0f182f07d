"""Random concurrent histories of the protocol under every fault of the store.

Controllers that are behind, dispatchers that race, workers declared dead while they run. Nothing is
expected of an answer but what an answer promises; the invariants are checked at every commit.
"""

import asyncio
import random
from collections import Counter
from itertools import pairwise

import pytest

from ownership.generations import (
    claim,
    commit_generation,
    confirm_gone,
    free_reserved,
    hand_over,
    owned_by,
    reserve,
)
from ownership.kv import CommitUnknown, Database, StoreAway
from ownership.lives import close_live, create_live, get_live
from ownership.memory import Faults, MemoryDatabase, MemoryStore
from ownership.model import (
    Claimed,
    CommitGeneration,
    CommittedGeneration,
    Created,
    Generation,
    Released,
    ReleaseItem,
)
from ownership.recovery import dead_workers_lives
from ownership.release import release
from ownership.workers import beat, list_workers, mark_dead, register_worker
from tests.conformance.test_kv_memory import virtually
from tests.unit.ownership.checker import Checker
from tests.unit.ownership.world import CHECKPOINT, create, load, worker

LIVES = [f"live{i}" for i in range(6)]
NODES = ["n", "m", "o"]


class World:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.store = MemoryStore()
        self.checker = Checker(self.store)
        self.ids = 0
        self.released: dict[str, list[tuple[int, int, Generation]]] = {}
        self.done: Counter[str] = Counter()
        self.running = True
        self.faults = Faults(
            conflict=0.05,
            unknown_applied=0.05,
            unknown_dropped=0.05,
            unknown_late=0.08,
            away=0.02,
            begin_s=(0.0, 0.02),
            commit_s=(0.0, 0.02),
            reply_s=(0.0, 0.02),
            late_s=(0.0, 0.5),
        )

    def client(self) -> MemoryDatabase:
        return MemoryDatabase(self.store, random.Random(self.rng.random()), self.faults)

    def fresh(self) -> str:
        self.ids += 1
        return f"id{self.ids}"


async def node(world: World, name: str) -> None:
    """Incarnations of one node, one after the other; the earlier one may go on as a zombie."""
    zombies: list[asyncio.Task[None]] = []
    while world.running:
        worker_id = f"{name}-{world.fresh()}"
        zombies.append(asyncio.create_task(incarnation(world, worker_id, name)))
        await asyncio.sleep(world.rng.uniform(1, 4))
        if world.rng.random() < 0.5:
            zombies[-1].cancel()
    await asyncio.gather(*zombies, return_exceptions=True)


async def incarnation(world: World, worker_id: str, name: str) -> None:
    db = world.client()
    try:
        await register_worker(db, worker(worker_id, 3, name))
        known: dict[str, tuple[Generation, int]] = {}
        until = asyncio.get_running_loop().time() + world.rng.uniform(2, 6)
        while world.running and asyncio.get_running_loop().time() < until:
            try:
                await one_round(world, db, worker_id, known)
            except (StoreAway, CommitUnknown):
                world.done["away"] += 1
            await asyncio.sleep(world.rng.uniform(0, 0.1))
    finally:
        await db.close()


async def one_round(
    world: World, db: Database, worker_id: str, known: dict[str, tuple[Generation, int]]
) -> None:
    rng = world.rng
    if rng.random() < 0.3:
        await beat(db, worker_id, load(worker_id))
    # A controller looks seldom, so what it believes to own is often over.
    if rng.random() < 0.4:
        for live_id, generation in await owned_by(db, worker_id):
            if live_id not in known or known[live_id][0] != generation:
                claimed = await claim(db, live_id, generation, world.fresh(), 1)
                if isinstance(claimed, Claimed):
                    known[live_id] = (generation, claimed.cursor.next_offset)
    if known:
        await release_some(world, db, known)
    if known and rng.random() < 0.2:
        live_id = rng.choice(sorted(known))
        await move_or_close(world, db, worker_id, live_id, known[live_id][0])
    if known and rng.random() < 0.2:
        live_id = rng.choice(sorted(known))
        await confirm_gone(db, live_id, known[live_id][0])


async def release_some(
    world: World, db: Database, known: dict[str, tuple[Generation, int]]
) -> None:
    items = []
    for live_id, (generation, at) in known.items():
        name = f"{generation.worker_id}/{generation.epoch}/{world.fresh()}"
        items.append(ReleaseItem(live_id, generation, at, at + world.rng.randrange(3), name))
    while True:
        try:
            results = await release(db, items)
            break
        except (StoreAway, CommitUnknown):
            # The same ids again, to learn what became of it.
            await asyncio.sleep(0.01)
    for asked, result in zip(items, results, strict=True):
        world.done[type(result).__name__] += 1
        if isinstance(result, Released):
            known[asked.live_id] = (asked.generation, asked.new_next_offset)
            part = (asked.expected_next_offset, asked.new_next_offset, asked.generation)
            world.released.setdefault(asked.live_id, []).append(part)
        else:
            del known[asked.live_id]


async def move_or_close(
    world: World, db: Database, worker_id: str, live_id: str, mine: Generation
) -> None:
    rng = world.rng
    if rng.random() < 0.2:
        await close_live(db, live_id, mine, "idle", int(rng.random() * 1e9))
        return
    target = rng.choice([view.value.worker_id for view in await list_workers(db)])
    token = world.fresh() if rng.random() < 0.5 else None
    if token is not None:
        await reserve(db, target, token, 1, live_id=live_id, slot_draw=rng.randrange(1000))
    draw = rng.randrange(1000)
    moved = await hand_over(
        db, live_id, mine, target, CHECKPOINT, world.fresh(), 1, token, slot_draw=draw
    )
    world.done[f"hand over {type(moved).__name__}"] += 1
    if token is not None and rng.random() < 0.7:
        await free_reserved(db, target, token)


async def dispatcher(world: World) -> None:
    db = world.client()
    rng = world.rng
    while world.running:
        try:
            await dispatch_once(world, db)
        except (StoreAway, CommitUnknown):
            world.done["away"] += 1
        await asyncio.sleep(rng.uniform(0, 0.1))
    await db.close()


async def dispatch_once(world: World, db: Database) -> None:
    rng = world.rng
    views = await list_workers(db)
    if not views:
        return
    some = rng.choice(views)
    what = rng.random()
    if what < 0.4:
        ids, live_id = world.fresh(), rng.choice(LIVES)
        request = create(
            live_id,
            some.value.worker_id,
            create_id=ids,
            commit_id=ids,
            slot_draw=rng.randrange(1000),
        )
        result = await create_live(db, request)
        world.done[type(result).__name__] += 1
        if isinstance(result, Created):
            assert result.generation.epoch > 0
    elif what < 0.5:
        await asyncio.sleep(rng.uniform(0, 0.3))
        result = await mark_dead(db, some.value.worker_id, some.beat)
        world.done[type(result).__name__] += 1
    elif what < 0.8:
        for live_id, dead in await dead_workers_lives(db, some.value.worker_id):
            target = rng.choice(views).value.worker_id
            request = CommitGeneration(live_id, dead, target, world.fresh(), 1, rng.randrange(99))
            moved = await commit_generation(db, request)
            world.done[f"recover {type(moved).__name__}"] += 1
            if isinstance(moved, CommittedGeneration):
                assert moved.generation.epoch > dead.epoch
    else:
        await close_live(db, rng.choice(LIVES), None, "api", int(rng.random() * 1e9))


async def history(seed: int) -> World:
    world = World(seed)
    tasks = [asyncio.create_task(node(world, name)) for name in NODES]
    tasks += [asyncio.create_task(dispatcher(world)) for _ in range(3)]
    await asyncio.sleep(20)
    world.running = False
    await asyncio.gather(*tasks)
    # Late commits land before the end is looked at.
    await asyncio.sleep(2)
    db = MemoryDatabase(world.store)
    for live_id, parts in world.released.items():
        moved = sorted((part for part in parts if part[0] != part[1]), key=lambda part: part[:2])
        # Every offset at most once, whoever released it, and under epochs that grow along the log.
        for (_, end, first), (begin, _, then) in pairwise(moved):
            assert end <= begin, (live_id, moved)
            assert first.epoch <= then.epoch, (live_id, moved)
        view = await get_live(db, live_id)
        assert view is not None
        assert view.cursor is not None
        assert all(view.cursor.next_offset >= end for _, end, _ in moved)
    return world


@pytest.mark.parametrize("seed", range(6))
def test_the_invariants_hold_in_concurrent_histories(seed: int) -> None:
    world = virtually(history(seed))
    assert world.checker.broken == []
    assert world.checker.commits > 300
    # The histories are worth something only if the dangerous things happened.
    for name in ("Released", "Stale", "Created", "MarkedDead", "NoFreeSlot", "away"):
        assert world.done[name] > 0, (name, world.done)
    assert (
        world.done["recover CommittedGeneration"] + world.done["hand over CommittedGeneration"] > 0
    ), world.done


def test_a_history_replays_exactly() -> None:
    first, second = virtually(history(1)), virtually(history(1))
    assert first.done == second.done
    assert first.store.contents.values == second.store.contents.values
