"""Stopping what has a broker that is gone ends, whatever aiokafka still waits for."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.consumer.fetcher import Fetcher

from stream import aiokafka_border
from stream.aiokafka_border import stop_consumer, stop_producer

WAIT_S = 30.0


class Client:
    """Closed under its sender: the update that somebody waits for never comes."""

    def __init__(self) -> None:
        self._md_update_fut: asyncio.Future[bool] | None = (
            asyncio.get_running_loop().create_future()
        )

    async def close(self) -> None:
        return


async def for_ever() -> None:
    await asyncio.get_running_loop().create_future()


def producer_of(client: Client, sender: "asyncio.Task[None]") -> Any:
    return SimpleNamespace(
        client=client,
        stop=for_ever,
        _sender=SimpleNamespace(sender_task=sender),
        _message_accumulator=SimpleNamespace(_batches={}, _pending_batches=set()),
    )


async def test_a_sender_that_waits_for_news_of_the_cluster(monkeypatch: Any) -> None:
    monkeypatch.setattr(aiokafka_border, "STOP_TIMEOUT_S", 0.3)
    client = Client()
    reached: list[str] = []

    async def sender() -> None:
        # As aiokafka's routine does: cancelled, it waits for what it has under way.
        try:
            await for_ever()
        except asyncio.CancelledError:
            assert client._md_update_fut is not None
            await asyncio.shield(client._md_update_fut)
            reached.append("the end")

    task = asyncio.get_running_loop().create_task(sender())
    async with asyncio.timeout(WAIT_S):
        await stop_producer(cast(Any, producer_of(client, task)))
    assert reached == ["the end"]


async def test_a_sender_that_hears_only_the_second_cancellation(monkeypatch: Any) -> None:
    monkeypatch.setattr(aiokafka_border, "STOP_TIMEOUT_S", 0.3)

    async def sender() -> None:
        try:
            await for_ever()
        except asyncio.CancelledError:
            await for_ever()

    task = asyncio.get_running_loop().create_task(sender())
    async with asyncio.timeout(WAIT_S):
        await stop_producer(cast(Any, producer_of(Client(), task)))
    assert task.cancelled()


async def test_a_sender_that_never_ends_is_left_behind(monkeypatch: Any) -> None:
    monkeypatch.setattr(aiokafka_border, "STOP_TIMEOUT_S", 0.3)

    async def sender() -> None:
        while True:
            try:
                await for_ever()
            except asyncio.CancelledError:
                if ended:
                    raise

    ended: list[bool] = []
    task = asyncio.get_running_loop().create_task(sender())
    async with asyncio.timeout(WAIT_S):
        await stop_producer(cast(Any, producer_of(Client(), task)))
    assert not task.done()
    ended.append(True)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_sender_that_ended_before_its_batches_leaves_no_task_waiting() -> None:
    """With aiokafka's own accumulator and stop: its `close` would wait for the batch for ever."""
    producer: Any = AIOKafkaProducer(bootstrap_servers="127.0.0.1:1")
    accumulator = producer._message_accumulator
    partition = TopicPartition("text", 0)
    sent = await accumulator.add_message(partition, b"key", b"value", timeout=1.0)
    sender = asyncio.get_running_loop().create_task(asyncio.sleep(0))
    await sender
    producer._sender = SimpleNamespace(sender_task=sender, close=lambda: asyncio.sleep(0))
    before = asyncio.all_tasks()
    async with asyncio.timeout(WAIT_S):
        await stop_producer(producer)
        left = asyncio.all_tasks() - before
        if left:
            await asyncio.wait(left)
    assert not sent.done(), "whoever sent it decides for how long it waits"
    sent.cancel()


async def test_a_batch_that_was_put_back_for_another_try_is_let_go_in_silence() -> None:
    """aiokafka's callback takes it out of the set of those under way, where it is not any more."""
    producer: Any = AIOKafkaProducer(bootstrap_servers="127.0.0.1:1")
    accumulator = producer._message_accumulator
    partition = TopicPartition("text", 0)
    sent = await accumulator.add_message(partition, b"key", b"value", timeout=1.0)
    accumulator.reenqueue(accumulator._pop_batch(partition))
    loop = asyncio.get_running_loop()
    complaints: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: complaints.append(context))
    sender = loop.create_task(asyncio.sleep(0))
    await sender
    producer._sender = SimpleNamespace(sender_task=sender, close=lambda: asyncio.sleep(0))
    async with asyncio.timeout(WAIT_S):
        await stop_producer(producer)
    await asyncio.sleep(0)
    assert not complaints
    assert not accumulator._pending_batches
    sent.cancel()


def member_that_cannot_leave(**tasks: "asyncio.Task[None]") -> Any:
    consumer: Any = AIOKafkaConsumer(bootstrap_servers="127.0.0.1:1", group_id="g")
    consumer.subscribe(["text"])
    consumer._fetcher = Fetcher(consumer._client, consumer._subscription)
    consumer._coordinator = SimpleNamespace(close=for_ever, **tasks)
    return consumer


async def test_a_reader_that_cannot_leave_its_group_leaves_no_task_waiting(
    monkeypatch: Any,
) -> None:
    """With aiokafka's own stop and fetcher, which waits for an assignment that never comes."""
    monkeypatch.setattr(aiokafka_border, "STOP_TIMEOUT_S", 0.3)
    before = asyncio.all_tasks()
    heartbeat = asyncio.get_running_loop().create_task(for_ever())
    consumer = member_that_cannot_leave(_heartbeat_task=heartbeat)
    async with asyncio.timeout(WAIT_S):
        await stop_consumer(consumer)
    assert heartbeat.cancelled()
    assert asyncio.all_tasks() == before


async def test_nor_does_one_whose_stop_is_given_up(monkeypatch: Any) -> None:
    before = asyncio.all_tasks()
    consumer = member_that_cannot_leave()
    stopping = asyncio.get_running_loop().create_task(stop_consumer(consumer))
    await asyncio.sleep(0)
    stopping.cancel()
    async with asyncio.timeout(WAIT_S):
        await asyncio.gather(stopping, return_exceptions=True)
        if left := asyncio.all_tasks() - before:
            await asyncio.wait(left)
    assert stopping.cancelled()
