"""No error of aiokafka's producer is left in a future that nobody reads, whoever stopped waiting.

With aiokafka's own producer and accumulator; only the cluster behind them is made up.
"""

import asyncio
import gc
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka import errors as kafka_errors

from stream import aiokafka_producer
from stream.aiokafka_border import stop_producer
from stream.aiokafka_producer import AiokafkaProducer
from stream.settings import KafkaSettings
from tests.support.wait import until

SERVERS = "127.0.0.1:1"
PARTITION = TopicPartition("t", 0)
RECORD = (b"key", b"value")


@pytest.fixture
async def inner(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Any]:
    """As started against a broker that is away: it takes records, and nobody sends them."""
    made: Any = AIOKafkaProducer(bootstrap_servers=SERVERS, enable_idempotence=True)

    async def known(_: str) -> None:
        return

    async def start(*_: Any, **__: Any) -> Any:
        return made

    made.client._wait_on_metadata = known
    made._metadata.partitions_for_topic = lambda _: {0}
    made._txn_manager.set_pid_and_epoch(1, 0)
    monkeypatch.setattr(aiokafka_producer, "start_producer", start)
    yield made
    await stop_producer(made)


async def one_partition(_: str) -> int:
    return 1


def producer(timeout_ms: int) -> AiokafkaProducer:
    settings = KafkaSettings(SERVERS, send_timeout_ms=timeout_ms)
    return AiokafkaProducer(settings, one_partition, idempotent=True)


@contextmanager
def nothing_unread() -> Iterator[None]:
    complaints: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: complaints.append(context["message"]))
    try:
        yield
        gc.collect()
    finally:
        loop.set_exception_handler(None)
    assert not complaints


async def turns() -> None:
    """As many as callbacks of callbacks need."""
    for _ in range(5):
        await asyncio.sleep(0)


def no_leader_in_time(accumulator: Any) -> None:
    """What aiokafka does with a batch that waited for too long while its partition had no leader:
    it goes out of the queue and fails."""
    accumulator._batches[PARTITION][0]._ctime -= 3_600
    accumulator._cluster = SimpleNamespace(leader_for_partition=lambda _: -1)
    accumulator.drain_by_nodes(ignore_nodes=())


async def test_a_report_that_nobody_waits_for_any_more_fails_in_silence(inner: Any) -> None:
    accumulator = inner._message_accumulator
    with nothing_unread():
        assert await producer(50).send_all("t", [RECORD]) == 0
        no_leader_in_time(accumulator)
        await turns()
        assert not accumulator._batches, "it was given up by aiokafka itself"


async def test_a_report_whose_sender_was_cancelled_fails_in_silence(inner: Any) -> None:
    accumulator = inner._message_accumulator
    with nothing_unread():
        sending = asyncio.ensure_future(producer(60_000).send_all("t", [RECORD]))
        await until(lambda: bool(accumulator._batches), what="a batch in the queue")
        sending.cancel()
        await asyncio.wait([sending])
        assert sending.cancelled()
        accumulator._pop_batch(PARTITION).failure(kafka_errors.OutOfOrderSequenceNumber())
        await turns()
        del sending


async def test_a_producer_that_is_stopped_loses_a_report_and_cancels_nobody(inner: Any) -> None:
    made = producer(60_000)
    sending = asyncio.ensure_future(made.send_all("t", [RECORD]))
    await until(lambda: bool(inner._message_accumulator._batches), what="a batch in the queue")
    await asyncio.gather(made.close(), sending)
    assert sending.result() == 0
