"""The transport over aiokafka: what production uses.

Kafka 4.x with the classic group protocol. What the rules in here answer to: expelled consumers can
rewind a group's offsets, consumers stall silently, positions reset silently, an idempotent
producer does not survive an error, and asking for a topic may create it.
"""

import asyncio
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Protocol, TypeVar

import structlog
from aiokafka import errors as kafka_errors
from aiokafka.admin import AIOKafkaAdminClient

from stream.aiokafka_border import STOP_TIMEOUT_S, ask, connection_options
from stream.aiokafka_group import AiokafkaGroupReader
from stream.aiokafka_inspector import AiokafkaInspector
from stream.aiokafka_log import keep_readable
from stream.aiokafka_producer import AiokafkaProducer, NotIdempotent
from stream.aiokafka_readers import AiokafkaRangeReader, AiokafkaTailReader
from stream.log_ranges import LogRanges
from stream.settings import KafkaSettings
from stream.topics import make_topics, partition_counts
from stream.transport import BrokerAway, TopicFound, TopicSpec, UnknownTopic

T = TypeVar("T")

_log = structlog.get_logger(__name__)


class AiokafkaTransport:
    """Made inside the running loop. A string names the servers only, KafkaSettings all."""

    def __init__(self, kafka: str | KafkaSettings) -> None:
        self.settings = kafka if isinstance(kafka, KafkaSettings) else KafkaSettings(kafka)
        keep_readable()
        self._ranges = LogRanges(self.settings)
        self._admin: AIOKafkaAdminClient | None = None
        self._making = asyncio.Lock()
        self._counts: dict[str, int] = {}
        self._idempotent = self.settings.idempotent
        self._made: list[_Closing] = []

    async def producer(self) -> AiokafkaProducer:
        """Idempotent unless the settings or the broker say no; the broker is asked once."""
        wanted = self._idempotent is not False
        producer = AiokafkaProducer(self.settings, self.partition_count, idempotent=wanted)
        try:
            await producer.start()
        except NotIdempotent as error:
            if self.settings.idempotent:
                raise BrokerAway(f"the broker gives out no producer ids: {error}") from error
            _log.info("kafka_broker_not_idempotent", servers=self.settings.bootstrap)
            self._idempotent = False
            producer = AiokafkaProducer(self.settings, self.partition_count, idempotent=False)
            await producer.start()
        self._keep(producer)
        return producer

    async def group_reader(self, group: str, topic: str) -> AiokafkaGroupReader:
        await self.partition_count(topic)
        reader = AiokafkaGroupReader(self.settings, group, topic, self._ranges)
        await reader.open()
        self._keep(reader)
        return reader

    async def range_reader(self, topic: str) -> AiokafkaRangeReader:
        count = await self.partition_count(topic)
        reader = AiokafkaRangeReader(self.settings, topic, count, self._ranges)
        self._keep(reader)
        return reader

    async def tail(self, topic: str, positions: Mapping[int, int] | None) -> AiokafkaTailReader:
        partitions = range(await self.partition_count(topic))
        start_at = await self._ranges.ends(topic, partitions)
        start_at.update({p: at for p, at in (positions or {}).items() if p in start_at})
        reader = AiokafkaTailReader(self.settings, topic, start_at, self._ranges)
        await reader.open()
        self._keep(reader)
        return reader

    async def partition_count(self, topic: str) -> int:
        """Asked once per topic: keys keep their partitions even if somebody adds more."""
        count = self._counts.get(topic)
        if count is None:
            counts = await self._ask("listing topics", partition_counts(await self._open()))
            self._counts.update({name: found for name, found in counts.items() if found})
            count = self._counts.get(topic)
            if count is None and topic in counts:
                raise BrokerAway(f"a partition of {topic} has no leader")
            if count is None:
                raise UnknownTopic(f"there is no topic {topic}")
        return count

    async def ensure_topics(self, specs: Sequence[TopicSpec]) -> tuple[TopicFound, ...]:
        timeout_s = self.settings.request_timeout_ms / 1000
        found = await self._ask(
            "creating topics", make_topics(await self._open(), specs, timeout_s)
        )
        for topic in found:
            if topic.partitions != topic.partitions_wanted:
                _log.warning(
                    "kafka_topic_differs",
                    topic=topic.name,
                    partitions=topic.partitions,
                    wanted=topic.partitions_wanted,
                )
        return found

    async def log_ends(self, topic: str, partitions: Iterable[int]) -> dict[int, int]:
        """Raises BrokerAway."""
        return await self._ranges.ends(topic, partitions)

    def inspector(self) -> AiokafkaInspector:
        """For questions about topics and groups; shares this transport's connection."""
        return AiokafkaInspector(lambda: self.settings, self._open)

    def call_itself(self, client_id: str) -> None:
        """What brokers are told from now on of whatever is made here."""
        self.settings = replace(self.settings, client_id=client_id)

    async def close(self) -> None:
        made, self._made = self._made, []
        await asyncio.gather(*(one.close() for one in reversed(made)))
        await self._ranges.close()
        admin, self._admin = self._admin, None
        if admin is not None:
            await _close_admin(admin)

    def _keep(self, made: "_Closing") -> None:
        """Closed with the transport, unless its user did that long before."""
        self._made = [one for one in self._made if not one.closed]
        self._made.append(made)

    async def _ask(self, what: str, question: Awaitable[T]) -> T:
        return await ask(what, 2 * self.settings.request_timeout_ms / 1000, question)

    async def _open(self) -> AIOKafkaAdminClient:
        async with self._making:
            if self._admin is None:
                admin = AIOKafkaAdminClient(**connection_options(self.settings))
                try:
                    await self._ask("connecting", admin.start())
                    cluster = await self._ask("connecting", admin.describe_cluster())
                    self.settings = self.settings.for_cluster(str(cluster["cluster_id"]))
                    self._ranges.settings = self.settings
                except BaseException:
                    await _close_admin(admin)
                    raise
                self._admin = admin
            return self._admin


class _Closing(Protocol):
    closed: bool

    async def close(self) -> None: ...


async def _close_admin(admin: AIOKafkaAdminClient) -> None:
    with suppress(TimeoutError, kafka_errors.KafkaError):
        async with asyncio.timeout(STOP_TIMEOUT_S):
            await admin.close()
