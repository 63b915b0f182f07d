"""Sending, over every implementation of stream.transport."""

import asyncio

import pytest

from schemas.partition import partition_of
from stream.transport import SendRefused, TopicSpec, UnknownTopic
from tests.support.transports import World


async def test_a_sent_record_lies_where_the_answer_says(world: World) -> None:
    topic = await world.topic(3)
    transport = world.transport()
    producer = await transport.producer()
    headers = (("trace", b"1"), ("trace", b"2"), ("none", None))
    sent = await producer.send(topic, key=b"live-1", value=b"hello", headers=headers)
    reader = await transport.range_reader(topic)
    (record,) = await reader.read(sent.partition, sent.offset, records_max=5, timeout_ms=5_000)
    assert (record.topic, record.partition, record.offset) == (topic, sent.partition, sent.offset)
    assert (record.key, record.value, record.headers) == (b"live-1", b"hello", headers)


async def test_the_key_alone_decides_the_partition(world: World) -> None:
    topic = await world.topic(5)
    producer = await world.transport().producer()
    for key in (b"", b"a", b"live-1", "Überwachung".encode(), b"\x00" * 128):
        sent = await producer.send(topic, key=key, value=b"v")
        assert sent.partition == partition_of(key, 5)


async def test_a_named_partition_and_a_missing_key(world: World) -> None:
    topic = await world.topic(3)
    producer = await world.transport().producer()
    assert (await producer.send(topic, key=None, value=b"v", partition=2)).partition == 2
    found = {(await producer.send(topic, key=None, value=b"v")).partition for _ in range(6)}
    assert len(found) > 1
    with pytest.raises(SendRefused):
        await producer.send(topic, key=b"k", value=b"v", partition=3)


async def test_sends_of_one_partition_keep_their_order(world: World) -> None:
    topic = await world.topic(1)
    transport = world.transport()
    producer = await transport.producer()
    # A topic's very first sends wait for its metadata, and may be overtaken while they do.
    await producer.send(topic, key=b"k", value=b"first")
    values: list[bytes] = [b"%d" % number for number in range(100)]
    sent = await asyncio.gather(*(producer.send(topic, key=b"k", value=value) for value in values))
    offsets = [one.offset for one in sent]
    assert offsets == sorted(set(offsets))
    reader = await transport.range_reader(topic)
    found: list[bytes | None] = []
    values.insert(0, b"first")
    while len(found) < len(values):
        records = await reader.read(0, len(found), records_max=60, timeout_ms=5_000)
        assert records
        assert len(records) <= 60
        found += [record.value for record in records]
    assert found == values


async def test_a_topic_that_is_not_there_is_refused_and_not_made(world: World) -> None:
    transport = world.transport()
    producer = await transport.producer()
    with pytest.raises(SendRefused):
        await producer.send("no-such-topic", key=b"k", value=b"v")
    with pytest.raises(UnknownTopic):
        await transport.partition_count("no-such-topic")


async def test_a_record_above_the_limit_is_refused_and_the_producer_lives_on(world: World) -> None:
    topic = await world.topic(1)
    producer = await world.transport().producer()
    with pytest.raises(SendRefused):
        await producer.send(topic, key=b"k", value=b"x" * 1_200_000)
    assert (await producer.send(topic, key=b"k", value=b"x")).offset == 0


async def test_a_closed_producer_refuses(world: World) -> None:
    topic = await world.topic(1)
    producer = await world.transport().producer()
    await producer.close()
    with pytest.raises(SendRefused):
        await producer.send(topic, key=b"k", value=b"v")


async def test_topics_are_made_once_and_differences_are_told(world: World) -> None:
    name = await world.topic(4)
    first, second = world.transport(), world.transport()
    spec = TopicSpec(name, 6)
    for found in await asyncio.gather(first.ensure_topics([spec]), second.ensure_topics([spec])):
        (topic,) = found
        assert (topic.name, topic.partitions, topic.partitions_wanted) == (name, 4, 6)
        assert not topic.created
    assert await first.partition_count(name) == 4


async def test_two_processes_may_make_the_topics_at_the_same_time(world: World) -> None:
    name = (await world.topic(1)) + "-both"
    spec = TopicSpec(name, 2)
    transports = [world.transport() for _ in range(3)]
    for found in await asyncio.gather(*(t.ensure_topics([spec]) for t in transports)):
        assert found[0].partitions == 2


async def test_a_report_goes_whole_and_in_order(world: World) -> None:
    topic = await world.topic(2)
    transport = world.transport()
    producer = await transport.producer()
    # More than one request holds, and a second report that begins before the first is through.
    values = [b"%06d" % number + b"x" * 2_000 for number in range(200)]
    counts = await asyncio.gather(
        producer.send_all(topic, [(b"k", value) for value in values[:150]]),
        producer.send_all(topic, [(b"k", value) for value in values[150:]]),
    )
    assert counts == [150, 50]
    partition = partition_of(b"k", 2)
    reader = await transport.range_reader(topic)
    found: list[bytes | None] = []
    while len(found) < len(values):
        records = await reader.read(partition, len(found), records_max=500, timeout_ms=5_000)
        assert records
        assert all(record.key == b"k" for record in records)
        found += [record.value for record in records]
    assert found == values


async def test_a_report_that_cannot_be_written_raises_nothing(world: World) -> None:
    topic = await world.topic(1)
    producer = await world.transport().producer()
    assert await producer.send_all("no-such-topic", [(b"k", b"v")]) == 0
    huge = (b"k", b"x" * 3_000_000)
    assert await producer.send_all(topic, [(b"k", b"v"), huge]) <= 1
    assert await producer.send_all(topic, [(b"k", b"v")]) == 1
