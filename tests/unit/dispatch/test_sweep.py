"""Lives end by themselves at their limits, and not before."""

from dataclasses import replace

import pytest

from dispatch.activity import ActivityBook, Stamps, Watched, forget_stamps, read_stamps, stamp_use
from dispatch.limits import Limits
from dispatch.lives import Opening
from dispatch.service import DispatchService
from dispatch.sweep import due_of
from dispatch.text_input import Turn
from ownership.kv import StoreAway
from ownership.lives import get_live
from ownership.memory import Faults, MemoryDatabase
from schemas.events import EventKind, LiveEvent
from schemas.options import LiveOptions
from schemas.store_values import Checkpoint, GenerationValue, LiveState, LiveStatus
from tests.unit.dispatch.world import World

OPTIONS = LiveOptions(idle_timeout_ms=60_000, length_ms_max=600_000)


def live(**options: int) -> LiveState:
    return LiveState(LiveStatus.OPEN, replace(OPTIONS, **options), 0, created_at_ms=1_000)


@pytest.mark.parametrize(
    ("state", "generation_ms", "spoke_ms", "stamps", "due"),
    [
        (live(), 0, 0, Stamps(), (61_000, "idle_timeout")),
        (live(), 0, 0, Stamps(used_at_ms=5_000), (65_000, "idle_timeout")),
        (live(), 0, 7_000, Stamps(used_at_ms=5_000), (67_000, "idle_timeout")),
        (live(), 9_000, 7_000, Stamps(), (69_000, "idle_timeout")),
        (live(), 0, 0, Stamps(used_at_ms=590_000), (601_000, "length_max")),
        (live(absent_viewer_ms=30_000), 0, 0, Stamps(), (31_000, "absent_viewer")),
        (
            live(absent_viewer_ms=30_000),
            0,
            0,
            Stamps(watched=Watched(2_000, 1)),
            (61_000, "idle_timeout"),
        ),
        (
            live(absent_viewer_ms=30_000),
            0,
            0,
            Stamps(watched=Watched(9_000, 0)),
            (39_000, "absent_viewer"),
        ),
        # A viewer of an earlier live of this id says nothing about this one.
        (
            live(absent_viewer_ms=30_000),
            0,
            0,
            Stamps(watched=Watched(999, 3)),
            (31_000, "absent_viewer"),
        ),
        (live(), 0, 0, Stamps(watched=Watched(9_000, 0)), (61_000, "idle_timeout")),
    ],
)
def test_the_earliest_limit_decides(
    state: LiveState, generation_ms: int, spoke_ms: int, stamps: Stamps, due: tuple[int, str]
) -> None:
    found = due_of(
        state, GenerationValue("w", 1, at_ms=generation_ms), Checkpoint(at_ms=spoke_ms), stamps
    )
    assert (found.at_ms, found.reason) == due


async def sweep(world: World, service: DispatchService, ms: int) -> None:
    world.clock.pass_ms(ms)
    await world.beat("w1")
    await service.fleet.refresh()
    await service.sweep.step()


async def status(world: World, live_id: str) -> tuple[str, str]:
    view = await get_live(world.db, live_id)
    assert view is not None
    return view.live.state.value, view.live.close_reason


async def test_an_idle_live_ends_and_a_used_one_stays(world: World) -> None:
    await world.worker("w1")
    service = world.service()
    for name in ("idle", "kept", "fed"):
        await service.lives.create(Opening(OPTIONS, name))
    await sweep(world, service, 40_000)
    await service.lives.keepalive("kept")
    await service.text.push("fed", Turn("Hi"))
    await service.activity.flush()
    await sweep(world, service, 40_000)
    assert await status(world, "idle") == ("closed", "idle_timeout")
    assert await status(world, "kept") == ("open", "")
    assert await status(world, "fed") == ("open", "")
    await sweep(world, service, 40_000)
    assert await status(world, "kept") == ("closed", "idle_timeout")
    assert service.sweep.closed == {"idle_timeout": 3}


