"""Events reach every listener once and in order, also over resumes, gaps and slow clients."""

import random

import hypothesis.strategies as st
import pytest
from hypothesis import given

from dispatch.event_ids import BadEventId, format_event_id, parse_event_id
from dispatch.events_feed import (
    EndReason,
    EventsFeed,
    FeedEnded,
    FeedEvent,
    FeedGap,
    Subscription,
    TooManyStreams,
)
from schemas.events import EventKind, LiveEvent
from schemas.partition import partition_of
from schemas.topics import EVENTS_TOPIC
from stream.memory import MemoryTransport
from stream.transport import BrokerAway
from tests.support.wait import until
from tests.unit.dispatch.world import World


@given(st.dictionaries(st.integers(0, 99), st.integers(-1, 2**63 - 2), min_size=1))
def test_ids_are_read_back(places: dict[int, int]) -> None:
    assert parse_event_id(format_event_id(places), 100) == places


@given(st.text(max_size=60))
def test_no_text_breaks_the_parser(text: str) -> None:
    try:
        places = parse_event_id(text, 6)
    except BadEventId:
        return
    assert all(0 <= partition < 6 and offset >= -1 for partition, offset in places.items())


@pytest.mark.parametrize(
    "text", ["", "1", "1:", ":1", "6:0", "-1:0", "0:-2", "0:1,0:2", "0:١", "a:b"]
)
def test_bad_ids_are_refused(text: str) -> None:
    with pytest.raises(BadEventId):
        parse_event_id(text, 6)


async def write(world: World, live_id: str, number: int) -> None:
    event = LiveEvent(
        kind=EventKind.SPEAK_STARTED,
        event_id=f"{live_id}-{number}",
        source_event_id="",
        live_id=live_id,
        worker_id="w",
        epoch=1,
        at_ms=number,
    )
    producer = await MemoryTransport(world.broker).producer()
    await producer.send(EVENTS_TOPIC, key=live_id.encode(), value=event.encode())


def feed_of(world: World, queue_events_max: int = 256) -> EventsFeed:
    service = world.service()
    feed = service.feed
    feed._queue_events_max = queue_events_max
    world.run_feed(service)
    return feed


async def take(subscription: Subscription, count: int) -> list[FeedEvent]:
    items: list[FeedEvent] = []
    while len(items) < count:
        item = await subscription.next(5.0)
        assert isinstance(item, FeedEvent), item
        items.append(item)
    return items


def numbers(items: list[FeedEvent]) -> list[str]:
    return [item.event.event_id for item in items]


async def test_a_live_hears_its_own_events_only(world: World) -> None:
    feed = feed_of(world)
    subscription = await feed.subscribe("a")
    await write(world, "b", 0)
    await write(world, "a", 1)
    await write(world, "a", 2)
    assert numbers(await take(subscription, 2)) == ["a-1", "a-2"]
    assert await subscription.next(0.01) is None
    assert feed.streams == 1
    subscription.close()
    subscription.close()
    assert feed.streams == 0


async def test_resumes_after_any_event_on_any_replica(world: World) -> None:
    feed = feed_of(world)
    first = await feed.subscribe("a")
    for number in range(6):
        await write(world, "a", number)
        await write(world, "b", number)
    heard = await take(first, 6)
    for at, item in enumerate(heard):
        resumed = await feed_of(world).subscribe("a", item.resume_id)
        rest = [f"a-{number}" for number in range(at + 1, 6)]
        assert numbers(await take(resumed, len(rest))) == rest
        assert await resumed.next(0.01) is None


async def test_a_client_that_heard_nothing_yet_resumes_too(world: World) -> None:
    feed = feed_of(world)
    first = await feed.subscribe("a")
    resume_id = first.resume_id
    first.close()
    await write(world, "a", 1)
    assert numbers(await take(await feed_of(world).subscribe("a", resume_id), 1)) == ["a-1"]


async def test_reading_past_other_lives_is_progress(world: World) -> None:
    """The id goes on over what was none of the client's, so that nothing is read again for it."""
    feed = feed_of(world)
    first = await feed.subscribe("a")
    partition = partition_of(b"a", 6)
    neighbour = next(
        name
        for name in (f"o{number}" for number in range(99))
        if partition_of(name.encode(), 6) == partition
    )
    for number in range(3):
        await write(world, neighbour, number)
    feed_read = feed._positions
    await until(lambda: feed_read.get(partition) == 3, what="the feed's reading")
    resumed = await feed.subscribe("a", first.resume_id)
    assert await resumed.next(0.01) is None
    assert resumed.resume_id == f"{partition}:2"


async def test_an_id_of_another_partition_gives_everything(world: World) -> None:
    feed = feed_of(world)
    await write(world, "a", 1)
    own = partition_of(b"a", world.broker.partition_count(EVENTS_TOPIC))
    other = (own + 1) % 6
    assert numbers(await take(await feed.subscribe("a", f"{other}:5"), 1)) == ["a-1"]


