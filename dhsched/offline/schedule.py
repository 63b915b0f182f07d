"""What happens to one live of a capture, and when: the entries on the line of the replay's time.

`survey` reads a capture once and says what lives it holds; `steps_of` reads it again for one live
and gives its steps in order. Both keep nothing of the records, so a capture may be of any length.

PURE.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from dhsched.offline.entries import (
    CapturedEvent,
    CapturedRecord,
    Entry,
    RecordedGeneration,
    generation_of,
    options_of,
)
from schemas.events import EventKind, LiveEvent
from schemas.options import BadOptions, LiveOptions

LEAD_IN_MS = 1_000
"""How much of the silence before the first record is kept."""

CLOSED_BY_RECORD = "close_record"


@dataclass(frozen=True, slots=True)
class Deliver:
    """The record comes into the log."""

    at_ms: int
    record: CapturedRecord


@dataclass(frozen=True, slots=True)
class MoveOn:
    """Another generation takes the live: handed over by its owner, or claimed past a dead one."""

    at_ms: int
    generation: RecordedGeneration
    handed_over: bool


@dataclass(frozen=True, slots=True)
class CloseNow:
    """The live was closed from outside its stream (a request, a limit)."""

    at_ms: int
    reason: str


Step: TypeAlias = Deliver | MoveOn | CloseNow
"""Times are Unix milliseconds of the recording, and never go back."""


@dataclass(slots=True)
class LiveSummary:
    """What a capture holds of one live."""

    live_id: str
    options: LiveOptions | None = None
    records: int = 0
    first_ms: int = 0
    last_ms: int = 0
    opened_ms: int | None = None
    partitions: dict[int, list[int]] = field(default_factory=dict[int, list[int]])
    """First and last offset by partition."""
    handed_over: set[int] = field(default_factory=set[int])
    """Epochs that began with a hand-over."""
    moves: int = 0
    epoch: int = 0
    """The one that had claimed it last."""
    repeated: int = 0
    """Records that stand in the capture twice."""
    broken: str = ""
    """Why it cannot be replayed, if so."""

    @property
    def begins_ms(self) -> int:
        """The replay's time zero."""
        lead = self.first_ms - LEAD_IN_MS
        return lead if self.opened_ms is None else max(lead, min(self.opened_ms, self.first_ms))

    def take_record(self, record: CapturedRecord) -> None:
        """One that comes twice is taken once; one that comes too late makes the live `broken`."""
        span = self.partitions.setdefault(record.partition, [record.offset, record.offset - 1])
        if record.offset == span[1]:
            self.repeated += 1
            return
        if record.offset < span[1]:
            self.broken = self.broken or (
                f"offset {record.offset} of partition {record.partition} comes after {span[1]}: "
                "the records are out of order"
            )
            return
        span[1] = record.offset
        if not self.records:
            self.first_ms = self.last_ms = record.timestamp_ms
        self.last_ms = max(self.last_ms, record.timestamp_ms)
        self.records += 1

    def take_event(self, event: LiveEvent) -> None:
        """Events only say how the live was opened and who owned it."""
        if event.kind is EventKind.MOVED:
            epoch = event.data.get("to_epoch")
            if isinstance(epoch, int):
                self.handed_over.add(epoch)
        generation = generation_of(event)
        if generation is not None and generation.epoch > self.epoch:
            self.moves += self.epoch > 0
            self.epoch = generation.epoch
        try:
            options = options_of(event)
        except BadOptions as error:
            self.broken = self.broken or f"its options: {error}"
            return
        if self.options is None and options is not None:
            self.options = options
            self.opened_ms = event.at_ms


@dataclass(slots=True)
class Survey:
    """`lives` in the order of their first entry. `foreign`: records without a usable key."""

    lives: dict[str, LiveSummary] = field(default_factory=dict[str, LiveSummary])
    entries: int = 0
    foreign: int = 0
    partitions: int = 1

    def of(self, live_id: str) -> LiveSummary:
        """The summary of a live, begun when there is none."""
        found = self.lives.get(live_id)
        if found is None:
            found = self.lives[live_id] = LiveSummary(live_id)
        return found

    def with_records(self) -> list[LiveSummary]:
        """The lives that there is something to replay of."""
        return [one for one in self.lives.values() if one.records]


def live_of(entry: Entry) -> str | None:
    """Whose entry it is; None for a record with no key, or one that is no text."""
    match entry:
        case CapturedEvent():
            return entry.event.live_id
        case CapturedRecord():
            try:
                return entry.key.decode() if entry.key else None
            except UnicodeDecodeError:
                return None


def survey(entries: Iterable[Entry], only: str | None = None) -> Survey:
    """What lives there are (`only` one of them)."""
    found = Survey()
    for entry in entries:
        found.entries += 1
        live_id = live_of(entry)
        if live_id is None:
            found.foreign += 1
            continue
        if isinstance(entry, CapturedRecord):
            found.partitions = max(found.partitions, entry.partition + 1)
        if only is not None and live_id != only:
            continue
        summary = found.of(live_id)
        match entry:
            case CapturedRecord():
                summary.take_record(entry)
            case CapturedEvent():
                summary.take_event(entry.event)
    return found


def steps_of(entries: Iterable[Entry], live: LiveSummary, *, ownership: bool) -> Iterator[Step]:
    """The live's steps. Without `ownership` the generations that took it are left out."""
    at_ms = live.begins_ms
    epoch = 0
    known: dict[int, int] = {}
    for entry in entries:
        if live_of(entry) != live.live_id:
            continue
        at_ms = max(at_ms, entry.timestamp_ms)
        if isinstance(entry, CapturedRecord):
            if entry.offset > known.get(entry.partition, -1):
                known[entry.partition] = entry.offset
                yield Deliver(at_ms, entry)
            continue
        generation = generation_of(entry.event)
        if generation is not None and generation.epoch > epoch:
            if epoch and ownership:
                yield MoveOn(at_ms, generation, generation.epoch in live.handed_over)
            epoch = generation.epoch
        closed = _closed_from_outside(entry.event)
        if closed is not None:
            yield CloseNow(at_ms, closed)


def _closed_from_outside(event: LiveEvent) -> str | None:
    if event.kind is not EventKind.STATE_UPDATED or event.data.get("state") != "closed":
        return None
    reason = event.data.get("reason")
    return None if reason == CLOSED_BY_RECORD else str(reason or "closed")
