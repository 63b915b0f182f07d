"""Partitions read side by side and joined in the order of their timestamps.

Within a partition the log's order stands, so a record whose timestamp lies before that of the one
before it counts as of that one's time. Only what is captured counts: what is left out does not
change the order of the rest, and so a capture that goes on after a break is the same as one that
had none.
"""

import asyncio
import heapq
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import structlog

from dhsched.offline.entries import Entry
from stream.transport import BrokerAway, KafkaRecord, OffsetOutOfLog, RangeReader

_log = structlog.get_logger(__name__)

RECORDS_PER_READ: Final = 500
READ_MS: Final = 2_000
# A broker that answers and has nothing below the log's end: offsets without records end it.
SILENT_READS_MAX: Final = 3
AWAY_ATTEMPTS_MAX: Final = 5
AWAY_WAIT_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Lost:
    """Retention deleted offsets [first, end) before they were read."""

    topic: str
    partition: int
    first: int
    end: int


class Lane:
    """One partition of one topic from `position` up to `end`.

    `accept` makes an entry of a record, or None of one that is left out. `stamp_ms`: the latest
    timestamp so far; `rank` decides between lanes at the same time. `lost` is told of deletions.
    """

    def __init__(
        self,
        reader: RangeReader,
        topic: str,
        partition: int,
        span: tuple[int, int],
        accept: Callable[[KafkaRecord], Entry | None],
        lost: Callable[[Lost], None],
        *,
        rank: int = 0,
        stamp_ms: int = 0,
    ) -> None:
        self.position, self.end = span
        self.rank, self.partition = rank, partition
        self._reader = reader
        self._topic = topic
        self._accept = accept
        self._lost = lost
        self._stamp_ms = stamp_ms
        self._ready: deque[Entry] = deque()
        self._next_read: asyncio.Task[list[KafkaRecord]] | None = None
        self._silent = 0

    async def fill(self) -> bool:
        """Wait until an entry is ready; False when there is no further one. Raises BrokerAway."""
        while not self._ready:
            if self.position >= self.end:
                await self.close()
                return False
            records = await self._take()
            if not records and await self._is_end():
                self.position = self.end
            for record in records:
                if record.offset >= self.end:
                    self.position = self.end
                    break
                self.position = record.offset + 1
                entry = self._accept(record)
                if entry is not None:
                    self._ready.append(entry)
        return True

    @property
    def due(self) -> tuple[int, int, int]:
        """When the ready entry has its turn among the lanes."""
        stamp_ms = max(self._stamp_ms, self._ready[0].timestamp_ms)
        return stamp_ms, self.rank, self.partition

    def take(self) -> Entry:
        """The ready entry."""
        entry = self._ready.popleft()
        self._stamp_ms = max(self._stamp_ms, entry.timestamp_ms)
        return entry

    @property
    def has_ready(self) -> bool:
        return bool(self._ready)

    async def close(self) -> None:
        task, self._next_read = self._next_read, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError, BrokerAway, OffsetOutOfLog):
                await task

    async def _take(self) -> list[KafkaRecord]:
        """What was read ahead; the next batch is asked for at once."""
        task = self._next_read or self._ask(self.position)
        self._next_read = task
        records = await task
        self._next_read = None
        if records and records[-1].offset + 1 < self.end:
            self._next_read = self._ask(records[-1].offset + 1)
        return records

    def _ask(self, position: int) -> asyncio.Task[list[KafkaRecord]]:
        return asyncio.create_task(self._read(position))

    async def _read(self, position: int) -> list[KafkaRecord]:
        attempt = 0
        while True:
            try:
                return await self._reader.read(
                    self.partition, position, records_max=RECORDS_PER_READ, timeout_ms=READ_MS
                )
            except OffsetOutOfLog as error:
                if not position < error.log_start:
                    raise
                end = min(self.end, error.log_start)
                self._lost(Lost(self._topic, self.partition, position, end))
                # Read ahead, but all before it was handed over: this is where the lane is.
                self.position = position = error.log_start
                if position >= self.end:
                    return []
            except BrokerAway as error:
                attempt += 1
                if attempt == AWAY_ATTEMPTS_MAX:
                    raise
                _log.warning("capture_broker_away", topic=self._topic, error=str(error))
                await asyncio.sleep(AWAY_WAIT_S)

    async def _is_end(self) -> bool:
        """Whether nothing lies between `position` and `end`, after reads that brought nothing."""
        self._silent += 1
        if self._silent < SILENT_READS_MAX:
            return False
        _, log_end = await self._reader.log_range(self.partition)
        self._silent = 0
        return log_end >= self.end


async def merged(lanes: Sequence[Lane]) -> AsyncGenerator[Entry]:
    """The entries of all lanes. Raises BrokerAway; OffsetOutOfLog for a log that was cut short."""
    try:
        filled = await asyncio.gather(*(lane.fill() for lane in lanes))
        heap = [
            (lane.due, number)
            for number, (lane, ready) in enumerate(zip(lanes, filled, strict=True))
            if ready
        ]
        heapq.heapify(heap)
        while heap:
            _, number = heap[0]
            lane = lanes[number]
            yield lane.take()
            if lane.has_ready or await lane.fill():
                heapq.heapreplace(heap, (lane.due, number))
            else:
                heapq.heappop(heap)
    finally:
        for lane in lanes:
            await lane.close()
