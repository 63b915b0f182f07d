"""Readers without a group over aiokafka: any offset of any partition, and the tail of a topic."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain

import structlog
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka import errors as kafka_errors

from stream.aiokafka_border import (
    position_of,
    reading_options,
    start_consumer,
    stop_consumer,
)
from stream.log_ranges import LogRanges
from stream.settings import KafkaSettings
from stream.transport import BrokerAway, KafkaRecord, OffsetOutOfLog, UnknownTopic
from stream.watchdog import Watchdog

_log = structlog.get_logger(__name__)

_GRACE_S = 0.1
_LOOK_RECORDS = 500
_LOOK_MS = 2_000


@dataclass(slots=True)
class _Lane:
    """The consumer of one partition. `next_offset` -1: the consumer's position is not known."""

    watchdog: Watchdog
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)
    consumer: AIOKafkaConsumer | None = None
    next_offset: int = -1


class AiokafkaRangeReader:
    """A consumer per partition: a fetch that waits at one log's end holds up no other."""

    def __init__(
        self, settings: KafkaSettings, topic: str, partition_count: int, ranges: LogRanges
    ) -> None:
        self._settings = settings
        self._topic = topic
        self._partition_count = partition_count
        self._ranges = ranges
        self._lanes: dict[int, _Lane] = {}
        self.closed = False

    async def log_range(self, partition: int) -> tuple[int, int]:
        self._check(partition)
        return await self._ranges.range(self._topic, partition)

    async def offset_at(self, partition: int, timestamp_ms: int) -> int:
        self._check(partition)
        if self._ranges.settings.names_last_batch:
            return await self._look_for(partition, timestamp_ms)
        found = await self._ranges.at_time(self._topic, partition, timestamp_ms)
        return (await self.log_range(partition))[1] if found is None else found

    async def _look_for(self, partition: int, timestamp_ms: int) -> int:
        """The embedded broker knows when it got a batch, and not what timestamps stand in it."""
        at, end = await self.log_range(partition)
        while at < end:
            found = await self.read(partition, at, records_max=_LOOK_RECORDS, timeout_ms=_LOOK_MS)
            for record in found:
                if record.timestamp >= timestamp_ms:
                    return record.offset
            at = found[-1].offset + 1 if found else at
        return end

    async def read(
        self, partition: int, from_offset: int, *, records_max: int, timeout_ms: int
    ) -> list[KafkaRecord]:
        self._check(partition)
        lane = self._lanes.get(partition)
        if lane is None:
            lane = self._lanes[partition] = _Lane(Watchdog(self._settings, self._ranges))
        async with lane.reading:
            if self.closed:
                return []
            consumer = await self._open(lane, partition)
            tp = TopicPartition(self._topic, partition)
            if lane.next_offset != from_offset:
                log_start, log_end = await self._ranges.range(self._topic, partition)
                if not log_start <= from_offset <= log_end:
                    raise OffsetOutOfLog(partition, from_offset, log_start, log_end)
                consumer.seek(tp, from_offset)
                lane.next_offset = from_offset
            found = await self._fetch(lane, consumer, tp, records_max, timeout_ms)
            if found:
                lane.next_offset = found[-1].offset + 1
            await self._watch(lane, consumer, tp)
            return found

    async def close(self) -> None:
        self.closed = True
        lanes, self._lanes = self._lanes, {}
        await asyncio.gather(*(self._close(lane) for lane in lanes.values()))

    def _check(self, partition: int) -> None:
        if not 0 <= partition < self._partition_count:
            raise UnknownTopic(
                f"{self._topic} has {self._partition_count} partitions, there is no {partition}"
            )

    async def _open(self, lane: _Lane, partition: int) -> AIOKafkaConsumer:
        if lane.consumer is None:
            consumer = AIOKafkaConsumer(**reading_options(self._settings))
            await start_consumer(consumer, self._settings)
            consumer.assign([TopicPartition(self._topic, partition)])
            lane.watchdog.start_over()
            lane.consumer, lane.next_offset = consumer, -1
        return lane.consumer

    async def _fetch(
        self,
        lane: _Lane,
        consumer: AIOKafkaConsumer,
        tp: TopicPartition,
        records_max: int,
        timeout_ms: int,
    ) -> list[KafkaRecord]:
        position = lane.next_offset
        # Unless records come back in the usual way, nobody knows how far the consumer went.
        lane.next_offset = -1
        try:
            async with asyncio.timeout(timeout_ms / 1000 + _GRACE_S):
                found = await consumer.getmany(tp, timeout_ms=timeout_ms, max_records=records_max)
        except TimeoutError:
            return []
        except kafka_errors.OffsetOutOfRangeError as error:
            log_start, log_end = await self._ranges.range(self._topic, tp.partition)
            raise OffsetOutOfLog(tp.partition, position, log_start, log_end) from error
        except kafka_errors.KafkaError as error:
            await self._drop(lane)
            raise BrokerAway(f"reading {self._topic}: {error!r}") from error
        lane.next_offset = position
        return [*found.get(tp, ())]

    async def _watch(self, lane: _Lane, consumer: AIOKafkaConsumer, tp: TopicPartition) -> None:
        stalled = lane.watchdog.look(self._topic, {tp.partition: position_of(consumer, tp)})
        if stalled is not None:
            _log.warning("kafka_range_reader_made_anew", topic=self._topic, why=stalled)
            await self._drop(lane)

    async def _drop(self, lane: _Lane) -> None:
        consumer, lane.consumer = lane.consumer, None
        if consumer is not None:
            await stop_consumer(consumer)

    async def _close(self, lane: _Lane) -> None:
        await lane.watchdog.close()
        await self._drop(lane)


