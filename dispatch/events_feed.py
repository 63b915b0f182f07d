"""Events for many listeners: one reader of the topic per replica, a bounded queue per client.

A subscription begins where the feed is, or at the places its client names (Last-Event-ID): what
lies between those places and the feed is read from the log first, then the queue goes on, without
a gap or a repetition. A client that is too slow for its queue is told so and cut; it comes back
with its last id and reads the rest from the log. So no client costs more than its queue, and no
client slows another.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

import structlog

from dispatch.event_ids import format_event_id, parse_event_id
from schemas.bad_record import BadRecord
from schemas.events import LiveEvent
from schemas.partition import partition_of
from schemas.topics import EVENTS_TOPIC
from stream.transport import (
    BrokerAway,
    KafkaRecord,
    OffsetOutOfLog,
    RangeReader,
    TailReader,
    Transport,
    UnknownTopic,
)

POLL_MS = 500
POLL_RECORDS_MAX = 1_000
BACKFILL_RECORDS_MAX = 500
BACKFILL_MS = 1_000
AWAY_PAUSE_S = 0.5

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class FeedEvent:
    """One event and the id with which a client resumes after it."""

    event: LiveEvent
    resume_id: str


@dataclass(frozen=True, slots=True)
class FeedGap:
    """Events between the client's place and the log's start were deleted by retention."""

    partition: int
    from_offset: int
    to_offset: int


class EndReason(StrEnum):
    """Why a subscription ended. In every case the client may come back with its last id."""

    LAGGED = "lagged"
    STOPPING = "stopping"
    LOG_MADE_ANEW = "log_made_anew"


@dataclass(frozen=True, slots=True)
class FeedEnded:
    """Nothing comes after this. `resume_id` is the last event's."""

    reason: EndReason
    resume_id: str


class TooManyStreams(Exception):
    """This replica serves as many event streams as it may."""


class EventsFeed:
    """Reads the events topic once and hands events to subscriptions. `run` is its only loop."""

    def __init__(
        self,
        transport: Transport,
        *,
        queue_events_max: int = 256,
        streams_max: int = 10_000,
        on_event: Callable[[LiveEvent], None] = lambda event: None,
    ) -> None:
        self._on_event = on_event
        self._transport = transport
        self._queue_events_max = queue_events_max
        self._streams_max = streams_max
        self._by_live: dict[str, set[Subscription]] = {}
        self._all: set[Subscription] = set()
        self._positions: dict[int, int] = {}
        self._is_following = asyncio.Event()
        self._ranges: RangeReader | None = None
        self._count = 0
        self.undecodable = 0

    @property
    def streams(self) -> int:
        """How many clients listen."""
        return self._count

    async def run(self) -> None:
        """Follows the topic until cancelled; a broker that is away is waited for."""
        while True:
            tail: TailReader | None = None
            try:
                tail = await self._transport.tail(EVENTS_TOPIC, self._positions or None)
                self._positions = dict(tail.positions)
                self._is_following.set()
                while True:
                    await self._step(tail)
            except (BrokerAway, UnknownTopic) as error:
                _log.warning("events_away", reason=str(error) or type(error).__name__)
                await asyncio.sleep(AWAY_PAUSE_S)
            finally:
                if tail is not None:
                    await tail.close()

    async def _step(self, tail: TailReader) -> None:
        records = await tail.poll(records_max=POLL_RECORDS_MAX, timeout_ms=POLL_MS)
        if any(offset < self._positions.get(p, 0) for p, offset in tail.positions.items()):
            self._start_anew()
        for record in records:
            self._deliver(record)
        # Only now: a subscription made meanwhile has got every record from its start on.
        for partition, offset in tail.positions.items():
            self._positions[partition] = max(offset, self._positions.get(partition, 0))

    def _start_anew(self) -> None:
        """The log was made anew, so no place a client knows means anything: all come back."""
        _log.warning("events_log_made_anew")
        self._positions = {}
        self.end_all(EndReason.LOG_MADE_ANEW)

    def end_all(self, reason: EndReason) -> None:
        """Ends every subscription; new ones may be made."""
        for subscription in [*self._all, *(one for some in self._by_live.values() for one in some)]:
            subscription.end(reason)

    def _deliver(self, record: KafkaRecord) -> None:
        if record.offset < self._positions.get(record.partition, 0):
            return
        self._positions[record.partition] = record.offset + 1
        event = self.decode(record)
        if event is None:
            return
        self._on_event(event)
        for subscription in (*self._by_live.get(event.live_id, ()), *self._all):
            subscription.offer(record, event)

    def decode(self, record: KafkaRecord) -> LiveEvent | None:
        """The event, or None (counted and logged) where the bytes are none."""
        try:
            return LiveEvent.decode(record.value)
        except BadRecord as error:
            self.undecodable += 1
            _log.warning(
                "event_undecodable",
                partition=record.partition,
                offset=record.offset,
                reason=error.reason,
            )
            return None

    async def subscribe(
        self, live_id: str | None, last_event_id: str | None = None
    ) -> "Subscription":
        """Events of one live, or of all (None), from now or after the given id.

        Waits until the feed has found the topic: bound it. Close the subscription when done.
        Raises TooManyStreams, BadEventId.
        """
        if self._count >= self._streams_max:
            raise TooManyStreams
        await self._is_following.wait()
        start = dict(self._positions)
        after = parse_event_id(last_event_id, len(start)) if last_event_id else {}
        if live_id is not None:
            # A live's events are all in one partition. An id from another one says nothing about
            # it, so everything that is there is given: rather twice than never.
            own = partition_of(live_id.encode(), len(start))
            start = {own: start[own]}
            after = {own: after.get(own, -1)} if after else {}
        subscription = Subscription(self, live_id, start, after, self._queue_events_max)
        members = self._all if live_id is None else self._by_live.setdefault(live_id, set())
        members.add(subscription)
        self._count += 1
        return subscription

    def leave(self, subscription: "Subscription") -> None:
        """Called by Subscription.close; a second call does nothing."""
        live_id = subscription.live_id
        members = self._all if live_id is None else self._by_live.get(live_id, set())
        if subscription not in members:
            return
        members.discard(subscription)
        self._count -= 1
        if live_id is not None and not members:
            self._by_live.pop(live_id, None)

    async def read_range(self, partition: int, from_offset: int) -> list[KafkaRecord]:
        """Older records. Raises OffsetOutOfLog, BrokerAway."""
        reader = await self._range_reader()
        return await reader.read(
            partition, from_offset, records_max=BACKFILL_RECORDS_MAX, timeout_ms=BACKFILL_MS
        )

    async def log_range(self, partition: int) -> tuple[int, int]:
        """(log start, log end). Raises BrokerAway."""
        return await (await self._range_reader()).log_range(partition)

    async def _range_reader(self) -> RangeReader:
        if self._ranges is None:
            reader = await self._transport.range_reader(EVENTS_TOPIC)
            if self._ranges is None:
                self._ranges = reader
            else:  # another client's request was first
                await reader.close()
        return self._ranges

    async def close(self) -> None:
        """After `run` was cancelled."""
        if self._ranges is not None:
            await self._ranges.close()
            self._ranges = None


