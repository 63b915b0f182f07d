"""Deaths are seen by stillness, and lives go on elsewhere, exactly once."""

import asyncio
from dataclasses import replace

import pytest

import dispatch.recovery
from dispatch.limits import Limits
from dispatch.lives import Opened, Opening
from dispatch.service import DispatchService
from ownership import keys
from ownership.auto_create import open_for_record
from ownership.kv import Database, Transaction
from ownership.lives import get_live
from ownership.memory import Faults, MemoryDatabase
from ownership.model import Generation, OpenedForRecord, OpenForRecord
from ownership.recovery import list_orphans, mark_orphan
from ownership.workers import list_workers
from schemas.events import EventKind
from schemas.options import LiveOptions
from schemas.store_values import WorkerState
from tests.support.wait import until
from tests.unit.dispatch.world import World

ANY = Opening(LiveOptions())
LEASE_MS = Limits().lease_ms


async def rounds(world: World, service: DispatchService, count: int, ms: int = 1_000) -> None:
    """`count` rounds of recovery, `ms` apart."""
    for _ in range(count):
        world.clock.pass_ms(ms)
        await service.fleet.refresh()
        await service.recovery.step()


async def owner(world: World, live_id: str) -> Generation | None:
    view = await get_live(world.db, live_id)
    assert view is not None
    return view.generation


async def state(world: World, worker_id: str) -> WorkerState:
    return {view.value.worker_id: view.value.state for view in await list_workers(world.db)}[
        worker_id
    ]


async def two_workers(world: World, service: DispatchService) -> Generation:
    """Live "a" on the first of two workers."""
    await world.worker("w1")
    opened = await service.lives.create(replace(ANY, live_id="a"))
    assert isinstance(opened, Opened)
    await world.worker("w2")
    return opened.generation


