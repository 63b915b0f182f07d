"""Custody: this worker's share of the consumer group, and what goes with it.

Custody is soft. It says who looks after records of lives that nobody here owns, and who commits
the group's offset for `kafka-consumer-groups` to show. It is never authority: records of owned
lives are released by the generation alone, wherever they were read.

After every change of the assignment each partition begins again where the store says, not where the
group says: an expelled member may have committed anything. The watermark goes up when everything
below it is finished; then the group's offset follows.
"""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import groupby
from operator import attrgetter
from random import Random

import structlog

from controller.counters import Counters
from controller.limits import ReadingLimits
from controller.partition_feed import PartitionFeed, Source
from controller.store_calls import StoreCalls
from controller.tasks import Tasks
from controller.unowned import Unowned, UnownedBook
from ownership.custody import pending_disposals, raise_past_deleted, raise_watermark
from ownership.kv import Database
from stream.transport import BrokerAway, GroupReader, KafkaRecord, OffsetOutOfLog

_log = structlog.get_logger(__name__)
_partition_of: Callable[[KafkaRecord], int] = attrgetter("partition")


class Custody:
    """Polls the group, starts and ends partitions, raises watermarks."""

    def __init__(
        self,
        reader: GroupReader,
        db: Database,
        calls: StoreCalls,
        unowned: Unowned,
        tasks: Tasks,
        limits: ReadingLimits,
        rng: Random,
        counters: Counters,
        feed_of: Callable[[int], PartitionFeed],
        lost: Callable[[PartitionFeed], None],
        moved: Callable[[PartitionFeed], None],
        finished_below: Callable[[int], Awaitable[int]],
    ) -> None:
        self._reader = reader
        self._db = db
        self._calls = calls
        self._unowned = unowned
        self._tasks = tasks
        self._limits = limits
        self._rng = rng
        self._counters = counters
        self._feed_of = feed_of
        self._lost = lost
        self._moved = moved
        self._finished_below = finished_below
        self._token = 0
        self._held: frozenset[int] = frozenset()
        self._working: set[int] = set()
        self._ahead: set[int] = set()
        self.books: dict[int, UnownedBook] = {}
        """By partition in custody, once it is known where it begins."""
        self.marks: dict[int, int] = {}
        """The watermark as this worker last saw or raised it."""

    @property
    def partitions(self) -> tuple[int, ...]:
        """Those in custody."""
        return tuple(sorted(self._reader.assignment.partitions))

    # -- the poll

    async def run(self) -> None:
        """Polls until cancelled."""
        limits = self._limits
        while True:
            try:
                found = await self._reader.poll(
                    records_max=limits.records_max, timeout_ms=limits.poll_ms
                )
            except BrokerAway:
                await self._back_off()
                continue
            except OffsetOutOfLog as error:
                found = error
            if self._reader.assignment.token != self._token:
                # What this poll brought may begin anywhere: it is read again from the right place.
                self._rebalanced()
                continue
            if isinstance(found, OffsetOutOfLog):
                await self._truncated(found)
                continue
            self.take(found)
            await self._wait_for_room()

    def take(self, records: list[KafkaRecord]) -> None:
        """Route what a poll brought, partition by partition."""
        self._counters.records_read += len(records)
        for partition, together in groupby(records, _partition_of):
            self._take_partition(partition, list(together))

    def _take_partition(self, partition: int, records: list[KafkaRecord]) -> None:
        book = self.books.get(partition)
        feed = self._feed_of(partition)
        if book is None or feed.source is not Source.CUSTODY:
            return
        left = book.take(records, feed.route)
        feed.position = max(feed.position, records[-1].offset + 1)
        if left:
            self._work(book)
        self._moved(feed)

    def _work(self, book: UnownedBook) -> None:
        if book.partition not in self._working:
            self._working.add(book.partition)
            self._tasks.spawn(self._work_on(book), f"unowned {book.partition}")

    async def _work_on(self, book: UnownedBook) -> None:
        try:
            await self._unowned.work(book)
        finally:
            self._working.discard(book.partition)
        if book.waiting and self.books.get(book.partition) is book:
            self._work(book)

    async def _wait_for_room(self) -> None:
        """The one place that pauses the main reading: too much waits to be dead-lettered."""
        while sum(len(book.waiting) for book in self.books.values()) > self._limits.unowned_max:
            await self._back_off()

    async def _back_off(self) -> None:
        low, high = self._limits.back_off_ms_min, self._limits.back_off_ms_max
        await asyncio.sleep(self._rng.uniform(low, high) / 1000)

    async def _truncated(self, error: OffsetOutOfLog) -> None:
        feed = self._feed_of(error.partition)
        book = self.books.get(error.partition)
        if book is None or feed.source is not Source.CUSTODY:
            # Where to begin is being looked up: the group's own place means nothing, and who went
            # on from it behind that look-up would pass over what lies between.
            await self._back_off()
            return
        if error.offset > error.log_end:
            # The log lost what the store knows of: nothing can be read before it grows again.
            if error.partition not in self._ahead:
                self._ahead.add(error.partition)
                _log.error("ahead_of_log", partition=error.partition, offset=error.offset)
            await self._back_off()
            return
        # Said before the position, and so the watermark, may go past it.
        await self._unowned.tell_deleted(book, error.offset, error.log_start)
        finished = await self._finished_below(error.partition)
        feed.truncated(error.log_start, finished)
        feed.position = max(feed.position, error.log_start)
        self._reader.seek(error.partition, error.log_start)

    # -- the assignment

    def _rebalanced(self) -> None:
        assignment = self._reader.assignment
        self._token = assignment.token
        self.books.clear()
        for partition in sorted(self._held - assignment.partitions):
            self._lost(self._feed_of(partition))
        self._held = assignment.partitions
        for partition in sorted(assignment.partitions):
            feed = self._feed_of(partition)
            feed.restart(Source.STARTING, -1)
            self._tasks.spawn(self._begin(feed, self._token), f"custody of {partition}")
        _log.info("custody", partitions=sorted(assignment.partitions))

    async def _begin(self, feed: PartitionFeed, token: int) -> None:
        """Find out where the partition's unfinished part begins, and read from there."""
        partition = feed.partition
        begun = await self._calls.insist(
            lambda: pending_disposals(self._db, partition), "disposals"
        )
        start = await self._finished_below(partition)
        if token != self._token or partition not in self._reader.assignment.partitions:
            return
        self.marks[partition] = start
        self.books[partition] = UnownedBook(partition, begun)
        self._reader.seek(partition, start)
        feed.restart(Source.CUSTODY, start)
        self._moved(feed)

    # -- watermarks

    async def maintain(self) -> None:
        """Raises watermarks and commits offsets, until cancelled."""
        while True:
            await asyncio.sleep(self._limits.maintain_ms / 1000)
            await self.settle()

    async def settle(self) -> None:
        """One round of it."""
        token = self._token
        finished: dict[int, int] = {}
        for partition, book in tuple(self.books.items()):
            await self._unowned.revisit(book)
            if book.waiting:
                self._work(book)
            if self.books.get(partition) is not book:
                continue
            low = self.low(partition, book)
            if low > self.marks.get(partition, 0):
                at = await self._raise(book, low)
                book.lettered = {one for one in book.lettered if one >= at}
                if at < low:
                    await self._unowned.adopt(book)
                    if book.waiting:
                        self._work(book)
                self.marks[partition] = at
                finished[partition] = at
        if finished and token == self._token:
            try:
                await self._reader.commit(finished, token)
            except BrokerAway as error:
                # Only what tools see: the next round commits more.
                _log.info("group_offset_not_committed", error=str(error))

    async def _raise(self, book: UnownedBook, low: int) -> int:
        """Raise the watermark, where records were deleted unseen only when all lives know of it."""
        db, partition = self._db, book.partition
        while self.marks.get(partition, 0) < book.deleted_below:
            # The lives that are owned here read the log themselves, and say what they lost.
            told = book.told.union(
                route.live.live_id for route in self._feed_of(partition).routes.values()
            )
            answer = await self._calls.insist(
                lambda t=told: raise_past_deleted(
                    db, partition, low, book.lettered, book.deleted_below, t
                ),
                "watermark",
            )
            if isinstance(answer, int):
                return answer
            await self._unowned.tell_lives(book, answer)
        return await self._calls.insist(
            lambda: raise_watermark(db, partition, low, book.lettered), "watermark"
        )

    def low(self, partition: int, book: UnownedBook) -> int:
        """Everything in this partition below it is released, skipped or dead-lettered."""
        feed = self._feed_of(partition)
        lows = [feed.position]
        if book.low is not None:
            lows.append(book.low)
        lows += [low for route in feed.routes.values() if (low := route.low) is not None]
        return max(0, min(lows))

    def close_route(self, live_id: str, partition: int, low: int | None) -> None:
        """A live's route ended: what it had not finished is its next owner's, or left behind."""
        book = self.books.get(partition)
        feed = self._feed_of(partition)
        if book is None or low is None:
            return
        low = max(low, self.marks.get(partition, 0))
        if low < feed.position:
            book.note(live_id, low, feed.position - 1)

    def open_route(self, live_id: str, partition: int) -> None:
        """The live is owned here now: its route knows what is unfinished."""
        book = self.books.get(partition)
        if book is not None:
            book.elsewhere.pop(live_id, None)