async def test_all_lives_resume_without_gap_or_repetition(world: World) -> None:
    """Cut at a random place again and again, and put together: everything once, in order."""
    rng = random.Random(5)
    names = [f"live-{number}" for number in range(10)]
    written: dict[str, list[str]] = {name: [] for name in names}
    heard: dict[str, list[str]] = {name: [] for name in names}
    feed = feed_of(world)
    subscription = await feed.subscribe(None)
    resume_id = subscription.resume_id
    left = 0
    for number in range(200):
        name = rng.choice(names)
        await write(world, name, number)
        written[name].append(f"{name}-{number}")
        left += 1
        if rng.random() < 0.1:
            some = rng.randint(0, left)
            for item in await take(subscription, some):
                heard[item.event.live_id].append(item.event.event_id)
                resume_id = item.resume_id
            left -= some
            subscription.close()
            subscription = await feed.subscribe(None, resume_id)
    for item in await take(subscription, left):
        heard[item.event.live_id].append(item.event.event_id)
    assert heard == written
    assert await subscription.next(0.01) is None


async def test_a_slow_client_is_cut_and_told_where_to_go_on(world: World) -> None:
    feed = feed_of(world, queue_events_max=4)
    subscription = await feed.subscribe("a")
    await write(world, "a", 0)
    await take(subscription, 1)
    for number in range(1, 8):
        await write(world, "a", number)
    await until(lambda: feed.streams == 0, what="the cut")
    end = await subscription.next(1.0)
    assert isinstance(end, FeedEnded)
    assert end.reason is EndReason.LAGGED
    resumed = await feed.subscribe("a", end.resume_id)
    assert numbers(await take(resumed, 7)) == [f"a-{number}" for number in range(1, 8)]


async def test_deleted_events_are_said_not_skipped(world: World) -> None:
    feed = feed_of(world)
    first = await feed.subscribe("a")
    for number in range(6):
        await write(world, "a", number)
    resume_id = (await take(first, 6))[0].resume_id
    partition = partition_of(b"a", 6)
    world.broker.cut_log(EVENTS_TOPIC, partition, 4)
    resumed = await feed.subscribe("a", resume_id)
    assert await resumed.next(1.0) == FeedGap(partition, 1, 4)
    assert numbers(await take(resumed, 2)) == ["a-4", "a-5"]


async def test_offsets_without_records_do_not_stop_a_resume(world: World) -> None:
    feed = feed_of(world)
    first = await feed.subscribe("a")
    await write(world, "a", 0)
    resume_id = (await take(first, 1))[0].resume_id
    world.broker.leave_gap(EVENTS_TOPIC, partition_of(b"a", 6), 3)
    await write(world, "a", 1)
    await take(first, 1)
    resumed = await feed.subscribe("a", resume_id)
    assert numbers(await take(resumed, 1)) == ["a-1"]


async def test_what_is_no_event_is_passed_over(world: World) -> None:
    feed = feed_of(world)
    subscription = await feed.subscribe("a")
    producer = await MemoryTransport(world.broker).producer()
    await producer.send(EVENTS_TOPIC, key=b"a", value=b"\x00rubbish")
    await write(world, "a", 1)
    assert numbers(await take(subscription, 1)) == ["a-1"]
    assert feed.undecodable == 1


async def test_the_feed_goes_on_after_the_broker_was_away(world: World) -> None:
    feed = feed_of(world)
    subscription = await feed.subscribe("a")
    world.broker.away = True
    with pytest.raises(BrokerAway):
        await feed.log_range(0)
    world.broker.away = False
    await write(world, "a", 1)
    assert numbers(await take(subscription, 1)) == ["a-1"]


async def test_streams_are_bounded(world: World) -> None:
    feed = feed_of(world)
    feed._streams_max = 1
    first = await feed.subscribe("a")
    with pytest.raises(TooManyStreams):
        await feed.subscribe("b")
    first.close()
    (await feed.subscribe("b")).close()


async def test_ending_all_streams_says_why(world: World) -> None:
    feed = feed_of(world)
    one, every = await feed.subscribe("a"), await feed.subscribe(None)
    feed.end_all(EndReason.STOPPING)
    for subscription in (one, every):
        end = await subscription.next(1.0)
        assert isinstance(end, FeedEnded)
        assert end.reason is EndReason.STOPPING
    assert feed.streams == 0


async def test_records_that_the_broker_gives_again_are_heard_once(world: World) -> None:
    feed = feed_of(world)
    subscription = await feed.subscribe("a")
    for number in range(3):
        await write(world, "a", number)
    assert numbers(await take(subscription, 3)) == ["a-0", "a-1", "a-2"]
    for record in world.broker.records(EVENTS_TOPIC, partition_of(b"a", 6)):
        feed._deliver(record)
    await write(world, "a", 3)
    assert numbers(await take(subscription, 1)) == ["a-3"]
