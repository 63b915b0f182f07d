"""Entries straight from Kafka: the text topic's range, and the events that belong to it.

Read without a group, so nothing that reads the topics is disturbed and no offset is committed. The
range is fixed before the first record is read; what is written later is not part of it. A cluster
without our events topic is a source like any other: its lives have default options.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace

from dhsched.offline.entries import CapturedEvent, CapturedRecord, CaptureHeader, Entry
from dhsched.offline.event_window import EventWindow, OpenLives
from dhsched.offline.merging import Lane, Lost, merged
from dhsched.offline.topic_range import Wanted, fix_events, fix_range
from schemas.events import LiveEvent
from schemas.text_record import BadRecord
from stream.transport import KafkaRecord, RangeReader, Transport, UnknownTopic

# At the same time an event goes first: it may say how the live of the record was opened.
EVENTS_RANK, TEXT_RANK = 0, 1


@dataclass(slots=True)
class Place:
    """How far a partition was captured before: the next offset, the latest timestamp."""

    position: int
    stamp_ms: int


Places = Mapping[tuple[str, int], Place]


@dataclass(slots=True)
class TopicSource:
    """A range of topics, ready to be read. Use `TopicSource.of`."""

    header: CaptureHeader
    text: RangeReader
    events: RangeReader | None
    lost: list[Lost] = field(default_factory=list[Lost])
    unreadable_events: int = 0
    _lanes: list[Lane] = field(default_factory=list[Lane])

    @property
    def total(self) -> int:
        """How many offsets are to be looked at."""
        spans = [*self.header.ranges.values(), *self.header.event_ranges.values()]
        return sum(end - first for first, end in spans)

    @property
    def done(self) -> int:
        """How many of them were."""
        return self.total - sum(max(0, lane.end - lane.position) for lane in self._lanes)

    async def entries(self, places: Places | None = None) -> AsyncGenerator[Entry]:
        """All of them; or those behind `places`, where an earlier reading came to.

        Raises BrokerAway, OffsetOutOfLog.
        """
        if not places:
            for entry in await self._open_lives():
                yield entry
        self._lanes = self._make_lanes(places or {})
        async with aclosing(merged(self._lanes)) as found:
            async for entry in found:
                yield entry

    def _make_lanes(self, places: Places) -> list[Lane]:
        header, window = self.header, EventWindow(self.header)
        key = None if header.live_id is None else header.live_id.encode()

        def record(raw: KafkaRecord) -> Entry | None:
            return captured(raw) if key is None or raw.key == key else None

        def event(raw: KafkaRecord) -> Entry | None:
            found = self._event(raw)
            return found if found is not None and window.keeps(found.event) else None

        sources = [(self.text, header.topic, header.ranges, record, TEXT_RANK)]
        if self.events is not None:
            sources.append(
                (self.events, header.events_topic, header.event_ranges, event, EVENTS_RANK)
            )
        lanes: list[Lane] = []
        for reader, topic, ranges, accept, rank in sources:
            for partition, (first, end) in sorted(ranges.items()):
                place = places.get((topic, partition), Place(first, 0))
                lanes.append(
                    Lane(
                        reader,
                        topic,
                        partition,
                        (max(first, place.position), end),
                        accept,
                        self.lost.append,
                        rank=rank,
                        stamp_ms=place.stamp_ms,
                    )
                )
        return lanes

    async def _open_lives(self) -> list[CapturedEvent]:
        """What the range's first records need of the time before it."""
        if self.events is None:
            return []
        lives = OpenLives(EventWindow(self.header))
        for partition, (first, _) in sorted(self.header.event_ranges.items()):
            log_start, _ = await self.events.log_range(partition)
            if log_start < first:
                lane = Lane(
                    self.events,
                    self.header.events_topic,
                    partition,
                    (log_start, first),
                    self._event,
                    self.lost.append,
                )
                async with aclosing(merged([lane])) as found:
                    async for entry in found:
                        if isinstance(entry, CapturedEvent):
                            lives.see(entry)
        return lives.entries()

    def _event(self, raw: KafkaRecord) -> CapturedEvent | None:
        try:
            event = LiveEvent.decode(raw.value)
        except BadRecord:
            self.unreadable_events += 1
            return None
        return CapturedEvent(event, raw.partition, raw.offset, raw.timestamp)


def captured(raw: KafkaRecord) -> CapturedRecord:
    """A record as an entry."""
    return CapturedRecord(
        raw.topic, raw.partition, raw.offset, raw.timestamp, raw.key, raw.value, tuple(raw.headers)
    )


@asynccontextmanager
async def open_source(
    transport: Transport, wanted: Wanted, now_ms: int
) -> AsyncGenerator[TopicSource]:
    """The range that is wanted, as the topics are now.

    Raises BadRange, UnknownTopic, BrokerAway.
    """
    text = await transport.range_reader(wanted.topic)
    try:
        header = await fix_range(transport, text, wanted, now_ms)
        events = await _events_reader(transport, wanted)
        try:
            if events is not None:
                count = await transport.partition_count(wanted.events_topic)
                spans = await fix_events(events, count, header)
                header = replace(header, event_ranges=spans)
            yield TopicSource(header, text, events)
        finally:
            if events is not None:
                await events.close()
    finally:
        await text.close()


@asynccontextmanager
async def reopen_source(transport: Transport, header: CaptureHeader) -> AsyncGenerator[TopicSource]:
    """The range that an interrupted capture was about. Raises UnknownTopic, BrokerAway."""
    text = await transport.range_reader(header.topic)
    try:
        events = None
        if header.event_ranges:
            events = await transport.range_reader(header.events_topic)
        try:
            yield TopicSource(header, text, events)
        finally:
            if events is not None:
                await events.close()
    finally:
        await text.close()


async def _events_reader(transport: Transport, wanted: Wanted) -> RangeReader | None:
    try:
        return await transport.range_reader(wanted.events_topic)
    except UnknownTopic:
        return None
