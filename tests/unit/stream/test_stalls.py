"""A consumer that goes silent is replaced, and nothing is lost on the way."""

import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer

from stream.aiokafka_transport import AiokafkaTransport
from stream.settings import KafkaSettings
from stream.transport import KafkaRecord, TopicSpec
from tests.support.transports import settle
from tests.support.wait import until

pytestmark = pytest.mark.kafka


class Silence:
    """aiokafka's consumers as issues describe them: they answer, and have nothing."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.deaf: set[AIOKafkaConsumer] = set()
        getmany = AIOKafkaConsumer.getmany
        silence = self

        async def deaf_or_not(consumer: AIOKafkaConsumer, *tps: Any, **options: Any) -> Any:
            return {} if consumer in silence.deaf else await getmany(consumer, *tps, **options)

        monkeypatch.setattr(AIOKafkaConsumer, "getmany", deaf_or_not)


@pytest.fixture
def silence(monkeypatch: pytest.MonkeyPatch) -> Silence:
    return Silence(monkeypatch)


@pytest.fixture
async def transport(embedded_bootstrap: str) -> AsyncIterator[AiokafkaTransport]:
    made = AiokafkaTransport(
        KafkaSettings(
            embedded_bootstrap,
            session_timeout_ms=2_000,
            heartbeat_interval_ms=200,
            stall_check_ms=50,
            stall_ms=300,
        )
    )
    yield made
    await made.close()


async def new_topic(transport: AiokafkaTransport) -> str:
    topic = f"t-{uuid.uuid4().hex[:8]}"
    await transport.ensure_topics([TopicSpec(topic, 1)])
    return topic


async def test_a_member_of_a_group(transport: AiokafkaTransport, silence: Silence) -> None:
    topic = await new_topic(transport)
    producer = await transport.producer()
    reader = await transport.group_reader(f"g-{topic}", topic)
    await settle([reader], 1)
    token = reader.assignment.token
    consumer = reader._consumer
    assert consumer is not None
    silence.deaf.add(consumer)
    await producer.send(topic, key=b"k", value=b"v")
    found: list[KafkaRecord] = []

    async def read() -> bool:
        found.extend(await reader.poll(records_max=10, timeout_ms=20))
        return bool(found)

    await until(read, what="the record that the silent consumer had")
    assert found[0].value == b"v"
    assert reader.assignment.token > token
    assert not await reader.commit({0: 1}, token)
    assert await reader.commit({0: 1}, reader.assignment.token)


async def test_a_range_reader(transport: AiokafkaTransport, silence: Silence) -> None:
    topic = await new_topic(transport)
    producer = await transport.producer()
    reader = await transport.range_reader(topic)
    assert await reader.read(0, 0, records_max=10, timeout_ms=20) == []
    consumer = reader._lanes[0].consumer
    assert consumer is not None
    silence.deaf.add(consumer)
    await producer.send(topic, key=b"k", value=b"v")

    async def read() -> list[KafkaRecord]:
        return await reader.read(0, 0, records_max=10, timeout_ms=20)

    found = await until(read, what="the record that the silent consumer had")
    assert isinstance(found, list)
    assert found[0].value == b"v"


async def test_a_tail(transport: AiokafkaTransport, silence: Silence) -> None:
    topic = await new_topic(transport)
    producer = await transport.producer()
    tail = await transport.tail(topic, None)
    consumer = tail._consumer
    assert consumer is not None
    silence.deaf.add(consumer)
    await producer.send(topic, key=b"k", value=b"v")

    async def read() -> list[KafkaRecord]:
        return await tail.poll(records_max=10, timeout_ms=20)

    found = await until(read, what="the record that the silent consumer had")
    assert isinstance(found, list)
    assert (found[0].value, found[0].offset) == (b"v", 0)
