"""The implementations of stream.transport that the conformance suite runs over."""

import uuid
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.records_to_delete import RecordsToDelete
from aiokafka.protocol.group import LeaveGroupRequest

from stream.aiokafka_border import membership
from stream.aiokafka_group import AiokafkaGroupReader
from stream.aiokafka_transport import AiokafkaTransport
from stream.memory import MemoryBroker, MemoryTransport
from stream.settings import KafkaSettings
from stream.transport import GroupReader, KafkaRecord, TopicSpec, Transport
from tests.support.wait import until


class World(ABC):
    """One broker, and what a test does to it behind the transports' backs."""

    name: str

    def __init__(self) -> None:
        self._transports: list[Transport] = []

    def transport(self) -> Transport:
        """As a further process would make it."""
        made = self._make()
        self._transports.append(made)
        return made

    async def topic(self, partitions: int = 1) -> str:
        name = f"t-{uuid.uuid4().hex[:12]}"
        await self.transport().ensure_topics([TopicSpec(name, partitions)])
        return name

    async def close(self) -> None:
        for transport in self._transports:
            await transport.close()

    @abstractmethod
    def _make(self) -> Transport: ...

    @abstractmethod
    async def cut_log(self, topic: str, partition: int, log_start: int) -> None:
        """Deletes everything below `log_start`, as retention does."""

    @abstractmethod
    async def expel(self, group: str, reader: GroupReader) -> None:
        """Removes a member that does not notice yet."""


class MemoryWorld(World):
    name = "memory"

    def __init__(self) -> None:
        super().__init__()
        self.broker = MemoryBroker(seed=7)

    def _make(self) -> Transport:
        return MemoryTransport(self.broker)

    async def cut_log(self, topic: str, partition: int, log_start: int) -> None:
        self.broker.cut_log(topic, partition, log_start)

    async def expel(self, group: str, reader: GroupReader) -> None:
        self.broker.expel(group, reader)


class KafkaWorld(World):
    """Apache Kafka or the embedded broker, through aiokafka."""

    def __init__(self, name: str, bootstrap: str, session_timeout_ms: int) -> None:
        super().__init__()
        self.name = name
        self.settings = KafkaSettings(
            bootstrap,
            session_timeout_ms=session_timeout_ms,
            heartbeat_interval_ms=250,
            rebalance_timeout_ms=6_000,
        )

    def _make(self) -> Transport:
        return AiokafkaTransport(self.settings)

    async def cut_log(self, topic: str, partition: int, log_start: int) -> None:
        if self.name == "embedded":
            pytest.skip("the embedded broker keeps every record: it has no DeleteRecords")
        admin = await self._admin()
        try:
            await admin.delete_records(
                {TopicPartition(topic, partition): RecordsToDelete(before_offset=log_start)}
            )
        finally:
            await admin.close()

    async def expel(self, group: str, reader: GroupReader) -> None:
        assert isinstance(reader, AiokafkaGroupReader)
        consumer = reader._consumer
        assert consumer is not None
        _, member = membership(consumer)
        admin = await self._admin()
        try:
            coordinator = await admin.find_coordinator(group)
            await admin._send_request_to_node(coordinator, LeaveGroupRequest(group, member))
        finally:
            await admin.close()

    async def _admin(self) -> AIOKafkaAdminClient:
        admin = AIOKafkaAdminClient(bootstrap_servers=self.settings.servers)
        await admin.start()
        return admin


Poll = Callable[..., Awaitable[list[KafkaRecord]]]


async def read_until(
    readers: Sequence[GroupReader], count: int, *, timeout_s: float = 30
) -> list[KafkaRecord]:
    """Polls the readers in turn until they gave `count` different records."""
    found: list[KafkaRecord] = []

    async def enough() -> bool:
        for reader in readers:
            found.extend(await reader.poll(records_max=100, timeout_ms=20))
        return len({(record.partition, record.offset) for record in found}) >= count

    await until(enough, timeout_s=timeout_s, what=f"{count} records")
    return found


async def settle(
    readers: Sequence[GroupReader], partitions: int, *, timeout_s: float = 30
) -> list[KafkaRecord]:
    """Polls until the readers hold all partitions, each one once; gives what they read."""
    found: list[KafkaRecord] = []

    async def settled() -> bool:
        for reader in readers:
            found.extend(await reader.poll(records_max=100, timeout_ms=20))
        held = [p for reader in readers for p in sorted(reader.assignment.partitions)]
        return sorted(held) == list(range(partitions)) and all(
            reader.assignment.partitions for reader in readers
        )

    await until(settled, timeout_s=timeout_s, what="one reader for each partition")
    return found
