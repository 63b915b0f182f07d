"""Readers and producers of a real cluster live through the broker's crash and its return."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator

import pytest

from stream.aiokafka_transport import AiokafkaTransport
from stream.settings import KafkaSettings
from stream.transport import BrokerAway, KafkaRecord, SendUnknown, TopicSpec
from tests.support.apache_kafka import ApacheKafka
from tests.support.kafka_source import own_broker
from tests.support.transports import settle
from tests.support.wait import until

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


@pytest.fixture
def own_kafka() -> Iterator[ApacheKafka]:
    """A broker that this test may kill."""
    with own_broker() as broker:
        yield broker


@pytest.fixture
async def transport(own_kafka: ApacheKafka) -> AsyncIterator[AiokafkaTransport]:
    made = AiokafkaTransport(
        KafkaSettings(
            own_kafka.bootstrap,
            request_timeout_ms=3_000,
            send_timeout_ms=1_000,
            session_timeout_ms=6_000,
            heartbeat_interval_ms=250,
            rebalance_timeout_ms=6_000,
            stall_check_ms=500,
            stall_ms=4_000,
        )
    )
    yield made
    await made.close()


async def test_a_crash_of_the_broker(own_kafka: ApacheKafka, transport: AiokafkaTransport) -> None:
    topic, group = f"t-{uuid.uuid4().hex[:8]}", f"g-{uuid.uuid4().hex[:8]}"
    await transport.ensure_topics([TopicSpec(topic, 2)])
    producer = await transport.producer()
    custody = await transport.group_reader(group, topic)
    ranges = await transport.range_reader(topic)
    tail = await transport.tail(topic, None)
    await settle([custody], 2)
    for partition in (0, 1):
        await producer.send(topic, key=b"k", value=b"before", partition=partition)
        assert await ranges.read(partition, 0, records_max=1, timeout_ms=5_000)
    assert await custody.commit({0: 1, 1: 1}, custody.assignment.token)

    own_kafka.stop(kill=True)
    for _ in range(2):
        with pytest.raises((SendUnknown, BrokerAway)):
            await producer.send(topic, key=b"k", value=b"during", partition=0)
    with pytest.raises(BrokerAway):
        await ranges.log_range(0)

    async def told() -> bool:
        try:
            await custody.poll(records_max=10, timeout_ms=50)
        except BrokerAway:
            return True
        return False

    await until(told, timeout_s=20, what="a poll that says that the broker is away")

    own_kafka.launch()
    await until(
        lambda: asyncio.to_thread(own_kafka.answers), timeout_s=60, what="the broker's return"
    )

    async def sent() -> bool:
        try:
            await producer.send(topic, key=b"k", value=b"after", partition=1)
        except (SendUnknown, BrokerAway):
            return False
        return True

    await until(sent, timeout_s=30, what="a send after the return")
    from_group: list[KafkaRecord] = []
    from_tail: list[KafkaRecord] = []

    async def read_on() -> bool:
        for reader, found in ((custody, from_group), (tail, from_tail)):
            try:
                found += await reader.poll(records_max=10, timeout_ms=50)
            except BrokerAway:
                continue
        return all(
            any(record.value == b"after" for record in found) for found in (from_group, from_tail)
        )

    await until(read_on, timeout_s=60, what="the new record in the group and in the tail")
    assert any(
        record.value == b"after"
        for record in await ranges.read(1, 1, records_max=10, timeout_ms=10_000)
    )

    async def committed() -> bool:
        try:
            await custody.poll(records_max=10, timeout_ms=20)
            return await custody.commit({1: 2}, custody.assignment.token)
        except BrokerAway:
            return False

    await until(committed, timeout_s=30, what="a commit after the return")
    # Nothing is written twice: what was unknown while the broker was away came at most once each.
    written = await ranges.read(0, 0, records_max=100, timeout_ms=10_000)
    assert [record.value for record in written].count(b"during") <= 2
