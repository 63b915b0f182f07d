"""Where aiokafka ends: its options, its errors and the few private parts that are needed.

Everything private that is touched is in this file, so that a new version of aiokafka is checked
here. Why any of it is needed stands beside it.
"""

import asyncio
from collections.abc import Awaitable, Coroutine, Mapping
from contextlib import suppress
from typing import Any, TypeVar, cast

import structlog
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka import errors as kafka_errors
from aiokafka.helpers import create_ssl_context
from aiokafka.protocol.commit import OffsetCommitRequest

from stream.settings import KafkaSettings
from stream.transport import BrokerAway

T = TypeVar("T")

_log = structlog.get_logger(__name__)

# Stopping flushes and says goodbye, both of which wait for a broker that may be gone.
STOP_TIMEOUT_S = 3.0
_RETRY_S = 0.1
_CANCELS_MAX = 3

# Of a member of a group; the last one of a consumer without a group.
_COORDINATOR_TASKS = (
    "_coordination_task",
    "_heartbeat_task",
    "_commit_refresh_task",
    "_reset_committed_task",
)

# Commit errors that mean: this member, or its generation, is no longer the group's.
_NOT_A_MEMBER = (
    kafka_errors.UnknownMemberIdError,
    kafka_errors.IllegalGenerationError,
    kafka_errors.RebalanceInProgressError,
)


def connection_options(settings: KafkaSettings) -> dict[str, Any]:
    """The options that producers, consumers and admin clients share."""
    options: dict[str, Any] = {
        "bootstrap_servers": settings.servers,
        "client_id": settings.client_id,
        "request_timeout_ms": settings.request_timeout_ms,
        "security_protocol": settings.security_protocol,
    }
    if settings.security_protocol.startswith("SASL"):
        options["sasl_mechanism"] = settings.sasl_mechanism
        options["sasl_plain_username"] = settings.sasl_username
        options["sasl_plain_password"] = settings.sasl_password
    if settings.security_protocol.endswith("SSL"):
        options["ssl_context"] = create_ssl_context(cafile=settings.ssl_ca_file)
    return options


def reading_options(settings: KafkaSettings) -> dict[str, Any]:
    """The options of every consumer: never reset a position, never commit unasked."""
    return {
        **connection_options(settings),
        "auto_offset_reset": "none",
        "enable_auto_commit": False,
        "fetch_max_wait_ms": settings.fetch_max_wait_ms,
    }


async def ask(what: str, timeout_s: float, question: Awaitable[T]) -> T:
    """The answer, or BrokerAway for everything that asking again may cure."""
    try:
        async with asyncio.timeout(timeout_s):
            return await question
    except TimeoutError as error:
        raise BrokerAway(f"{what}: no answer within {timeout_s:g} s") from error
    except kafka_errors.KafkaError as error:
        raise BrokerAway(f"{what}: {error!r}") from error


async def start_consumer(consumer: AIOKafkaConsumer, settings: KafkaSettings) -> AIOKafkaConsumer:
    """Started, or stopped again: a start that failed leaks its connections otherwise."""
    try:
        await ask("connecting a reader", settings.request_timeout_ms / 1000, consumer.start())
    except BaseException:
        await stop_consumer(consumer)
        raise
    # Its tasks must have begun before they can be ended: one that is cancelled before it began
    # makes the whole stop look cancelled.
    await asyncio.sleep(0)
    return consumer


async def stop_consumer(consumer: AIOKafkaConsumer) -> None:
    """Leaves the group and closes, within a bound even when the broker is gone."""
    try:
        await _stop("reader", consumer.stop(), cast(Any, consumer)._client)
    finally:
        left = _reading_tasks(consumer)
        for task in left:
            task.add_done_callback(read_outcome)
            task.cancel()
    if left:
        _, running = await asyncio.wait(left, timeout=STOP_TIMEOUT_S)
        if running:
            _log.warning("kafka_reader_left_behind", tasks=len(running))


def _reading_tasks(consumer: AIOKafkaConsumer) -> list[asyncio.Task[Any]]:
    """Those that still run. A stop says goodbye to the group first; where it is cut short there,
    nobody ends the others, and one that waits for an assignment would wait until it is destroyed,
    with an error in the log."""
    coordinator, fetcher = cast(Any, consumer)._coordinator, cast(Any, consumer)._fetcher
    found = [getattr(coordinator, name, None) for name in _COORDINATOR_TASKS]
    if fetcher is not None:
        found += [fetcher._fetch_task, *fetcher._pending_tasks]
    return [task for task in found if task is not None and not task.done()]


