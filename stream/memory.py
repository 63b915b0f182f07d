"""The transport over a MemoryBroker: for unit tests, the simulator and replay.

Keeps the contract of `stream.transport`, on the primitives of the running loop alone: no threads,
no clock but the loop's, no chance but the broker's seed. Every operation gives way at least once,
so that a task reading from memory does not hold the loop.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from schemas.partition import partition_of
from stream.memory_broker import MemoryBroker, MemoryFaults
from stream.transport import (
    Assignment,
    BrokerAway,
    Headers,
    KafkaRecord,
    OffsetOutOfLog,
    SendRefused,
    SendUnknown,
    Sent,
    TopicFound,
    TopicSpec,
    UnknownTopic,
)

__all__ = [
    "MemoryBroker",
    "MemoryFaults",
    "MemoryGroupReader",
    "MemoryProducer",
    "MemoryRangeReader",
    "MemoryTailReader",
    "MemoryTransport",
]

_RECORD_BYTES_MAX = 1_048_576


class MemoryTransport:
    """One simulated process's connection.

    A process that dies does not close it: the world expels its `group_readers` from their groups
    when their sessions would have timed out.
    """

    def __init__(self, broker: MemoryBroker) -> None:
        self.broker = broker
        self.group_readers: list[MemoryGroupReader] = []

    async def producer(self) -> "MemoryProducer":
        await _ask(self.broker)
        return MemoryProducer(self.broker)

    async def group_reader(self, group: str, topic: str) -> "MemoryGroupReader":
        await _ask(self.broker)
        reader = MemoryGroupReader(self.broker, group, topic)
        self.group_readers.append(reader)
        return reader

    async def range_reader(self, topic: str) -> "MemoryRangeReader":
        await _ask(self.broker)
        return MemoryRangeReader(self.broker, topic)

    async def tail(self, topic: str, positions: Mapping[int, int] | None) -> "MemoryTailReader":
        await _ask(self.broker)
        return MemoryTailReader(self.broker, topic, positions or {})

    async def partition_count(self, topic: str) -> int:
        await _ask(self.broker)
        return self.broker.partition_count(topic)

    async def ensure_topics(self, specs: Sequence[TopicSpec]) -> tuple[TopicFound, ...]:
        await _ask(self.broker)
        return tuple(self.broker.make_topic(spec) for spec in specs)

    async def close(self) -> None:
        for reader in self.group_readers:
            await reader.close()
        self.group_readers.clear()


class MemoryProducer:
    """Its sends reach the log in the order they were made, whatever their latency."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker
        self._free_at_s = 0.0
        self._on_the_way: deque[Callable[[], None]] = deque()
        self._keyless = 0
        self._closed = False

    async def send_all(self, topic: str, records: Sequence[tuple[bytes, bytes]]) -> int:
        """See `Producer.send_all`; every record has its own fate here."""
        sends = (self._send_one(topic, key, value) for key, value in records)
        return sum(await asyncio.gather(*sends))

    async def _send_one(self, topic: str, key: bytes, value: bytes) -> bool:
        try:
            await self.send(topic, key=key, value=value)
        except (SendRefused, SendUnknown, BrokerAway):
            return False
        return True

    async def send(
        self,
        topic: str,
        *,
        key: bytes | None,
        value: bytes,
        headers: Headers = (),
        partition: int | None = None,
    ) -> Sent:
        if self._closed:
            raise SendRefused("the producer is closed")
        broker, faults = self._broker, self._broker.faults
        if broker.away:
            await asyncio.sleep(faults.away_ms / 1000)
            raise BrokerAway("the broker is away")
        try:
            at = self._partition(topic, key, partition)
            broker.log(topic, at)
        except UnknownTopic as error:
            raise SendRefused(str(error)) from error
        if len(value) > _RECORD_BYTES_MAX:
            raise SendRefused(f"{len(value)} bytes, the broker takes {_RECORD_BYTES_MAX}")
        fault = broker.draw(
            (
                ("refused", faults.send_refused),
                ("applied", faults.send_unknown_applied),
                ("lost", faults.send_unknown_lost),
                ("late", faults.send_unknown_late),
            )
        )
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Sent] = loop.create_future()

        def apply() -> None:
            if fault == "refused":
                _fail(answer, SendRefused("refused on demand"))
            elif fault == "lost" or broker.away:
                _fail(answer, SendUnknown("no answer in time"))
            elif fault == "late":
                late_s = broker.random.uniform(0, faults.late_ms_max) / 1000
                broker.later(late_s, lambda: _append(broker, topic, at, key, value, headers))
                _fail(answer, SendUnknown("no answer in time"))
            else:
                sent = Sent(at, broker.append(topic, at, key, value, headers))
                if fault == "applied":
                    _fail(answer, SendUnknown("no answer in time"))
                elif not answer.done():
                    answer.set_result(sent)

        # Due at the same moment, timers run in any order: each takes the oldest send, not its own.
        self._on_the_way.append(apply)
        now_s = loop.time()
        self._free_at_s = max(self._free_at_s, now_s + broker.latency_s())
        broker.later(self._free_at_s - now_s, lambda: self._on_the_way.popleft()())
        return await answer

    async def close(self) -> None:
        self._closed = True

    def _partition(self, topic: str, key: bytes | None, partition: int | None) -> int:
        if partition is not None:
            return partition
        count = self._broker.partition_count(topic)
        if key is not None:
            return partition_of(key, count)
        self._keyless += 1
        return self._keyless % count


