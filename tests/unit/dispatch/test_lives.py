"""The service over a store and a broker in memory: create, feed, keep, close."""

import asyncio
import random
from collections import Counter
from dataclasses import replace

import pytest

from dispatch.limits import Limits
from dispatch.lives import NoCapacity, Opened, Opening
from dispatch.placement import Candidate
from dispatch.text_input import EndTurnNotSent, Pushed, Turn
from ownership.kv import StoreAway
from ownership.memory import Faults, MemoryDatabase
from ownership.model import (
    AlreadyClosed,
    Closed,
    Existing,
    IdempotencyMismatch,
    LiveExists,
    UnknownLive,
)
from ownership.retry import Retry
from ownership.workers import list_workers, set_draining
from schemas.bad_record import BadRecord
from schemas.events import EventKind
from schemas.options import LiveOptions
from schemas.partition import partition_of
from schemas.text_record import RecordKind
from stream.transport import BrokerAway, SendUnknown
from tests.support.wait import until
from tests.unit.dispatch.world import PARTITIONS, World

ANY = Opening(LiveOptions())


async def test_creates_on_a_worker_and_mints_an_id_in_its_custody(world: World) -> None:
    await world.worker("w1", partitions=(3, 7))
    opened = await world.service().lives.create(ANY)
    assert isinstance(opened, Opened)
    assert opened.generation.worker_id == "w1"
    assert opened.generation.epoch == 1
    assert opened.partition in (3, 7)
    assert opened.partition == partition_of(opened.live_id.encode(), PARTITIONS)


async def test_a_client_may_name_the_live(world: World) -> None:
    await world.worker("w1")
    opened = await world.service().lives.create(replace(ANY, live_id="Ünïcode / 1"))
    assert isinstance(opened, Opened)
    assert opened.live_id == "Ünïcode / 1"


async def test_an_open_live_is_not_created_again_but_a_closed_one_is(world: World) -> None:
    await world.worker("w1")
    lives = world.service().lives
    named = replace(ANY, live_id="a")
    first = await lives.create(named)
    assert isinstance(first, Opened)
    assert isinstance(await lives.create(named), LiveExists)
    assert isinstance(await lives.close("a", "api"), Closed)
    again = await lives.create(named)
    assert isinstance(again, Opened)
    assert again.generation.epoch > first.generation.epoch


async def test_without_workers_nothing_is_created(world: World) -> None:
    outcome = await world.service().lives.create(ANY)
    assert isinstance(outcome, NoCapacity)
    assert outcome.counts.capacity == 0


async def test_draining_and_dead_workers_get_nothing(world: World) -> None:
    await world.worker("old", node="n")
    await world.worker("new", 1, node="n")  # supersedes it
    await world.worker("draining")
    await set_draining(world.db, "draining")
    lives = world.service().lives
    opened = await lives.create(ANY)
    assert isinstance(opened, Opened)
    assert opened.generation.worker_id == "new"
    outcome = await lives.create(ANY)
    assert isinstance(outcome, NoCapacity)
    assert (outcome.counts.workers_ready, outcome.counts.workers_draining) == (1, 1)
    assert outcome.counts.held == 1


async def test_a_full_fleet_still_answers_for_what_exists(world: World) -> None:
    """A repeat and a taken name are told as such, though no slot is free."""
    await world.worker("w1", 1)
    lives = world.service().lives
    keyed = replace(ANY, live_id="a", idempotency_key="k")
    assert isinstance(await lives.create(keyed), Opened)
    other = world.service().lives
    assert isinstance(await other.create(keyed), Existing)
    assert isinstance(await other.create(replace(ANY, live_id="a")), LiveExists)
    mismatch = replace(keyed, options=LiveOptions(speed=1.5))
    assert isinstance(await other.create(mismatch), IdempotencyMismatch)
    assert isinstance(await other.create(ANY), NoCapacity)