class Subscription:
    """One client's events. One task calls `next`.

    Invariant: every event of a partition below `_until[partition]` comes from the log, every later
    one from the queue.
    """

    def __init__(
        self,
        feed: EventsFeed,
        live_id: str | None,
        start: Mapping[int, int],
        after: Mapping[int, int],
        queue_events_max: int,
    ) -> None:
        self.live_id = live_id
        self._feed = feed
        self._until = dict(start)
        self._reached = {
            partition: min(after.get(partition, offset - 1), offset - 1)
            for partition, offset in start.items()
        }
        self._read_next = {partition: offset + 1 for partition, offset in self._reached.items()}
        self._behind = [
            partition for partition, offset in start.items() if self._read_next[partition] < offset
        ]
        self._from_log: deque[tuple[KafkaRecord, LiveEvent]] = deque()
        self._queue: deque[tuple[KafkaRecord, LiveEvent]] = deque()
        self._queue_events_max = queue_events_max
        self._has_more = asyncio.Event()
        self._ended: EndReason | None = None

    @property
    def resume_id(self) -> str:
        """The id with which a client misses nothing from here on."""
        return format_event_id(self._reached)

    def offer(self, record: KafkaRecord, event: LiveEvent) -> None:
        """Called by the feed for each matching event from the start on, in offset order."""
        if len(self._queue) >= self._queue_events_max:
            self.end(EndReason.LAGGED)
        else:
            self._queue.append((record, event))
            self._has_more.set()

    def end(self, reason: EndReason) -> None:
        """Ends delivery with FeedEnded."""
        self._ended = reason
        self._queue.clear()
        self._feed.leave(self)
        self._has_more.set()

    async def next(self, wait_s: float) -> FeedEvent | FeedGap | FeedEnded | None:
        """The next event; None when none came in `wait_s`. Raises BrokerAway.

        Nothing comes after FeedEnded.
        """
        while self._ended is None:
            if self._from_log:
                return self._take(self._from_log)
            if self._behind:
                gap = await self._read_log(self._behind[0])
                if gap is not None:
                    return gap
            elif self._queue:
                return self._take(self._queue)
            elif not await self._wait(wait_s):
                return None
        return FeedEnded(self._ended, self.resume_id)

    def close(self) -> None:
        """Ends delivery."""
        self._feed.leave(self)

    def _take(self, queue: deque[tuple[KafkaRecord, LiveEvent]]) -> FeedEvent:
        record, event = queue.popleft()
        self._reached[record.partition] = record.offset
        if self.live_id is None:
            return FeedEvent(event, self.resume_id)
        return FeedEvent(event, format_event_id({record.partition: record.offset}))

    async def _wait(self, wait_s: float) -> bool:
        self._has_more.clear()
        try:
            async with asyncio.timeout(wait_s):
                await self._has_more.wait()
        except TimeoutError:
            return False
        return True

    async def _read_log(self, partition: int) -> FeedGap | None:
        """Reads one piece of what lies before the queue; leaves `_behind` when all is read."""
        until, wanted = self._until[partition], self._read_next[partition]
        try:
            records = await self._feed.read_range(partition, wanted)
        except OffsetOutOfLog as error:
            reached = min(error.log_start, until)
            if reached <= wanted:  # above the log, which was made anew: nothing to read
                self._read_until(partition, until)
                return None
            self._read_until(partition, reached)
            return FeedGap(partition, wanted, reached)
        for record in records:
            if record.offset < until:
                event = self._feed.decode(record)
                if event is not None and self.live_id in (None, event.live_id):
                    self._from_log.append((record, event))
        if records:
            self._read_until(partition, records[-1].offset + 1)
        elif (await self._feed.log_range(partition))[1] >= until:
            # Offsets without records (transaction markers) end a log too.
            self._read_until(partition, until)
        return None

    def _read_until(self, partition: int, offset: int) -> None:
        self._read_next[partition] = offset
        if offset >= self._until[partition]:
            self._behind.remove(partition)
        if not self._from_log:
            self._reached[partition] = min(offset, self._until[partition]) - 1