class MemoryGroupReader:
    """A member of a group. It is its own name there: `broker.expel(group, reader)`."""

    def __init__(self, broker: MemoryBroker, group: str, topic: str) -> None:
        self.group = group
        self.topic = topic
        self._broker = broker
        self._state = broker.join(group, topic, self)
        self._generation = -1
        self._assignment = Assignment(0, frozenset())
        self._positions: dict[int, int] = {}
        self._turn = 0
        self._closed = False

    @property
    def assignment(self) -> Assignment:
        return self._assignment

    @property
    def is_member(self) -> bool:
        """Whether the group counts it: false for a zombie."""
        return self in self._state.shares

    async def poll(self, *, records_max: int, timeout_ms: int) -> list[KafkaRecord]:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + timeout_ms / 1000
        await _ask(self._broker)
        while not self._closed:
            self._adopt()
            self._fetch_again()
            self._turn += 1
            found = _take(
                self._broker,
                self.topic,
                self._positions,
                _rotated(sorted(self._assignment.partitions), self._turn),
                records_max,
            )
            left_s = until_s - loop.time()
            if found or left_s <= 0:
                return found
            waiters = self._broker.changed[self.topic]
            await waiters.wait(left_s, self._assignment.partitions)
            if self._broker.away:
                raise BrokerAway("the broker is away")
        return []

    async def commit(self, offsets: Mapping[int, int], token: int) -> bool:
        await _ask(self._broker)
        believed = self._assignment
        current = self._generation == self._state.generation and self.is_member
        if token != believed.token or not current or not offsets.keys() <= believed.partitions:
            return False
        committed = self._state.committed
        for partition, offset in offsets.items():
            committed[partition] = max(offset, committed.get(partition, offset))
        return True

    def seek(self, partition: int, offset: int) -> None:
        if partition in self._assignment.partitions:
            self._positions[partition] = offset

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._assignment = Assignment(self._assignment.token + 1, frozenset())
            self._broker.leave(self.group, self)
            self._broker.changed[self.topic].wake()

    def _adopt(self) -> None:
        """Takes over the group's current generation, unless it was expelled."""
        state = self._state
        if self._generation == state.generation or not self.is_member:
            return
        self._generation = state.generation
        self._assignment = Assignment(self._assignment.token + 1, state.shares[self])
        self._positions = {
            partition: state.committed.get(partition, self._broker.log(self.topic, partition).start)
            for partition in self._assignment.partitions
        }

    def _fetch_again(self) -> None:
        faults, random = self._broker.faults, self._broker.random
        if self._positions and self._broker.happens(faults.fetch_again):
            partition = random.choice(sorted(self._positions))
            start = self._broker.log(self.topic, partition).start
            back = random.randint(1, faults.fetch_again_records_max)
            if self._positions[partition] > start:
                self._positions[partition] = max(start, self._positions[partition] - back)


