"""One partition as this worker reads it: which of its lives are owned here, and how far each is.

The main reading (custody, or the worker's own where it has no custody) only goes forward from
`position`. A route is *attached* while everything it still needs comes by that reading; otherwise a
range of the log is read again for it. All of this is synchronous: between two awaits of the readers
a batch is routed whole, and each live gets at most one event per batch.
"""

from collections.abc import Sequence
from enum import Enum
from typing import Final, Protocol

from controller.counters import Counters
from controller.events import Accepted, Event, Incoming, InterruptSeen, RecordsRead, Refused
from controller.read_ahead import Look, ReadAhead
from controller.records import Decoder
from schemas.bad_record import DeadLetterReason
from schemas.text_record import TextRecord
from stream.transport import KafkaRecord

_KEEP: Final = Look.KEEP
_PASS: Final = Look.PASS


class LiveInput(Protocol):
    """The live that records are routed to."""

    live_id: str

    def post(self, event: Event) -> None: ...

    @property
    def room(self) -> tuple[int, int]:
        """How many records and characters may still be kept."""
        ...

    @property
    def roomy(self) -> bool:
        """Whether there is enough room for reading again to be worth it."""
        ...

    @property
    def first_unreleased(self) -> int | None:
        """The lowest offset that it knows and that is not disposed of."""
        ...


class Source(Enum):
    """Who does the main reading."""

    NOBODY = "nobody"
    STARTING = "starting"
    """In custody; where to begin is being looked up."""
    CUSTODY = "custody"
    OWN = "own"


class Route:
    """One owned live's place in its partition."""

    __slots__ = (
        "_batch",
        "_chars",
        "_in_hand",
        "_records",
        "ahead",
        "key",
        "live",
        "released_below",
        "start",
    )

    def __init__(self, live: LiveInput, start: int, released_below: int, seq: int | None) -> None:
        self.live = live
        self.key = live.live_id.encode()
        self.start = start
        self.released_below = released_below
        self.ahead = ReadAhead(start, released_below, seq)
        self._batch: list[Incoming] = []
        self._in_hand: int | None = None
        """An INTERRUPT that waits for what was read before it to be handed over."""
        self._records, self._chars = live.room

    def begin(self, from_offset: int) -> None:
        """A batch that covers everything from `from_offset` on."""
        self.ahead.begin(from_offset)
        self._records, self._chars = self.live.room

    def offer(self, raw: KafkaRecord, decoder: Decoder) -> bool:
        """One record of the batch; whether it was of any use."""
        offset = raw.offset
        ahead = self.ahead
        if offset < ahead.kept_to:
            return False
        decoded = decoder.decode(raw)
        record = decoded if isinstance(decoded, TextRecord) else None
        look = ahead.look(offset, record, self._records > 0 and self._chars > 0)
        if look is _KEEP and record is not None:
            self._batch.append(Accepted(offset, record))
            self._records -= 1
            self._chars -= len(record.text)
            return True
        if look is _PASS:
            return False
        if look is Look.INTERRUPT and record is not None:
            # What is handed over first may end the live, and then this is not its to finish.
            self._in_hand = offset
            self._flush(offset)
            self.live.post(InterruptSeen(offset, record, self.ahead.last_seq))
            self._in_hand = None
            self._records, self._chars = self.live.room
            return True
        if look is Look.DUPLICATE and record is not None:
            detail = f"seq {record.seq} was seen before"
            reason = DeadLetterReason.DUPLICATE_SEQ
            self._add(Refused(offset, reason, detail, raw.key, raw.value), len(raw.value or b""))
        elif not isinstance(decoded, TextRecord):
            reason, detail = decoded.reason, decoded.detail
            self._add(Refused(offset, reason, detail, raw.key, raw.value), len(raw.value or b""))
        return True

    def _add(self, incoming: Incoming, size: int) -> None:
        self._batch.append(incoming)
        self._records -= 1
        self._chars -= size

    def end(self, upto: int) -> None:
        """The batch covered everything below `upto`: hand over what it brought."""
        behind = self.ahead.kept_to < self.released_below
        self.ahead.end(upto)
        if self._batch or behind:
            self._flush(self.ahead.kept_to)

    def _flush(self, read_to: int) -> None:
        batch, self._batch = self._batch, []
        self.live.post(RecordsRead(tuple(batch), read_to))

    def truncated(self, log_start: int, finished_below: int) -> None:
        """Retention deleted everything below `log_start`. What is lost is said, never skipped."""
        behind = self.ahead.kept_to < self.released_below
        lost_from = max(self.ahead.kept_to, self.released_below, finished_below)
        if not self.ahead.jump(log_start):
            return
        if lost_from < log_start:
            detail = f"offsets {lost_from} to {log_start - 1} were deleted before they were spoken"
            reason = DeadLetterReason.BEFORE_LOG_START
            self._batch.append(Refused(log_start - 1, reason, detail, self.key, None))
        if self._batch or behind:
            self._flush(self.ahead.kept_to)

    @property
    def low(self) -> int | None:
        """Everything of this live below it is disposed of; None: everything that was read."""
        first = self.live.first_unreleased
        if self._in_hand is not None:
            first = self._in_hand if first is None else min(first, self._in_hand)
        if self.ahead.attached and not self.ahead.holed:
            return first
        return self.ahead.kept_to if first is None else min(first, self.ahead.kept_to)

    def wants_reading(self) -> bool:
        """Whether a range of the log should be read for it now."""
        if not self.ahead.attached:
            return True
        return self.ahead.holed and self.live.roomy


