"""Where logs begin and end, asked on a connection of its own.

A broker answers the requests of one connection in order, so a question that shared one with a
waiting fetch would be answered only when that fetch is.
"""

import asyncio
from collections.abc import Awaitable, Iterable
from typing import TypeVar

from aiokafka import AIOKafkaConsumer, TopicPartition

from stream.aiokafka_border import ask, reading_options, start_consumer, stop_consumer
from stream.last_batch import LastBatches
from stream.settings import KafkaSettings

T = TypeVar("T")


class LogRanges:
    """Shared by all readers of a transport."""

    def __init__(self, settings: KafkaSettings) -> None:
        self.settings = settings
        """May be replaced once the cluster is known."""
        self._consumer: AIOKafkaConsumer | None = None
        self._last_batches: LastBatches | None = None
        self._making = asyncio.Lock()

    async def range(self, topic: str, partition: int) -> tuple[int, int]:
        """(log start, log end). The partition must exist. Raises BrokerAway."""
        consumer = await self._open()
        tp = TopicPartition(topic, partition)
        starts, ends = await asyncio.gather(
            self._ask(consumer.beginning_offsets([tp])), self._ask(consumer.end_offsets([tp]))
        )
        return starts[tp], await self._true_end(tp, starts[tp], ends[tp])

    async def at_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        """The first offset with this timestamp or a later one; None: no record has one."""
        consumer = await self._open()
        tp = TopicPartition(topic, partition)
        question = consumer.offsets_for_times({tp: max(0, timestamp_ms)})
        found = (await self._ask(question))[tp]
        return None if found is None else found.offset

    async def ends(self, topic: str, partitions: Iterable[int]) -> dict[int, int]:
        """The log ends of partitions that must exist. Raises BrokerAway."""
        consumer = await self._open()
        tps = [TopicPartition(topic, partition) for partition in partitions]
        ends = await self._ask(consumer.end_offsets(tps))
        return {tp.partition: await self._true_end(tp, 0, end) for tp, end in ends.items()}

    async def close(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await stop_consumer(consumer)
        batches, self._last_batches = self._last_batches, None
        if batches is not None:
            await batches.close()

    async def _true_end(self, tp: TopicPartition, log_start: int, said_end: int) -> int:
        if not self.settings.names_last_batch:
            return said_end
        if self._last_batches is None:
            self._last_batches = LastBatches(self.settings)
        return await self._last_batches.end(tp, log_start, said_end)

    async def _ask(self, question: Awaitable[T]) -> T:
        return await ask("asking for offsets", self.settings.request_timeout_ms / 1000, question)

    async def _open(self) -> AIOKafkaConsumer:
        async with self._making:
            if self._consumer is None:
                self._consumer = await start_consumer(
                    AIOKafkaConsumer(**reading_options(self.settings)), self.settings
                )
            return self._consumer