async def test_a_view_that_is_old_costs_no_second_transaction(world: World) -> None:
    """The second replica still takes all three for free; it learns of two that are not."""
    for name in ("w1", "w2", "w3"):
        await world.worker(name, 1)
    first, second = world.service(), world.service()
    await second.fleet.refresh()
    for _ in range(2):
        assert isinstance(await first.lives.create(ANY), Opened)
    before = world.store.version
    opened = await second.lives.create(ANY)
    assert isinstance(opened, Opened)
    assert world.store.version == before + 1
    assert second.lives.placements_refused <= 2
    free = [one.worker_id for one in second.fleet.candidates() if one.can_take]
    assert len(free) == 2 - second.lives.placements_refused
    assert isinstance(await second.lives.create(ANY), NoCapacity)


async def test_one_key_makes_one_live_over_replicas(world: World) -> None:
    await world.worker("w1", 8)
    keyed = replace(ANY, idempotency_key="k")
    replicas = [world.service() for _ in range(4)]
    outcomes = await asyncio.gather(*(one.lives.create(keyed) for one in replicas))
    ids = {one.live_id if isinstance(one, Opened) else one.view.live_id for one in outcomes}
    assert len(ids) == 1
    assert sum(isinstance(one, Opened) for one in outcomes) == 1
    assert (await list_workers(world.db))[0].held == 1


@pytest.mark.parametrize("seed", range(4))
async def test_concurrent_creates_fill_the_last_slot_and_none_more(seed: int) -> None:
    """64 creates over two replicas with views of any age; conflicts and slow commits on top."""
    async with World() as world:
        for number, capacity in enumerate((13, 20, 31)):
            await world.worker(f"w{number}", capacity)
        replicas = [world.service(), world.service()]
        for number, one in enumerate(replicas):
            assert isinstance(one.db, MemoryDatabase)
            one.db.faults = Faults(conflict=0.1, commit_s=(0.0, 0.004), reply_s=(0.0, 0.002))
            if number == seed % 2:
                await one.fleet.refresh()
        rng = random.Random(seed)
        outcomes = await asyncio.gather(
            *(rng.choice(replicas).lives.create(ANY) for _ in range(64))
        )
        assert all(isinstance(one, Opened) for one in outcomes)
        assert len({one.live_id for one in outcomes if isinstance(one, Opened)}) == 64
        views = await list_workers(world.db)
        assert [(one.held, one.free_slots) for one in views] == [(13, 0), (20, 0), (31, 0)]
        assert isinstance(await replicas[0].lives.create(ANY), NoCapacity)


async def test_a_burst_spreads_over_equal_workers(world: World) -> None:
    for number in range(4):
        await world.worker(f"w{number}", 50)
    service = world.service()
    for _ in range(100):
        await service.lives.create(ANY)
    held = Counter({one.value.worker_id: one.held for one in await list_workers(world.db)})
    assert min(held.values()) >= 20


async def test_unknown_outcomes_create_nothing_twice(world: World) -> None:
    await world.worker("w1", 30)
    service = world.service()
    assert isinstance(service.db, MemoryDatabase)
    service.db.faults = Faults(unknown_applied=0.3, unknown_dropped=0.2)
    done = [await service.lives.create(ANY) for _ in range(12)]
    assert all(isinstance(one, Opened) for one in done)
    assert (await list_workers(world.db))[0].held == 12


async def test_a_store_that_is_away_is_said(world: World) -> None:
    world.retry = Retry(attempts_max=3)
    service = world.service()
    assert isinstance(service.db, MemoryDatabase)
    service.db.faults = Faults(away=1.0)
    with pytest.raises(StoreAway):
        await service.lives.create(ANY)


async def test_text_is_appended_in_order_to_the_lives_partition(world: World) -> None:
    await world.worker("w1")
    service = world.service()
    opened = await service.lives.create(ANY)
    assert isinstance(opened, Opened)
    pushed = await service.text.push(opened.live_id, Turn("Hello. ", end_turn=True, seq=4))
    assert isinstance(pushed, Pushed)
    assert pushed.text is not None
    assert pushed.end_turn is not None
    assert pushed.text.partition == opened.partition
    assert pushed.text.offset < pushed.end_turn.offset
    first, second = world.texts(opened.live_id)
    assert (first.kind, first.text, first.seq) == (RecordKind.TEXT, "Hello. ", 4)
    assert first.event_id == pushed.text.event_id
    assert first.sent_at_ms == world.clock.wall_ms()
    assert (second.kind, second.seq) == (RecordKind.END_TURN, None)