class PartitionFeed:
    """See the module. Invariant: a route is attached only if its `scanned_to` is at or above
    `position`, and only while somebody does the main reading."""

    def __init__(self, partition: int, decoder: Decoder, counters: Counters) -> None:
        self.partition = partition
        self.position = -1
        """The next offset of the main reading, -1 while there is none."""
        self.source = Source.NOBODY
        self.routes: dict[bytes, Route] = {}
        self._decoder = decoder
        self._counters = counters

    def add(self, route: Route) -> None:
        """Route this live's records from now on."""
        self.routes[route.key] = route
        self.attach(route)

    def remove(self, live_id: str, live: LiveInput) -> Route | None:
        """Stop routing to this live; None when another session has its place."""
        key = live_id.encode()
        route = self.routes.get(key)
        if route is None or route.live is not live:
            return None
        return self.routes.pop(key)

    def attach(self, route: Route) -> None:
        """Let the main reading serve it, if it is not behind that."""
        reading = self.source in (Source.CUSTODY, Source.OWN)
        route.ahead.attached = reading and 0 <= self.position <= route.ahead.scanned_to

    def restart(self, source: Source, position: int) -> None:
        """The main reading begins at `position`, done by `source`."""
        if self.source in (Source.CUSTODY, Source.OWN) and self.position >= 0:
            self._settle()
        self.source = source
        self.position = position
        for route in self.routes.values():
            self.attach(route)

    def _settle(self) -> None:
        """Write down how far the main reading brought the attached routes."""
        for route in self.routes.values():
            if route.ahead.attached:
                route.ahead.begin(self.position)

    def route(self, records: Sequence[KafkaRecord]) -> list[KafkaRecord]:
        """A batch of the main reading, in offset order; returns records of lives not owned here.

        Records below `position` came before and are left out.
        """
        start = self.position
        if records:
            # Before anything is handed over: what ends a live here ends it behind this batch.
            self.position = max(start, records[-1].offset + 1)
        touched: dict[bytes, Route] = {}
        others: list[KafkaRecord] = []
        routes, decoder = self.routes, self._decoder
        routed = 0
        for raw in records:
            if raw.offset < start:
                continue
            key = raw.key
            route = None if key is None else routes.get(key)
            if route is None or key is None:
                others.append(raw)
                continue
            if key not in touched:
                if not route.ahead.attached:
                    continue
                touched[key] = route
                route.begin(start)
            routed += route.offer(raw, decoder)
        for route in touched.values():
            route.end(self.position)
        self._counters.records_routed += routed
        return others

    def route_again(self, from_offset: int, upto: int, records: Sequence[KafkaRecord]) -> None:
        """A range [from_offset, upto) of the log, read for the routes that were behind."""
        wanting = {
            key: route
            for key, route in self.routes.items()
            if route.wants_reading() and from_offset <= route.ahead.scanned_to
        }
        for route in wanting.values():
            route.begin(from_offset)
        used = 0
        for raw in records:
            behind = None if raw.key is None else wanting.get(raw.key)
            if behind is not None:
                used += behind.offer(raw, self._decoder)
        for route in wanting.values():
            route.end(upto)
            if not route.ahead.attached:
                self.attach(route)
        self._counters.records_reread += len(records)
        self._counters.records_reread_used += used

    def truncated(self, log_start: int, finished_below: int) -> None:
        """The log begins at `log_start` now. Custody moves `position` itself, when it has said what
        is lost of lives that nobody owns."""
        for route in tuple(self.routes.values()):
            if route.ahead.attached:
                route.ahead.begin(max(0, self.position))
            route.truncated(log_start, finished_below)
        if 0 <= self.position < log_start and self.source is Source.OWN:
            self.position = log_start
        for route in self.routes.values():
            self.attach(route)

    def read_again_from(self) -> int | None:
        """The lowest offset that some route needs read again now."""
        wanted: list[int] = []
        for route in self.routes.values():
            if not route.ahead.attached:
                self.attach(route)
            if route.wants_reading():
                at = route.ahead.wanted_from
                if at is not None:
                    wanted.append(at)
        return min(wanted, default=None)