async def stop_producer(producer: AIOKafkaProducer) -> None:
    """Flushes and closes, within a bound: an idempotent producer would retry for ever."""
    inner = cast(Any, producer)
    try:
        if not await _stop("producer", producer.stop(), inner.client):
            await _end_sender(inner)
    finally:
        _let_go(inner._message_accumulator)


def _let_go(accumulator: Any) -> None:
    """Its `close` waits for all batches, in a task that nobody keeps. Where the sender ended before
    them it would wait until it is destroyed, with an error in the log."""
    pending = accumulator._pending_batches
    # One that was put back for another try takes itself out of this set when its future is done.
    pending.update(batch for batches in accumulator._batches.values() for batch in batches)
    for batch in tuple(pending):
        batch.future.cancel()


async def _end_sender(inner: Any) -> None:
    sender = inner._sender
    task: asyncio.Task[None] | None = None if sender is None else sender.sender_task
    if task is None:
        return
    # Its last sends may wait for news of the cluster, which a closed client never gets.
    waited_for = inner.client._md_update_fut
    if waited_for is not None and not waited_for.done():
        waited_for.set_result(False)
    # It takes the first cancellation as a wish to end what is under way.
    for _ in range(_CANCELS_MAX):
        task.cancel()
        await asyncio.wait([task], timeout=STOP_TIMEOUT_S / _CANCELS_MAX)
        if task.done():
            read_outcome(task)
            return
    _log.warning("kafka_sender_left_behind")


async def _stop(what: str, stopping: Coroutine[Any, Any, None], client: Any) -> bool:
    """True when it stopped by itself. Otherwise its connections are closed under it."""
    task = asyncio.get_running_loop().create_task(stopping)
    try:
        await asyncio.wait([task], timeout=STOP_TIMEOUT_S)
    finally:
        task.cancel()
    why = "no end" if not task.done() else "cancelled" if task.cancelled() else task.exception()
    if why is None:
        return True
    _log.warning("kafka_stop_forced", what=what, why=repr(why))
    with suppress(TimeoutError, kafka_errors.KafkaError):
        async with asyncio.timeout(STOP_TIMEOUT_S):
            await client.close()
    return False


def read_outcome(answer: "asyncio.Future[Any]") -> None:
    """For a done callback: nobody else may be left to read it, and asyncio would complain."""
    if not answer.cancelled():
        answer.exception()


def membership(consumer: AIOKafkaConsumer) -> tuple[int, str]:
    """(generation, member id) that the group's coordinator gave; (-1, "") when expelled."""
    coordinator = cast(Any, consumer)._coordinator
    if coordinator is None:
        return -1, ""
    return int(coordinator.generation), str(coordinator.member_id)


async def commit_as(
    consumer: AIOKafkaConsumer,
    group: str,
    member: tuple[int, str],
    offsets: Mapping[TopicPartition, int],
) -> bool:
    """Commits in the name of the membership that `offsets` were read under; False when it is over.

    aiokafka's own commit names the membership of the moment it is sent. A consumer expelled in
    between has none, and a broker takes commits without one while the group is empty: offsets
    would go back. Raises KafkaError; the caller bounds the time.
    """
    if member[0] < 0 or not member[1]:
        return False
    coordinator = cast(Any, consumer)._coordinator
    by_topic: dict[str, list[tuple[int, int, str]]] = {}
    for tp, offset in offsets.items():
        by_topic.setdefault(tp.topic, []).append((tp.partition, offset, ""))
    request = OffsetCommitRequest(
        group, member[0], member[1], OffsetCommitRequest.DEFAULT_RETENTION_TIME, [*by_topic.items()]
    )
    while True:
        await coordinator.ensure_coordinator_known()
        try:
            response = await coordinator._send_req(request)
            for _, partitions in response.topics:
                for _, code in partitions:
                    error = cast("type[kafka_errors.KafkaError]", kafka_errors.for_code(code))
                    if error is not kafka_errors.NoError:
                        raise error
        except _NOT_A_MEMBER:
            return False
        except kafka_errors.KafkaError as error:
            if not error.retriable:
                raise
            coordinator.coordinator_dead()
            await asyncio.sleep(_RETRY_S)
        else:
            return True


def position_of(consumer: AIOKafkaConsumer, tp: TopicPartition) -> int | None:
    """The next offset `consumer` will give, without waiting for one as its own method does."""
    subscription = cast(Any, consumer)._subscription.subscription
    assignment = None if subscription is None else subscription.assignment
    if assignment is None or tp not in assignment.tps:
        return None
    state = assignment.state_value(tp)
    return int(state.position) if state.has_valid_position else None