async def test_text_needs_an_open_live(world: World) -> None:
    await world.worker("w1")
    service = world.service()
    assert isinstance(await service.text.push("a", Turn("Hi")), UnknownLive)
    await service.lives.create(replace(ANY, live_id="a"))
    await service.lives.close("a", "done")
    assert await service.text.push("a", Turn("Hi")) == AlreadyClosed("done")
    assert isinstance(await service.text.interrupt("a"), AlreadyClosed)
    assert world.texts() == []


@pytest.mark.parametrize("text", ["", "  \n", "a\x00b", "a\x1bb", "x" * 16_385, "é" * 8_193])
async def test_text_that_cannot_be_spoken_is_refused(world: World, text: str) -> None:
    await world.worker("w1")
    service = world.service()
    await service.lives.create(replace(ANY, live_id="a"))
    with pytest.raises(BadRecord):
        await service.text.push("a", Turn(text))
    assert world.texts() == []


async def test_outcomes_of_sends_stay_apart(world: World) -> None:
    await world.worker("w1")
    service = world.service()
    await service.lives.create(replace(ANY, live_id="a"))
    world.broker.faults.send_unknown_applied = 1.0
    with pytest.raises(SendUnknown):
        await service.text.push("a", Turn("Hi"))
    world.broker.faults.send_unknown_applied = 0.0
    world.broker.away = True
    with pytest.raises(BrokerAway):
        await service.text.push("a", Turn("Hi"))


async def test_a_lost_end_of_a_turn_names_the_text_that_is_in_the_log(world: World) -> None:
    await world.worker("w1")
    service = world.service()
    await service.lives.create(replace(ANY, live_id="a"))
    send = service.publisher.text

    async def text_only(*given: object, **more: object) -> object:
        if given[2] is RecordKind.END_TURN:
            raise SendUnknown("no answer")
        return await send(*given, **more)  # type: ignore[arg-type]

    service.publisher.text = text_only  # type: ignore[assignment, method-assign]
    with pytest.raises(EndTurnNotSent) as raised:
        await service.text.push("a", Turn("Hi", end_turn=True))
    assert raised.value.text.offset == 0


async def test_pages_of_lives_have_no_gap(world: World) -> None:
    await world.worker("w1", 10)
    lives = world.service().lives
    for name in "dbace":
        await lives.create(replace(ANY, live_id=name))
    seen: list[str] = []
    after: str | None = None
    while True:
        views, after = await lives.page(after, 2)
        seen += [view.live_id for view in views]
        if after is None:
            break
    assert seen == ["a", "b", "c", "d", "e"]


async def test_what_dispatch_does_is_reported(world: World) -> None:
    await world.worker("w1")
    service = world.service()
    world.run_feed(service)
    await service.lives.create(replace(ANY, live_id="a"))
    await service.lives.close("a", "api")
    await until(lambda: len(world.events("a")) == 3, what="three events")
    kinds = [(one.kind, one.data.get("state")) for one in world.events("a")]
    assert kinds == [
        (EventKind.STATE_UPDATED, "open"),
        (EventKind.GENERATION_COMMITTED, None),
        (EventKind.STATE_UPDATED, "closed"),
    ]


async def test_refreshes_share_one_reading(world: World) -> None:
    await world.worker("w1")
    service = world.service()
    begun = 0
    read = service.db.read

    async def counted(body: object) -> object:
        nonlocal begun
        begun += 1
        return await read(body)  # type: ignore[arg-type]

    service.db.read = counted  # type: ignore[assignment, method-assign]
    await asyncio.gather(*(service.fleet.refresh() for _ in range(20)))
    assert begun <= 2
    assert service.fleet.candidates() == [Candidate("w1", True, 4, 4, frozenset())]


async def test_limits_are_checked_against_each_other() -> None:
    with pytest.raises(ValueError, match="lease_ms"):
        Limits(lease_ms=1_500).check()
    with pytest.raises(ValueError, match="orphan_page"):
        Limits(orphan_page=500).check()
    with pytest.raises(ValueError, match="at least 1"):
        Limits(sweep_ms=0).check()
