"""Reading without a group, over every implementation of stream.transport."""

import asyncio

import pytest

from stream.transport import OffsetOutOfLog, UnknownTopic
from tests.support.transports import World
from tests.support.wait import until


async def test_the_range_of_a_log(world: World) -> None:
    topic = await world.topic(2)
    transport = world.transport()
    reader = await transport.range_reader(topic)
    assert await reader.log_range(0) == (0, 0)
    producer = await transport.producer()
    for _ in range(3):
        await producer.send(topic, key=b"k", value=b"v", partition=0)
    assert await reader.log_range(0) == (0, 3)
    assert await reader.log_range(1) == (0, 0)
    with pytest.raises(UnknownTopic):
        await reader.log_range(2)


async def test_reading_from_any_offset_forwards_and_back(world: World) -> None:
    topic = await world.topic(1)
    transport = world.transport()
    producer = await transport.producer()
    for number in range(10):
        await producer.send(topic, key=b"k", value=b"%d" % number)
    reader = await transport.range_reader(topic)
    for start in (0, 3, 7, 2, 9, 0):
        found = await reader.read(0, start, records_max=3, timeout_ms=5_000)
        assert [record.offset for record in found] == list(range(start, min(start + 3, 10)))


async def test_reading_at_the_end_waits_for_the_next_record(world: World) -> None:
    topic = await world.topic(1)
    transport = world.transport()
    producer = await transport.producer()
    reader = await transport.range_reader(topic)
    assert await reader.read(0, 0, records_max=5, timeout_ms=50) == []
    waiting = asyncio.ensure_future(reader.read(0, 0, records_max=5, timeout_ms=10_000))
    await producer.send(topic, key=b"k", value=b"late")
    assert [record.value for record in await waiting] == [b"late"]
    assert await reader.read(0, 1, records_max=5, timeout_ms=50) == []


async def test_offsets_outside_the_log_are_refused(world: World) -> None:
    topic = await world.topic(1)
    transport = world.transport()
    producer = await transport.producer()
    for _ in range(5):
        await producer.send(topic, key=b"k", value=b"v")
    await world.cut_log(topic, 0, 3)
    reader = await transport.range_reader(topic)
    for outside in (0, 2, 6, 1_000):
        with pytest.raises(OffsetOutOfLog) as caught:
            await reader.read(0, outside, records_max=5, timeout_ms=1_000)
        assert (caught.value.offset, caught.value.log_start, caught.value.log_end) == (
            outside,
            3,
            5,
        )
    found = await reader.read(0, 3, records_max=5, timeout_ms=5_000)
    assert [record.offset for record in found] == [3, 4]


async def test_partitions_are_read_side_by_side(world: World) -> None:
    topic = await world.topic(3)
    transport = world.transport()
    producer = await transport.producer()
    reader = await transport.range_reader(topic)
    waiting = [
        asyncio.ensure_future(reader.read(p, 0, records_max=1, timeout_ms=20_000)) for p in (0, 1)
    ]
    await producer.send(topic, key=b"k", value=b"two", partition=2)
    (found,) = await reader.read(2, 0, records_max=1, timeout_ms=10_000)
    assert found.value == b"two"
    assert not any(task.done() for task in waiting)
    for partition in (1, 0):
        await producer.send(topic, key=b"k", value=b"now", partition=partition)
        ((record,),) = await asyncio.gather(waiting[partition])
        assert (record.partition, record.value) == (partition, b"now")


async def test_a_tail_begins_at_the_end_unless_told(world: World) -> None:
    topic = await world.topic(2)
    transport = world.transport()
    producer = await transport.producer()
    for partition in (0, 1):
        for _ in range(3):
            await producer.send(topic, key=b"k", value=b"old", partition=partition)
    tail = await transport.tail(topic, None)
    told = await transport.tail(topic, {0: 1, 9: 4})
    assert tail.positions == {0: 3, 1: 3}
    assert told.positions == {0: 1, 1: 3}
    await producer.send(topic, key=b"k", value=b"new", partition=1)

    seen: list[tuple[int, int]] = []

    async def read(count: int) -> bool:
        seen.extend(
            (r.partition, r.offset) for r in await told.poll(records_max=10, timeout_ms=100)
        )
        return len(seen) >= count

    await until(lambda: read(3), what="what the tail missed")
    assert sorted(seen) == [(0, 1), (0, 2), (1, 3)]
    assert told.positions == {0: 3, 1: 4}
    (only,) = await tail.poll(records_max=10, timeout_ms=10_000)
    assert (only.partition, only.offset, only.value) == (1, 3, b"new")


async def test_a_tail_that_the_log_left_behind_goes_on_at_its_start(world: World) -> None:
    topic = await world.topic(1)
    transport = world.transport()
    producer = await transport.producer()
    for _ in range(5):
        await producer.send(topic, key=b"k", value=b"v")
    await world.cut_log(topic, 0, 3)
    tail = await transport.tail(topic, {0: 1})
    seen: list[int] = []

    async def read_on() -> bool:
        seen.extend(r.offset for r in await tail.poll(records_max=10, timeout_ms=100))
        return len(seen) >= 2

    await until(read_on, what="what is left of the log")
    assert seen == [3, 4]


async def test_closed_readers_give_nothing(world: World) -> None:
    topic = await world.topic(1)
    transport = world.transport()
    producer = await transport.producer()
    await producer.send(topic, key=b"k", value=b"v")
    tail = await transport.tail(topic, {0: 0})
    await tail.close()
    await tail.close()
    assert await tail.poll(records_max=1, timeout_ms=100) == []


async def test_the_first_offset_of_a_time(world: World) -> None:
    topic = await world.topic(2)
    transport = world.transport()
    producer = await transport.producer()
    reader = await transport.range_reader(topic)
    assert await reader.offset_at(0, 0) == 0
    for number in range(5):
        await producer.send(topic, key=b"k", value=b"%d" % number, partition=0)
        await asyncio.sleep(0.005)  # So that their timestamps differ: these are the records' own.
    found = await reader.read(0, 0, records_max=5, timeout_ms=5_000)
    while len(found) < 5:
        more = await reader.read(0, found[-1].offset + 1, records_max=5, timeout_ms=5_000)
        assert more
        found += more
    assert await reader.offset_at(0, 0) == 0
    for record in found:
        first = next(one.offset for one in found if one.timestamp >= record.timestamp)
        assert await reader.offset_at(0, record.timestamp) == first
    latest = max(one.timestamp for one in found)
    assert await reader.offset_at(0, latest + 1) == 5
    assert await reader.offset_at(1, latest) == 0
    with pytest.raises(UnknownTopic):
        await reader.offset_at(2, 0)
