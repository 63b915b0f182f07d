"""What a foreign client wrote as one batch, over every broker that speaks the protocol."""

import asyncio

import pytest
from confluent_kafka import Producer

from tests.support.transports import KafkaWorld, World

RECORDS = 12


def write_one_batch(bootstrap: str, topic: str) -> None:
    """Give librdkafka all records before it may send the first."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 500})
    for number in range(RECORDS):
        producer.produce(topic, b"%d" % number, b"key", partition=0)
    assert producer.flush(15) == 0


async def test_the_end_of_a_log_lies_behind_its_last_batch(world: World) -> None:
    if not isinstance(world, KafkaWorld):
        pytest.skip("the memory transport has no batches")
    topic = await world.topic(1)
    reader = await world.transport().range_reader(topic)
    for round_number in (1, 2):
        await asyncio.to_thread(write_one_batch, world.settings.bootstrap, topic)
        end = round_number * RECORDS
        assert await reader.log_range(0) == (0, end)
        for start in (end - 2, end - RECORDS + 3, end - 1):
            found = await reader.read(0, start, records_max=100, timeout_ms=5_000)
            assert [record.offset for record in found] == list(range(start, end))


async def test_a_tail_begins_behind_the_last_batch(world: World) -> None:
    if not isinstance(world, KafkaWorld):
        pytest.skip("the memory transport has no batches")
    topic = await world.topic(1)
    await asyncio.to_thread(write_one_batch, world.settings.bootstrap, topic)
    tail = await world.transport().tail(topic, None)
    assert dict(tail.positions) == {0: RECORDS}
