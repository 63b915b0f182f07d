"""Notices what is missing from a capture, and what stands in it twice or in another order.

A gap is no error in itself: compaction, transaction markers and retention leave some. But whoever
replays a capture has to know that it is not all there was. A capture of one live has gaps wherever
another live's records lay, so there only the order is looked at.

PURE.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from dhsched.offline.entries import CapturedRecord, CaptureHeader, Entry

FINDINGS_MAX: Final = 20


class FindingKind(StrEnum):
    """What is odd about an offset."""

    GAP = "gap"
    REPEATED = "repeated"
    OUT_OF_ORDER = "out_of_order"


@dataclass(frozen=True, slots=True)
class OffsetFinding:
    """`offset` came where `expected` would have been the next."""

    kind: FindingKind
    topic: str
    partition: int
    expected: int
    offset: int

    def __str__(self) -> str:
        where = f"{self.topic} partition {self.partition}"
        match self.kind:
            case FindingKind.GAP:
                last = self.offset - 1
                if last == self.expected:
                    return f"{where}: offset {last} is not there"
                return f"{where}: offsets {self.expected} to {last} are not there"
            case FindingKind.REPEATED:
                return f"{where}: offset {self.offset} comes twice"
            case FindingKind.OUT_OF_ORDER:
                return f"{where}: offset {self.offset} comes after {self.expected - 1}"


@dataclass(slots=True)
class OffsetChecker:
    """Looks at every entry. Keeps a number per partition, and the first FINDINGS_MAX findings."""

    header: CaptureHeader
    findings: list[OffsetFinding] = field(default_factory=list[OffsetFinding])
    counts: dict[FindingKind, int] = field(default_factory=dict[FindingKind, int])
    missing: int = 0
    """How many offsets lie in gaps."""
    _next: dict[tuple[str, int], int] = field(default_factory=dict[tuple[str, int], int])

    def see(self, entry: Entry) -> None:
        """The next entry of the file."""
        is_record = isinstance(entry, CapturedRecord)
        topic = entry.topic if is_record else self.header.events_topic
        place = (topic, entry.partition)
        whole = is_record and topic == self.header.topic and self.header.live_id is None
        expected = self._next.get(place)
        if expected is None:
            span = self.header.ranges.get(entry.partition) if whole else None
            expected = entry.offset if span is None else span[0]
        if entry.offset < expected:
            same = entry.offset == expected - 1
            kind = FindingKind.REPEATED if same else FindingKind.OUT_OF_ORDER
            self._found(OffsetFinding(kind, *place, expected, entry.offset))
            return
        if whole and entry.offset > expected:
            self._missing(place, expected, entry.offset)
        self._next[place] = entry.offset + 1

    def finish(self) -> None:
        """There are no further entries: what is missing at the ends of the ranges?"""
        if self.header.live_id is not None:
            return
        for partition, (first, end) in self.header.ranges.items():
            place = (self.header.topic, partition)
            reached = self._next.get(place, first)
            if reached < end:
                self._missing(place, reached, end)

    def _missing(self, place: tuple[str, int], expected: int, offset: int) -> None:
        self.missing += offset - expected
        self._found(OffsetFinding(FindingKind.GAP, *place, expected, offset))

    def _found(self, finding: OffsetFinding) -> None:
        self.counts[finding.kind] = self.counts.get(finding.kind, 0) + 1
        if len(self.findings) < FINDINGS_MAX:
            self.findings.append(finding)