class AiokafkaTailReader:
    """One consumer over all partitions; a position that the log left behind goes to its start."""

    def __init__(
        self,
        settings: KafkaSettings,
        topic: str,
        positions: Mapping[int, int],
        ranges: LogRanges,
    ) -> None:
        self._settings = settings
        self._topic = topic
        self._positions = dict(positions)
        self._ranges = ranges
        self._watchdog = Watchdog(settings, ranges)
        self._consumer: AIOKafkaConsumer | None = None
        self.closed = False

    @property
    def positions(self) -> Mapping[int, int]:
        return dict(self._positions)

    async def open(self) -> AIOKafkaConsumer:
        """Raises BrokerAway."""
        if self._consumer is None:
            consumer = AIOKafkaConsumer(**reading_options(self._settings))
            await start_consumer(consumer, self._settings)
            tps = [TopicPartition(self._topic, partition) for partition in self._positions]
            consumer.assign(tps)
            for tp in tps:
                consumer.seek(tp, self._positions[tp.partition])
            self._watchdog.start_over()
            self._consumer = consumer
        return self._consumer

    async def poll(self, *, records_max: int, timeout_ms: int) -> list[KafkaRecord]:
        if self.closed:
            return []
        consumer = await self.open()
        try:
            async with asyncio.timeout(timeout_ms / 1000 + _GRACE_S):
                found = await consumer.getmany(timeout_ms=timeout_ms, max_records=records_max)
        except TimeoutError:
            found = {}
        except kafka_errors.OffsetOutOfRangeError as error:
            for tp in error.args[0]:
                log_start, _ = await self._ranges.range(self._topic, tp.partition)
                self._positions[tp.partition] = log_start
                consumer.seek(tp, log_start)
            return []
        except kafka_errors.KafkaError as error:
            await self._drop()
            raise BrokerAway(f"following {self._topic}: {error!r}") from error
        records: list[KafkaRecord] = [*chain.from_iterable(found.values())]
        for record in records:
            self._positions[record.partition] = record.offset + 1
        stalled = self._watchdog.look(
            self._topic,
            {p: position_of(consumer, TopicPartition(self._topic, p)) for p in self._positions},
        )
        if stalled is not None:
            _log.warning("kafka_tail_reader_made_anew", topic=self._topic, why=stalled)
            await self._drop()
        return records

    async def close(self) -> None:
        self.closed = True
        await self._watchdog.close()
        await self._drop()

    async def _drop(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await stop_consumer(consumer)