async def test_a_worker_whose_beat_stands_still_is_replaced(world: World) -> None:
    service = world.service()
    first = await two_workers(world, service)
    await service.fleet.refresh()
    for _ in range(LEASE_MS // 1_000 - 1):
        await world.beat("w2")
        await rounds(world, service, 1)
    assert await owner(world, "a") == first
    await world.beat("w2")
    await rounds(world, service, 1)
    assert await state(world, "w1") is WorkerState.DEAD
    assert await owner(world, "a") == Generation("w2", 2)
    assert service.recovery.recovered == 1


async def test_a_beating_worker_is_left_alone(world: World) -> None:
    service = world.service()
    first = await two_workers(world, service)
    for _ in range(30):
        await world.beat("w1")
        await world.beat("w2")
        await rounds(world, service, 1)
    assert await owner(world, "a") == first


async def test_a_beat_after_the_look_saves_the_worker(world: World) -> None:
    service = world.service()
    first = await two_workers(world, service)
    await service.fleet.refresh()
    for _ in range(6):
        world.clock.pass_ms(1_000)
        await world.beat("w2")
        await service.fleet.refresh()
    await world.beat("w1")
    await service.recovery.step()
    assert await state(world, "w1") is WorkerState.READY
    assert await owner(world, "a") == first


async def test_an_outage_of_the_store_is_nobodys_death(world: World) -> None:
    """The replica saw nothing for a minute; so nobody was seen to stand still for a minute."""
    service = world.service()
    await two_workers(world, service)
    await service.fleet.refresh()
    world.clock.pass_ms(60_000)
    await service.fleet.refresh()
    await service.recovery.step()
    assert await state(world, "w1") is WorkerState.READY
    assert service.fleet.still_ms("w1") == 2 * Limits().refresh_ms


async def test_a_superseded_worker_counts_as_dead_at_once(world: World) -> None:
    service = world.service()
    await world.worker("old", node="n")
    await service.lives.create(replace(ANY, live_id="a"))
    await world.worker("new", node="n")
    await rounds(world, service, 1)
    assert await owner(world, "a") == Generation("new", 2)


async def test_without_room_lives_wait_as_orphans_and_go_on_when_there_is(world: World) -> None:
    service = world.service()
    await world.worker("w1", 8)
    for name in "abcde":
        await service.lives.create(replace(ANY, live_id=name))
    await rounds(world, service, 7)
    assert [one.live_id for one in await list_orphans(world.db, None, 10)] == list("abcde")
    assert service.recovery.orphans == 5
    # Placing goes on beside it, and nothing is placed on the dead.
    await world.worker("w2", 3)
    await rounds(world, service, 1)
    assert len(await list_orphans(world.db, None, 10)) == 2
    await world.worker("w3", 3)
    for _ in range(3):
        await world.beat("w2", 3)
        await world.beat("w3", 3)
        await rounds(world, service, 1)
    assert await list_orphans(world.db, None, 10) == []
    owners = [await owner(world, name) for name in "abcde"]
    assert all(one is not None and one.epoch == 2 for one in owners)
    views = {view.value.worker_id: view.held for view in await list_workers(world.db)}
    assert (views["w2"], views["w3"]) == (3, 2)


async def test_an_orphan_is_written_down_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    marked: list[str] = []

    async def counted(db: Database, live_id: str, dead: Generation, now_ms: int) -> object:
        marked.append(live_id)
        return await mark_orphan(db, live_id, dead, now_ms)

    monkeypatch.setattr(dispatch.recovery, "mark_orphan", counted)
    service = world.service()
    await world.worker("w1")
    for name in "abc":
        await service.lives.create(replace(ANY, live_id=name))
    await rounds(world, service, 12)
    assert sorted(marked) == ["a", "b", "c"]
    await world.worker("w2")
    await rounds(world, service, 1)
    assert await owner(world, "c") == Generation("w2", 2)
    await world.beat("w2")
    await rounds(world, service, 1)
    assert service.recovery._waiting == set()


async def test_a_live_that_closes_while_it_waits_needs_no_owner(world: World) -> None:
    service = world.service()
    await world.worker("w1")
    await service.lives.create(replace(ANY, live_id="a"))
    await rounds(world, service, 7)
    await service.lives.close("a", "api")
    await world.worker("w2")
    await rounds(world, service, 2)
    assert await list_orphans(world.db, None, 10) == []
    assert await owner(world, "a") is None


@pytest.mark.parametrize("seed", range(5))
async def test_several_replicas_at_once_advance_each_live_once(seed: int) -> None:
    async with World() as world:
        replicas = [world.service() for _ in range(3)]
        await world.worker("w1", 30)
        for number in range(30):
            await replicas[0].lives.create(replace(ANY, live_id=f"live-{number}"))
        for number in range(3):
            await world.worker(f"n{number}", 10)
        for number, one in enumerate(replicas):
            assert isinstance(one.db, MemoryDatabase)
            one.db.faults = Faults(
                conflict=0.05,
                unknown_applied=0.05,
                unknown_dropped=0.05,
                begin_s=(0.0, 0.001 * (1 + (seed + number) % 3)),
                commit_s=(0.0, 0.002),
            )
            await one.fleet.refresh()
        for _ in range(7):
            world.clock.pass_ms(1_000)
            for number in range(3):
                await world.beat(f"n{number}", 10)
            await asyncio.gather(*(one.fleet.refresh() for one in replicas))
        await asyncio.gather(*(one.recovery.step() for one in replicas))
        for number in range(30):
            generation = await owner(world, f"live-{number}")
            assert generation is not None
            assert generation.epoch == 2, "advanced more than once"
            assert generation.worker_id != "w1"
        assert sum(one.recovery.recovered for one in replicas) == 30
        assert await list_orphans(world.db, None, 10) == []
        views = [view for view in await list_workers(world.db) if view.value.worker_id != "w1"]
        assert [view.held for view in views] == [10, 10, 10]


async def test_the_dead_are_buried_when_nothing_of_theirs_is_left(world: World) -> None:
    limits = Limits(bury_ms=10_000)
    service = world.service(limits)
    await two_workers(world, service)
    await service.fleet.refresh()
    for _ in range(8):
        await world.beat("w2")
        await rounds(world, service, 1)
    assert await state(world, "w1") is WorkerState.DEAD
    for _ in range(12):
        await world.beat("w2")
        await rounds(world, service, 1)
    assert [view.value.worker_id for view in await list_workers(world.db)] == ["w2"]


async def test_a_recovery_is_reported(world: World) -> None:
    service = world.service()
    world.run_feed(service)
    await two_workers(world, service)
    for _ in range(7):
        await world.beat("w2")
        await rounds(world, service, 1)
    wanted = (EventKind.GENERATION_COMMITTED, "w2", 2, "worker_died")

    def found() -> bool:
        return wanted in [
            (one.kind, one.worker_id, one.epoch, one.data.get("cause")) for one in world.events("a")
        ]

    await until(found, what="the event of the recovery")


async def test_the_loops_survive_a_store_that_goes_away(world: World) -> None:
    service = world.service(Limits(refresh_ms=10, lease_ms=1_000, sweep_ms=10))
    assert isinstance(service.db, MemoryDatabase)
    await world.worker("w1")
    world.run(service)
    await until(lambda: len(service.fleet.views) == 1, what="the first reading")
    service.db.faults = Faults(away=1.0)
    await until(lambda: service.store_away > 0, what="a failed round")
    service.db.faults = None
    await world.worker("w2")
    await until(lambda: len(service.fleet.views) == 2, what="a reading after the outage")


async def test_a_live_that_a_record_opened_without_room_is_placed_when_there_is(
    world: World,
) -> None:
    service = world.service()
    request = OpenForRecord("a", LiveOptions(), 0, 5, (), "commit", "create", 0)
    assert await open_for_record(world.db, request) == OpenedForRecord(None)
    await rounds(world, service, 2)
    assert service.recovery.orphans == 1
    view = await get_live(world.db, "a")
    assert view is not None
    assert (view.open, view.generation) == (True, None)
    await world.worker("w1")
    await rounds(world, service, 1)
    assert await owner(world, "a") == Generation("w1", 1)
    assert await list_orphans(world.db, None, 10) == []


async def test_recovery_is_measured_from_the_last_beat(world: World) -> None:
    service = world.service()
    measured: list[float] = []
    service.recovery.on_recovered = measured.append
    await two_workers(world, service)
    await service.fleet.refresh()
    while await owner(world, "a") != Generation("w2", 2):
        await world.beat("w2")
        await rounds(world, service, 1)
    assert measured == [LEASE_MS / 1_000]


async def test_an_overshoot_would_be_seen(world: World) -> None:
    service = world.service()
    await world.worker("w1", 2)
    await service.fleet.refresh()
    assert (service.fleet.overshoot, service.fleet.overshoots) == (0, 0)

    def break_it(tr: Transaction) -> None:
        tr.add(keys.tally("w1"), 3)

    await world.db.run(break_it)
    await service.fleet.refresh()
    assert (service.fleet.overshoot, service.fleet.overshoots) == (1, 1)
