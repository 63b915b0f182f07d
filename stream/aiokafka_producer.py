"""The producer over aiokafka: every send ends in one of three known ways."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import structlog
from aiokafka import AIOKafkaProducer
from aiokafka import errors as kafka_errors

from schemas.partition import partition_of
from stream.aiokafka_border import ask, connection_options, read_outcome, stop_producer
from stream.settings import KafkaSettings
from stream.transport import (
    BrokerAway,
    Headers,
    SendRefused,
    SendUnknown,
    Sent,
    UnknownTopic,
)

_log = structlog.get_logger(__name__)

# The largest request, and the room for records that wait for the one before to be acknowledged.
REQUEST_BYTES_MAX = 1_048_576
BATCH_BYTES = 131_072

# The broker looked at the record and did not take it; nothing is in the log.
_REFUSALS: Final = (
    kafka_errors.MessageSizeTooLargeError,
    kafka_errors.RecordListTooLargeError,
    kafka_errors.InvalidTopicError,
    kafka_errors.InvalidTimestampError,
    kafka_errors.InvalidRequiredAcksError,
    kafka_errors.TopicAuthorizationFailedError,
    kafka_errors.ClusterAuthorizationFailedError,
    kafka_errors.PolicyViolationError,
    kafka_errors.UnsupportedForMessageFormatError,
    kafka_errors.CorruptRecordException,
)


class AiokafkaProducer:
    """Made anew after an error that ends aiokafka's: an idempotent producer has then used up a
    sequence number that the broker never saw, and everything it sends later fails.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        partition_count: Callable[[str], Awaitable[int]],
        *,
        idempotent: bool,
    ) -> None:
        self._settings = settings
        self._partition_count = partition_count
        self._idempotent = idempotent
        self._inner: AIOKafkaProducer | None = None
        self._making = asyncio.Lock()
        self._stopping: set[asyncio.Task[None]] = set()
        self._keyless = 0
        self._together: dict[tuple[str, int], asyncio.Lock] = {}
        """By topic and partition: held while a request of `send_all` is under way."""
        self.closed = False

    async def start(self) -> None:
        """Raises BrokerAway, NotIdempotent."""
        await self._producer()

    async def send(
        self,
        topic: str,
        *,
        key: bytes | None,
        value: bytes,
        headers: Headers = (),
        partition: int | None = None,
    ) -> Sent:
        timeout_s = self._settings.send_timeout_ms / 1000
        loop = asyncio.get_running_loop()
        until_s = loop.time() + timeout_s
        partition = await self._choose(topic, key, partition)
        while True:
            # Until the record is in aiokafka's buffer a failure is certain to have done nothing.
            inner = await self._producer()
            try:
                async with asyncio.timeout_at(until_s):
                    answer: asyncio.Future[Any] = await inner.send(
                        topic, value, key=key, partition=partition, headers=list(headers)
                    )
                break
            except TimeoutError as error:
                raise BrokerAway(f"no room for the record within {timeout_s:g} s") from error
            except kafka_errors.MessageSizeTooLargeError as error:
                raise SendRefused(f"the record is too large: {error}") from error
            except (kafka_errors.KafkaTimeoutError, kafka_errors.KafkaConnectionError) as error:
                raise BrokerAway(f"the record was not accepted: {error!r}") from error
            except kafka_errors.KafkaError as error:
                # This producer ended on an earlier record: the next one takes this record.
                self._give_up(inner, error)
                if loop.time() >= until_s:
                    raise BrokerAway(f"no producer takes the record: {error!r}") from error
        return await self._outcome(inner, answer, until_s)

    async def send_all(self, topic: str, records: Sequence[tuple[bytes, bytes]]) -> int:
        try:
            count = await self._partition_count(topic)
        except (UnknownTopic, BrokerAway) as error:
            _log.warning("kafka_report_lost", topic=topic, records=len(records), error=str(error))
            return 0
        by_partition: dict[int, list[tuple[bytes, bytes]]] = {}
        for record in records:
            by_partition.setdefault(partition_of(record[0], count), []).append(record)
        written = await asyncio.gather(
            *(self._send_together(topic, at, mine) for at, mine in by_partition.items())
        )
        return sum(written)

    async def _send_together(
        self, topic: str, partition: int, records: list[tuple[bytes, bytes]]
    ) -> int:
        """One request after the other: what comes meanwhile goes together in the next one."""
        written = 0
        async with self._together.setdefault((topic, partition), asyncio.Lock()):
            try:
                async with asyncio.timeout(self._settings.send_timeout_ms / 1000):
                    inner = await self._producer()
                    while written < len(records):
                        written += await self._send_batch(
                            inner, topic, partition, records[written:]
                        )
            except (TimeoutError, BrokerAway, SendRefused) as error:
                lost = len(records) - written
                _log.warning("kafka_report_lost", topic=topic, records=lost, error=repr(error))
        return written

    async def _send_batch(
        self,
        inner: AIOKafkaProducer,
        topic: str,
        partition: int,
        records: list[tuple[bytes, bytes]],
    ) -> int:
        """How many of the first ones it took. Raises SendRefused, also where it is not known."""
        batch = inner.create_batch()
        taken = 0
        for key, value in records:
            # A batch takes its first record whatever its size.
            fits = len(key) + len(value) < REQUEST_BYTES_MAX
            if not fits or batch.append(timestamp=None, key=key, value=value) is None:
                break
            taken += 1
        if not taken:
            raise SendRefused("the record is too large")
        try:
            answer: asyncio.Future[Any] = await inner.send_batch(batch, topic, partition=partition)
            answer.add_done_callback(read_outcome)
            # Not awaited itself: it is aiokafka's shield, which a cancellation of ours would take
            # off the batch, and then nobody reads the batch's error. Nor does a producer that is
            # stopped, and cancels it, cancel us.
            await asyncio.wait([answer])
            if answer.cancelled():
                raise SendRefused("its producer was stopped before it was answered")
            answer.result()
        except kafka_errors.KafkaError as error:
            if not error.retriable:
                self._give_up(inner, error)
            raise SendRefused(repr(error)) from error
        return taken

    async def close(self) -> None:
        self.closed = True
        if self._inner is not None:
            inner, self._inner = self._inner, None
            await stop_producer(inner)
        await asyncio.gather(*self._stopping)

    async def _outcome(
        self, inner: AIOKafkaProducer, answer: "asyncio.Future[Any]", until_s: float
    ) -> Sent:
        # Nobody may be left to read an answer that comes after the deadline.
        answer.add_done_callback(read_outcome)
        try:
            async with asyncio.timeout_at(until_s):
                # Shielded: the batch goes on without us, and stays able to answer others.
                metadata = await asyncio.shield(answer)
        except TimeoutError as error:
            raise SendUnknown(
                f"no answer within {self._settings.send_timeout_ms} ms; it may still be written"
            ) from error
        except kafka_errors.KafkaError as error:
            if not error.retriable:
                self._give_up(inner, error)
            if isinstance(error, _REFUSALS):
                raise SendRefused(repr(error)) from error
            raise SendUnknown(repr(error)) from error
        if metadata.offset < 0:
            raise SendUnknown("it is in the log, the broker no longer knows at which offset")
        return Sent(metadata.partition, metadata.offset)

    async def _choose(self, topic: str, key: bytes | None, partition: int | None) -> int:
        # Asked before aiokafka is: its own look-up would make the broker create the topic.
        try:
            count = await self._partition_count(topic)
        except UnknownTopic as error:
            raise SendRefused(str(error)) from error
        if partition is not None:
            if not 0 <= partition < count:
                raise SendRefused(f"{topic} has {count} partitions, there is no {partition}")
            return partition
        if key is not None:
            return partition_of(key, count)
        self._keyless += 1
        return self._keyless % count

    async def _producer(self) -> AIOKafkaProducer:
        if self._inner is not None:
            return self._inner
        async with self._making:
            if self.closed:
                raise SendRefused("the producer is closed")
            if self._inner is None:
                self._inner = await start_producer(self._settings, idempotent=self._idempotent)
            return self._inner

    def _give_up(self, inner: AIOKafkaProducer, error: Exception) -> None:
        """The next send makes a new producer; this one is stopped behind everybody's back."""
        if self._inner is inner:
            _log.warning("kafka_producer_made_anew", error=repr(error))
            self._inner = None
            task = asyncio.get_running_loop().create_task(stop_producer(inner))
            self._stopping.add(task)
            task.add_done_callback(self._stopping.discard)


class NotIdempotent(Exception):
    """The broker does not give out producer ids."""


async def start_producer(settings: KafkaSettings, *, idempotent: bool) -> AIOKafkaProducer:
    """Raises BrokerAway, and NotIdempotent when the broker refuses exactly that."""
    producer = AIOKafkaProducer(
        **connection_options(settings),
        acks="all",
        enable_idempotence=idempotent,
        # A text waits for nobody: what comes while one request is out goes together in the next.
        linger_ms=0,
        max_batch_size=BATCH_BYTES,
        max_request_size=REQUEST_BYTES_MAX,
    )
    try:
        await ask(
            "connecting a producer",
            settings.request_timeout_ms / 1000,
            _start(producer, idempotent),
        )
    except BaseException:
        await stop_producer(producer)
        raise
    return producer


async def _start(producer: AIOKafkaProducer, idempotent: bool) -> None:
    try:
        await producer.start()
    except (
        kafka_errors.UnknownError,
        kafka_errors.IncompatibleBrokerVersion,
        kafka_errors.UnsupportedVersionError,
        kafka_errors.ClusterAuthorizationFailedError,
    ) as error:
        if idempotent:
            raise NotIdempotent(repr(error)) from error
        raise
