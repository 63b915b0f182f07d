"""Where a log really ends at a broker that names its last batch instead.

The embedded broker answers the question for a log's end with the offset after the *first* record of
its last batch. Reading that batch tells where it ends.
"""

import asyncio

from aiokafka import AIOKafkaConsumer, TopicPartition

from stream.aiokafka_border import ask, reading_options, start_consumer, stop_consumer
from stream.settings import KafkaSettings

_ANSWER_S = 1.0


class LastBatches:
    """Reads last batches, one question after the other, on a consumer of its own."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._consumer: AIOKafkaConsumer | None = None
        self._asking = asyncio.Lock()

    async def end(self, tp: TopicPartition, log_start: int, said_end: int) -> int:
        """The offset after the last record, when the broker said `said_end`. Raises BrokerAway."""
        if said_end <= log_start:
            return said_end
        async with self._asking:
            consumer = await self._open()
            consumer.assign([tp])
            consumer.seek(tp, said_end - 1)
            found = await ask(
                "reading the last batch",
                self._settings.request_timeout_ms / 1000,
                consumer.getmany(tp, timeout_ms=round(_ANSWER_S * 1000)),
            )
        records = found.get(tp, [])
        return records[-1].offset + 1 if records else said_end

    async def close(self) -> None:
        """Let the connection go."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await stop_consumer(consumer)

    async def _open(self) -> AIOKafkaConsumer:
        if self._consumer is None:
            self._consumer = await start_consumer(
                AIOKafkaConsumer(**reading_options(self._settings)), self._settings
            )
        return self._consumer
