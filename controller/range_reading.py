"""Reading of partitions without custody: those of foreign lives, and ranges that are read again.

One `RangeReader` serves all partitions. A partition has at most one task that follows it (its main
reading, while lives of it are owned here and the group gave it to somebody else) and at most one
that reads again for lives that are behind.
"""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

import structlog

from controller.counters import Counters
from controller.limits import ReadingLimits
from controller.partition_feed import PartitionFeed, Source
from controller.tasks import Tasks
from stream.transport import BrokerAway, KafkaRecord, OffsetOutOfLog, RangeReader

_log = structlog.get_logger(__name__)


class RangeReading:
    """Starts and ends the tasks as feeds need them. `finished_below` reads a watermark."""

    def __init__(
        self,
        reader: RangeReader,
        tasks: Tasks,
        limits: ReadingLimits,
        rng: Random,
        counters: Counters,
        finished_below: Callable[[int], Awaitable[int]],
    ) -> None:
        self._reader = reader
        self._tasks = tasks
        self._limits = limits
        self._rng = rng
        self._counters = counters
        self._finished_below = finished_below
        self._following: dict[int, asyncio.Task[None]] = {}
        self._rereading: dict[int, asyncio.Task[None]] = {}
        self._ahead: set[int] = set()

    # -- the main reading of a partition that is in nobody's or another's custody

    def follow(self, feed: PartitionFeed) -> None:
        """Read it from `feed.position` on, as long as it is our own reading."""
        if feed.partition not in self._following:
            name = f"follow {feed.partition}"
            self._following[feed.partition] = self._tasks.spawn(self._follow(feed), name)

    async def _follow(self, feed: PartitionFeed) -> None:
        try:
            while feed.source is Source.OWN and feed.routes:
                records = await self._read(feed, feed.position, self._limits.wait_ms)
                if records and feed.source is Source.OWN:
                    self._counters.records_foreign += len(records)
                    feed.route(records)
                self.read_again(feed)
        finally:
            self._following.pop(feed.partition, None)
        if feed.source is Source.OWN and not feed.routes:
            feed.restart(Source.NOBODY, -1)

    # -- reading again

    def read_again(self, feed: PartitionFeed) -> None:
        """Begin to read again, if some live of this partition needs it."""
        if feed.partition in self._rereading or feed.read_again_from() is None:
            return
        name = f"read again {feed.partition}"
        self._rereading[feed.partition] = self._tasks.spawn(self._read_again(feed), name)

    async def _read_again(self, feed: PartitionFeed) -> None:
        try:
            while (at := feed.read_again_from()) is not None:
                records = await self._read(feed, at, self._limits.wait_ms)
                if records is None:
                    continue
                if records:
                    feed.route_again(at, records[-1].offset + 1, records)
                    # A long range must not keep the loop from what is due meanwhile.
                    await asyncio.sleep(0)
                else:
                    await self._nothing_there(feed, at)
        finally:
            self._rereading.pop(feed.partition, None)

    async def _nothing_there(self, feed: PartitionFeed, at: int) -> None:
        """No record at or after `at` came in time. At the log's end that is an answer."""
        try:
            _, log_end = await self._reader.log_range(feed.partition)
        except BrokerAway:
            await self._back_off()
            return
        if log_end <= at:
            feed.route_again(at, at, ())
            if feed.read_again_from() == at:
                # Nobody does the main reading yet: wait for it without asking in circles.
                await asyncio.sleep(self._limits.back_off_ms_min / 1000)

    async def _read(self, feed: PartitionFeed, at: int, wait_ms: int) -> list[KafkaRecord] | None:
        """Records at and after `at`; None when the place or the broker changed: look again."""
        try:
            return await self._reader.read(
                feed.partition, at, records_max=self._limits.records_max, timeout_ms=wait_ms
            )
        except BrokerAway:
            await self._back_off()
        except OffsetOutOfLog as error:
            if at < error.log_start:
                finished = await self._finished_below(feed.partition)
                feed.truncated(error.log_start, finished)
            else:
                # Ahead of the log's end: a broker that lags behind, or lost what it had.
                if feed.partition not in self._ahead:
                    self._ahead.add(feed.partition)
                    _log.warning("ahead_of_log", partition=feed.partition, offset=at)
                await self._back_off()
        return None

    async def _back_off(self) -> None:
        low, high = self._limits.back_off_ms_min, self._limits.back_off_ms_max
        await asyncio.sleep(self._rng.uniform(low, high) / 1000)
