"""Which events belong to a captured range of the text topic.

An event that names a record goes with its record, however late it was: speech ends after the text
was written. Any other event, and a claim (whose offset is the next one, not one that it handled),
goes by its own time. Of the time before the range only what its first records need is kept: how
each live that is still open was opened, and who claimed it last.

PURE.
"""

from dataclasses import dataclass, field
from typing import Final

from dhsched.offline.entries import STATE_CLOSED, STATE_OPEN, CapturedEvent, CaptureHeader
from schemas.events import EventKind, LiveEvent
from schemas.partition import partition_of

_EPOCH_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class EventWindow:
    """The rule for one capture."""

    header: CaptureHeader

    def wants(self, live_id: str) -> bool:
        """Whether this live is captured at all."""
        return self.header.live_id is None or self.header.live_id == live_id

    def keeps(self, event: LiveEvent) -> bool:
        """Whether an event that lies in the events topic's range belongs to the capture."""
        header = self.header
        if not self.wants(event.live_id):
            return False
        if event.offset is not None and event.kind is not EventKind.CLAIMED:
            partition = partition_of(event.live_id.encode(), header.partition_count)
            span = header.ranges.get(partition)
            return span is not None and span[0] <= event.offset < span[1]
        return header.until_ms is None or event.at_ms < header.until_ms


@dataclass(slots=True)
class OpenLives:
    """The lives that are open where the range begins. Bounded by how many are open at once."""

    window: EventWindow
    _opened: dict[str, CapturedEvent] = field(default_factory=dict[str, CapturedEvent])
    _claimed: dict[str, CapturedEvent] = field(default_factory=dict[str, CapturedEvent])

    def see(self, entry: CapturedEvent) -> None:
        """The next event before the range."""
        event = entry.event
        if not self.window.wants(event.live_id):
            return
        state = event.data.get("state") if event.kind is EventKind.STATE_UPDATED else None
        if state == STATE_OPEN:
            self._opened[event.live_id] = entry
            # A claim of an earlier life under this id says nothing any more; that of this life may
            # come before, since another process wrote it.
            self._forget(self._claimed, event.live_id, event.epoch - 1)
        elif state == STATE_CLOSED:
            # Epoch 0: nobody owned it.
            upto = event.epoch or _EPOCH_MAX
            self._forget(self._opened, event.live_id, upto)
            self._forget(self._claimed, event.live_id, upto)
        elif event.kind is EventKind.CLAIMED:
            self._claimed[event.live_id] = entry

    def _forget(self, known: dict[str, CapturedEvent], live_id: str, epoch_max: int) -> None:
        entry = known.get(live_id)
        if entry is not None and entry.event.epoch <= epoch_max:
            del known[live_id]

    def entries(self) -> list[CapturedEvent]:
        """What the range's beginning needs, in the order of the log."""
        found = [*self._opened.values(), *self._claimed.values()]
        return sorted(found, key=lambda entry: (entry.partition, entry.offset))