class MemoryRangeReader:
    """Reads straight from the log; keeps no position."""

    def __init__(self, broker: MemoryBroker, topic: str) -> None:
        self._broker = broker
        self._topic = topic
        self._closed = False
        broker.partition_count(topic)

    async def log_range(self, partition: int) -> tuple[int, int]:
        await _ask(self._broker)
        log = self._broker.log(self._topic, partition)
        return log.start, log.end

    async def offset_at(self, partition: int, timestamp_ms: int) -> int:
        await _ask(self._broker)
        log = self._broker.log(self._topic, partition)
        found = (one.offset for one in log.records if one.timestamp >= timestamp_ms)
        return next(found, log.end)

    async def read(
        self, partition: int, from_offset: int, *, records_max: int, timeout_ms: int
    ) -> list[KafkaRecord]:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + timeout_ms / 1000
        await _ask(self._broker)
        log = self._broker.log(self._topic, partition)
        while not self._closed:
            if not log.start <= from_offset <= log.end:
                raise OffsetOutOfLog(partition, from_offset, log.start, log.end)
            found = log.read(from_offset, records_max)
            left_s = until_s - loop.time()
            if found or left_s <= 0:
                return found
            await self._broker.changed[self._topic].wait(left_s, (partition,))
            if self._broker.away:
                raise BrokerAway("the broker is away")
        return []

    async def close(self) -> None:
        self._closed = True


class MemoryTailReader:
    """Follows every partition that the topic had when it was made."""

    def __init__(self, broker: MemoryBroker, topic: str, positions: Mapping[int, int]) -> None:
        self._broker = broker
        self._topic = topic
        self._turn = 0
        self._closed = False
        self._positions = {
            partition: positions.get(partition, broker.log(topic, partition).end)
            for partition in range(broker.partition_count(topic))
        }

    @property
    def positions(self) -> Mapping[int, int]:
        return dict(self._positions)

    async def poll(self, *, records_max: int, timeout_ms: int) -> list[KafkaRecord]:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + timeout_ms / 1000
        await _ask(self._broker)
        while not self._closed:
            for partition, position in self._positions.items():
                log = self._broker.log(self._topic, partition)
                if not log.start <= position <= log.end:
                    self._positions[partition] = log.start
            self._turn += 1
            found = _take(
                self._broker,
                self._topic,
                self._positions,
                _rotated(sorted(self._positions), self._turn),
                records_max,
            )
            left_s = until_s - loop.time()
            if found or left_s <= 0:
                return found
            await self._broker.changed[self._topic].wait(left_s, self._positions)
            if self._broker.away:
                raise BrokerAway("the broker is away")
        return []

    async def close(self) -> None:
        self._closed = True


async def _ask(broker: MemoryBroker) -> None:
    """One way to the broker and back."""
    if broker.away:
        await asyncio.sleep(broker.faults.away_ms / 1000)
        raise BrokerAway("the broker is away")
    await asyncio.sleep(broker.latency_s())


def _take(
    broker: MemoryBroker,
    topic: str,
    positions: dict[int, int],
    partitions: Sequence[int],
    records_max: int,
) -> list[KafkaRecord]:
    """Up to `records_max` records, moving `positions`. Another partition's records come first:
    a position outside the log is raised only when there is nothing else to give."""
    found: list[KafkaRecord] = []
    outside: OffsetOutOfLog | None = None
    for partition in partitions:
        log, position = broker.log(topic, partition), positions[partition]
        if not log.start <= position <= log.end:
            outside = OffsetOutOfLog(partition, position, log.start, log.end)
            continue
        if position == log.end:
            continue
        records = log.read(position, records_max - len(found))
        if records:
            found += records
            positions[partition] = records[-1].offset + 1
            if len(found) >= records_max:
                return found
    if outside is not None and not found:
        raise outside
    return found


def _rotated(partitions: Sequence[int], turn: int) -> Sequence[int]:
    """So that a busy partition does not starve the others."""
    at = turn % len(partitions) if partitions else 0
    return (*partitions[at:], *partitions[:at])


def _append(
    broker: MemoryBroker,
    topic: str,
    partition: int,
    key: bytes | None,
    value: bytes,
    headers: Headers,
) -> None:
    if not broker.away:
        broker.append(topic, partition, key, value, headers)


def _fail(answer: asyncio.Future[Sent], error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)