async def test_every_live_ends_at_its_longest(world: World) -> None:
    await world.worker("w1")
    service = world.service()
    await service.lives.create(Opening(OPTIONS, "a"))
    for _ in range(15):
        await service.lives.keepalive("a")
        await sweep(world, service, 40_000)
    assert await status(world, "a") == ("closed", "length_max")


async def test_a_live_without_viewers_ends(world: World) -> None:
    await world.worker("w1")
    service = world.service()
    options = replace(OPTIONS, absent_viewer_ms=20_000)
    await service.lives.create(Opening(options, "watched"))
    await service.lives.create(Opening(options, "left"))

    def viewers(live_id: str, count: int) -> LiveEvent:
        return LiveEvent(
            kind=EventKind.STATE_UPDATED,
            event_id="e",
            source_event_id="",
            live_id=live_id,
            worker_id="w1",
            epoch=1,
            at_ms=world.clock.wall_ms(),
            data={"viewers": count},
        )

    service.feed._on_event(viewers("watched", 1))
    service.feed._on_event(viewers("left", 1))
    await service.activity.flush()
    await sweep(world, service, 15_000)
    service.feed._on_event(viewers("left", 0))
    await service.activity.flush()
    await sweep(world, service, 15_000)
    assert await status(world, "left") == ("open", "")
    await sweep(world, service, 10_000)
    assert await status(world, "left") == ("closed", "absent_viewer")
    assert await status(world, "watched") == ("open", "")


async def test_lives_of_the_dead_do_not_idle_away(world: World) -> None:
    """What they were sent is spoken by their next owner first."""
    await world.worker("w1")
    service = world.service()
    await service.lives.create(Opening(OPTIONS, "a"))
    await service.fleet.refresh()
    for _ in range(80):
        world.clock.pass_ms(1_000)
        await service.fleet.refresh()
        await service.recovery.step()
    await service.sweep.step()
    assert await status(world, "a") == ("open", "")
    await world.worker("w2")
    await service.fleet.refresh()
    await service.recovery.step()
    await service.sweep.step()
    assert await status(world, "a") == ("open", "")


async def test_one_replica_sweeps_a_round(world: World) -> None:
    await world.worker("w1")
    one, two = world.service(), world.service()
    await one.lives.create(Opening(OPTIONS, "a"))
    world.clock.pass_ms(70_000)
    for service in (one, two):
        await service.fleet.refresh()
    await one.sweep.step()
    assert await status(world, "a") == ("closed", "idle_timeout")
    assert not await two.sweep._begin()
    world.clock.pass_ms(Limits().sweep_ms)
    assert await two.sweep._begin()


async def test_two_sweeps_at_once_do_no_harm(world: World) -> None:
    await world.worker("w1")
    one, two = world.service(), world.service()
    await one.lives.create(Opening(OPTIONS, "a"))
    await one.lives.close("a", "api")
    await two.sweep._end("a", "idle_timeout")
    assert await status(world, "a") == ("closed", "api")
    assert two.sweep.closed == {}


async def test_stamps_only_grow_and_end_with_the_live(world: World) -> None:
    await world.worker("w1")
    service = world.service()
    await service.lives.create(Opening(OPTIONS, "a"))
    await stamp_use(world.db, "a", 500)
    await stamp_use(world.db, "a", 400)
    await stamp_use(world.db, "nobody", 400)
    assert await world.db.read(lambda tr: read_stamps(tr, "a")) == Stamps(500)
    assert await world.db.read(lambda tr: read_stamps(tr, "nobody")) == Stamps()
    await service.lives.close("a", "api")
    await stamp_use(world.db, "a", 600)
    await forget_stamps(world.db, "a")
    assert await world.db.read(lambda tr: read_stamps(tr, "a")) == Stamps()


async def test_stamps_wait_for_a_store_that_is_away(world: World) -> None:
    await world.worker("w1")
    await world.service().lives.create(Opening(OPTIONS, "a"))
    db = MemoryDatabase(world.store, faults=Faults(away=1.0))
    book = ActivityBook(db)
    book.use("a", 700)
    with pytest.raises(StoreAway):
        await book.flush()
    db.faults = None
    await book.flush()
    assert await db.read(lambda tr: read_stamps(tr, "a")) == Stamps(700)
