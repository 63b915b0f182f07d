"""How far one live's input was read, and what is kept of it.

A live's records come from two readers: the partition's main reading, which only goes forward, and
re-reading of a range of the log, for a live that was claimed behind the main reading or that had no
room when its records passed. Each hands over batches that cover a range of offsets without a gap.

Two marks only grow. Below `kept_to` the machine has every record. Below `scanned_to` every record
was looked at, so that no INTERRUPT is missed while the text before it is still too much to keep.
Where they differ there is a *hole*, read again when there is room. An INTERRUPT closes the hole: it
skips what lies in it.

`seq` is compared in offset order along each mark, so a record is a duplicate on any owner that
reads the same log, or on none.

PURE.
"""

from enum import Enum
from typing import Final

from schemas.text_record import RecordKind, TextRecord


class Look(Enum):
    """What to do with a record."""

    PASS = 0
    """Nothing: known already, of no live any more, or to be read again when there is room."""
    KEEP = 1
    """Hand it over, in order."""
    DUPLICATE = 2
    """Hand it over, in order, as refused: its `seq` was seen."""
    INTERRUPT = 3
    """Hand it over at once."""


# Looking a member up takes longer than all else that is done for most records.
_KEEP: Final = Look.KEEP
_PASS: Final = Look.PASS
_TEXT: Final = RecordKind.TEXT


class ReadAhead:
    """One live's two marks.

    Invariants: `kept_to <= scanned_to`; `holed` exactly when a record between them was passed over;
    nothing behind a CLOSE is kept or overtakes it.
    """

    __slots__ = (
        "_blocked",
        "_close_at",
        "_covers",
        "_floor_seq",
        "_kept_seq",
        "_released_below",
        "_scan_seq",
        "attached",
        "holed",
        "kept_to",
        "scanned_to",
    )

    def __init__(self, start: int, released_below: int, last_seq: int | None) -> None:
        self.kept_to = start
        self.scanned_to = start
        self.attached = False
        """Whether the main reading brings everything from `scanned_to` on."""
        self.holed = False
        self._released_below = released_below
        self._floor_seq = last_seq
        crossed = start >= released_below
        self._kept_seq: int | None = last_seq if crossed else None
        self._scan_seq: int | None = self._kept_seq
        self._close_at: int | None = None
        self._covers = True
        self._blocked = False

    @property
    def last_seq(self) -> int | None:
        """The highest number that was looked at."""
        return self._scan_seq

    @property
    def wanted_from(self) -> int | None:
        """From where to read again, None when the main reading brings all there is."""
        if not self.attached:
            return self.scanned_to
        return self.kept_to if self.holed else None

    def begin(self, from_offset: int) -> None:
        """A batch that covers everything from `from_offset` on is about to be looked at."""
        if self.attached:
            self.scanned_to = max(self.scanned_to, from_offset)
            if not self.holed:
                self.kept_to = self.scanned_to
        self._covers = from_offset <= self.kept_to
        self._blocked = False

    def look(self, offset: int, record: TextRecord | None, room: bool) -> Look:
        """Decide about the record at `offset`; `record` is None when it could not be read."""
        if offset < self.kept_to:
            return _PASS
        if (
            room
            and record is not None
            and record.kind is _TEXT
            and offset >= self.scanned_to
            and offset >= self._released_below
            and not self.holed
            and self._close_at is None
        ):
            return self._next_text(offset, record.seq)
        room = room or offset < self._released_below
        if offset >= self.scanned_to:
            return self._scan(offset, record, room)
        return self._refill(offset, record, room)

    def end(self, upto: int) -> None:
        """The batch covered everything below `upto`."""
        self.scanned_to = max(self.scanned_to, upto)
        if self._covers and not self._blocked:
            self.kept_to = max(self.kept_to, upto)
            self.holed = self.holed and self.kept_to < self.scanned_to

    def jump(self, offset: int) -> bool:
        """Nothing below `offset` exists any more; whether that changes anything."""
        if self.kept_to >= offset:
            return False
        self.kept_to = offset
        self.scanned_to = max(self.scanned_to, offset)
        self.holed = self.holed and self.kept_to < self.scanned_to
        return True

    def _next_text(self, offset: int, seq: int | None) -> Look:
        """`_scan` for what is nearly always so: new text, room for it and nothing in its way."""
        self.scanned_to = self.kept_to = offset + 1
        last, floor = self._scan_seq, self._floor_seq
        if floor is not None and (last is None or last < floor):
            last = floor
        new = seq is None or last is None or seq > last
        self._scan_seq = self._kept_seq = seq if new and seq is not None else last
        return _KEEP if new else Look.DUPLICATE

    def _scan(self, offset: int, record: TextRecord | None, room: bool) -> Look:
        self.scanned_to = offset + 1
        if self._close_at is not None:
            return _PASS
        duplicate = False
        if record is not None:
            if offset >= self._released_below:
                self._scan_seq = _later(self._scan_seq, self._floor_seq)
            duplicate = _seen(record.seq, self._scan_seq)
            if not duplicate:
                self._scan_seq = _later(self._scan_seq, record.seq)
                if record.kind is RecordKind.INTERRUPT and offset >= self._released_below:
                    self.kept_to = offset + 1
                    self.holed = self._blocked = False
                    self._covers = True
                    self._kept_seq = self._scan_seq
                    return Look.INTERRUPT
                if record.kind is RecordKind.CLOSE and offset >= self._released_below:
                    self._close_at = offset
        if self.holed or not room:
            self.holed = self._blocked = True
            return _PASS
        self.kept_to = offset + 1
        self._kept_seq = self._scan_seq
        return Look.DUPLICATE if duplicate else _KEEP

    def _refill(self, offset: int, record: TextRecord | None, room: bool) -> Look:
        beyond_close = self._close_at is not None and offset > self._close_at
        if not self._covers or self._blocked or beyond_close:
            return _PASS
        if not room:
            self._blocked = True
            return _PASS
        self.kept_to = offset + 1
        if record is None:
            return _KEEP
        if offset >= self._released_below:
            self._kept_seq = _later(self._kept_seq, self._floor_seq)
        if _seen(record.seq, self._kept_seq):
            return Look.DUPLICATE
        self._kept_seq = _later(self._kept_seq, record.seq)
        return _KEEP


def _seen(seq: int | None, last: int | None) -> bool:
    return seq is not None and last is not None and seq <= last


def _later(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    return max(one, other)
