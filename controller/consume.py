"""Where the records of this worker's lives come from.

    group (custody) ──┐
                      ├─► partition feed ─► route of each live ─► its session
    own reading ──────┘        ▲
    reading again ─────────────┘   for lives that are behind the main reading

A partition with lives owned here is read once: by the group where this worker has custody of it, by
itself elsewhere.
"""

from collections.abc import Callable
from random import Random

from controller.auto_create import AutoCreate
from controller.counters import Counters
from controller.custody import Custody
from controller.dead_letters import DeadLetters
from controller.instructions import ReadFrom
from controller.limits import ReadingLimits
from controller.partition_feed import LiveInput, PartitionFeed, Route, Source
from controller.range_reading import RangeReading
from controller.records import Decoder
from controller.store_calls import StoreCalls
from controller.tasks import Tasks
from controller.unowned import Unowned
from ownership.custody import watermark
from ownership.kv import Database
from stream.transport import GroupReader, RangeReader


class Consumer:
    """All feeds of a worker. `custody` polls the group; it has to be run."""

    def __init__(
        self,
        *,
        db: Database,
        calls: StoreCalls,
        group: GroupReader,
        ranges: RangeReader,
        letters: DeadLetters,
        tasks: Tasks,
        limits: ReadingLimits,
        rng: Random,
        counters: Counters,
        decoder: Decoder,
        partition_count: int,
        lost: Callable[[str, int, str], None],
        auto_create: AutoCreate | None = None,
    ) -> None:
        self._db = db
        self._calls = calls
        self._counters = counters
        self._decoder = decoder
        self.feeds: dict[int, PartitionFeed] = {}
        self._ranges = RangeReading(ranges, tasks, limits, rng, counters, self.finished_below)
        unowned = Unowned(
            db, calls, letters, ranges, limits, counters, partition_count, auto_create, lost
        )
        self.custody = Custody(
            group,
            db,
            calls,
            unowned,
            tasks,
            limits,
            rng,
            counters,
            feed_of=self.feed_of,
            lost=self._read_ourselves,
            moved=self._ranges.read_again,
            finished_below=self.finished_below,
        )

    async def finished_below(self, partition: int) -> int:
        """The partition's watermark."""
        return await self._calls.insist(lambda: watermark(self._db, partition), "watermark")

    def feed_of(self, partition: int) -> PartitionFeed:
        """The one feed of a partition."""
        feed = self.feeds.get(partition)
        if feed is None:
            feed = PartitionFeed(partition, self._decoder, self._counters)
            self.feeds[partition] = feed
        return feed

    def open(self, live: LiveInput, partition: int, order: ReadFrom) -> Route:
        """Hand over this live's records from `order.start` on."""
        feed = self.feed_of(partition)
        self.custody.open_route(live.live_id, partition)
        route = Route(live, order.start, order.released_below, order.last_seq)
        feed.add(route)
        if feed.source is Source.NOBODY:
            self._read_ourselves(feed)
        self._ranges.read_again(feed)
        return route

    def close(self, live: LiveInput, partition: int) -> None:
        """Hand over nothing more."""
        feed = self.feeds.get(partition)
        route = None if feed is None else feed.remove(live.live_id, live)
        if route is not None:
            self.custody.close_route(live.live_id, partition, route.low)

    def refill(self, partition: int) -> None:
        """A live has room again: read what was passed over."""
        feed = self.feeds.get(partition)
        if feed is not None:
            self._ranges.read_again(feed)

    def _read_ourselves(self, feed: PartitionFeed) -> None:
        """The partition is not in our custody: follow it, as long as lives of it are owned here."""
        if not feed.routes:
            feed.restart(Source.NOBODY, -1)
            return
        at = feed.position
        if at < 0:
            at = min(route.ahead.scanned_to for route in feed.routes.values())
        feed.restart(Source.OWN, at)
        self._ranges.follow(feed)
