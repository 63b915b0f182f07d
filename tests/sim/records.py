"""The third invariant: every record once, in order. Spoken, skipped or dead-lettered, never two.

The accepted text of a live is one string: the texts of its records in offset order, without those
in the dead-letter topic. Every text is unlike every other, so what was fed says where it belongs.

- What one generation feeds is new text, in order, behind all that was released before it came, or
  a segment that the checkpoint named when it came.
- Nothing is fed that this generation's own commits had not released, and nothing twice.
- In the end all text below the cursor was fed, except what an interrupt skipped or cut off, or what
  was still unspoken when the live was closed; and what was fed was heard, without a gap.
- A record that cannot be spoken has its dead letter in the topic when the cursor is past it, except
  where an interrupt skipped it.
- What retention deleted before it was finished may be missing if that was said: by a dead letter
  `before_log_start` of the live for what was not released, by an error `text_lost` for what was
  released and not spoken. Never without a word, and never anything that still lies in the log.

PURE.
"""

from bisect import bisect_left

from tests.sim import history as h
from tests.sim.heard_again import Counts, Facts, Hearing
from tests.sim.spans import Span, gap
from tests.sim.verdict import Invariant, Violation

BEFORE_LOG_START = "before_log_start"
TEXT_LOST = "text_lost"


def check_records(history: h.History, counts: Counts | None = None) -> list[Violation]:
    """Everything that is wrong with the records of any live, and with what is heard of them."""
    facts, counts = Facts(), Counts() if counts is None else counts
    lettered = {
        (one.partition, one.offset)
        for one in history
        if type(one) is h.Lettered and one.reason != BEFORE_LOG_START
    }
    lives: dict[str, _Live] = {}
    violations: list[Violation] = []
    for entry in history:
        if type(entry) is h.Produced:
            live = lives.get(entry.live_id)
            if live is None:
                hearing = Hearing(facts, counts)
                live = lives[entry.live_id] = _Live(entry.live_id, violations, hearing)
            live.produced(entry, (entry.partition, entry.offset) in lettered)
    for live in lives.values():
        live.text = "".join(live.parts)
    settled = True
    for at, entry in enumerate(history):
        kind = type(entry)
        name = _HANDLERS.get(kind)
        if name is not None:
            live = lives.get(entry.live_id)  # type: ignore[attr-defined]
            if live is not None:
                live.at = at
                getattr(live, name)(entry)
        elif kind in _FACTS:
            facts.note(entry)
        elif kind is h.Truncated or kind is h.Lettered:
            _lost(lives, entry, at)
        elif type(entry) is h.Ended:
            settled = entry.settled
    for live in lives.values():
        live.at = len(history) - 1
        live.ended(settled)
    return violations


def _lost(lives: "dict[str, _Live]", entry: h.Entry, at: int) -> None:
    """Retention deleted something, or somebody says what is lost by it."""
    if isinstance(entry, h.Truncated):
        for live in lives.values():
            if live.partition == entry.partition:
                live.log_start = max(live.log_start, entry.log_start)
    elif isinstance(entry, h.Lettered) and entry.reason == BEFORE_LOG_START:
        for live in lives.values():
            if live.partition == entry.partition and entry.live_id in ("", live.live_id):
                live.at = at
                live.told_lost(entry)


_HANDLERS = {
    h.GenerationWritten: "generation",
    h.LiveWritten: "live",
    h.CursorWritten: "cursor",
    h.ProgressWritten: "progress",
    h.ErrorTold: "error_told",
    h.Fed: "fed",
    h.Heard: "heard",
}


_FACTS = frozenset(
    {
        h.Fault,
        h.Gone,
        h.MoveAsked,
        h.Promised,
        h.ReleaseAsked,
        h.ReleaseRefused,
        h.ReleaseSlow,
        h.WorkerWritten,
    }
)


class _Epoch:
    """What one generation may feed: text from `start` on that it released, and `remakes`."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.start = 0
        self.released = 0
        self.end = 0
        self.remakes: set[Span] = set()
        self.fed: dict[Span, set[int]] = {}
        """To the bindings."""


class _Live:
    def __init__(self, live_id: str, violations: list[Violation], hearing: Hearing) -> None:
        self.live_id = live_id
        self._hearing = hearing
        self.partition = -1
        self.log_start = 0
        self.at = 0
        self.parts: list[str] = []
        self.text = ""
        self._violations = violations
        self._offsets: list[int] = []
        self._begins: list[int] = []
        self._size = 0
        self._unlettered: list[int] = []
        self._interrupts: list[int] = []
        self._bad: list[int] = []
        self._settled_offsets: list[Span] = []
        """Ranges of the log that an interrupt skipped, or that are told to be lost."""
        self._released = (-1, "")
        """The version and the id of the last release."""
        self._unnamed = 0
        self._lost: list[Span] = []
        self._disposed: list[Span] = []
        """What custodians took while nobody owned the live."""
        self._excused: set[Span] = set()
        """Segments whose records were deleted, and that was said."""
        self._cursor = 0
        self._next_char = -1
        self._segments: tuple[Span, ...] = ()
        self._epochs: dict[int, _Epoch] = {}
        self._epoch: _Epoch | None = None
        self._is_open = False
        self._covered: list[Span] = []
        """Fed, skipped, or cut off."""
        self._skipped: list[Span] = []
        self._cut_to = 0
        """Text before it need not be heard to its end: an interrupt or a close came."""
        self._segment_spans: dict[int, Span] = {}
        self._heard: dict[Span, list[Span]] = {}
        self._whole: set[Span] = set()

    def _wrong(self, detail: str, invariant: Invariant = Invariant.EXACTLY_ONCE) -> None:
        self._violations.append(Violation(invariant, self.at, self.live_id, detail))

    def _twice(self, detail: str) -> None:
        if detail and self._hearing.facts.promised is not None:
            self._wrong(detail, Invariant.HEARD_AGAIN)

    # -- the log

    def produced(self, entry: h.Produced, lettered: bool) -> None:
        self.partition = entry.partition
        if lettered:
            return
        self._unlettered.append(entry.offset)
        if entry.kind == "interrupt":
            self._interrupts.append(entry.offset)
        elif entry.kind == "text":
            self._offsets.append(entry.offset)
            self._begins.append(self._size)
            self.parts.append(entry.text)
            self._size += len(entry.text)
        elif entry.kind == "bad":
            self._bad.append(entry.offset)

    def told_lost(self, entry: h.Lettered) -> None:
        """What lies between the cursor and this offset, and is deleted, need not be spoken.

        One word for all lives without an owner is not enough for one that is open, until it closes.
        """
        end = min(entry.offset + 1, self.log_start)
        if entry.live_id:
            for begin, until in self._disposed:
                if begin < end:
                    span = (begin, min(until, end))
                    self._settled_offsets.append(span)
                    self._covered.append((self._place(span[0]), self._place(span[1])))
        if entry.live_id or not self._is_open:
            self._lost_below(end)
        else:
            self._unnamed = max(self._unnamed, end)

    def _lost_below(self, end: int) -> None:
        if end > self._cursor:
            lost = (self._reached(), self._place(end))
            self._settled_offsets.append((self._cursor, end))
            self._lost.append(lost)
            self._covered.append(lost)

    def error_told(self, entry: h.ErrorTold) -> None:
        """Of what was released and not spoken, this owner cannot make again what was deleted."""
        if entry.reason != TEXT_LOST:
            return
        deleted = self._place(self.log_start)
        for span in self._segments:
            if span[0] < deleted:
                self._excused.add(span)
                self._covered.append(span)
        if self._next_char >= 0 and self._cursor <= self.log_start:
            self._covered.append((self._reached(), self._place(self._cursor)))

    def _place(self, offset: int, char: int = 0) -> int:
        """Where a character of a record stands in the accepted text."""
        at = bisect_left(self._offsets, offset)
        if at == len(self._offsets):
            return self._size
        return self._begins[at] + (char if self._offsets[at] == offset else 0)

    def _reached(self) -> int:
        """All text before it is released."""
        if self._next_char >= 0:
            return self._place(self._cursor - 1, self._next_char)
        return self._place(self._cursor)

    # -- the store

    def generation(self, entry: h.GenerationWritten) -> None:
        self._twice(self._hearing.settle())
        if not entry.worker_id:
            self._epoch = None
            return
        self._hearing.generation(entry)
        self._epoch = self._epochs[entry.epoch] = _Epoch(entry.version)
        self._start()

    def _start(self) -> None:
        epoch = self._epoch
        if epoch is not None:
            epoch.start = epoch.released = epoch.end = self._reached()
            epoch.remakes = set(self._segments)

    def live(self, entry: h.LiveWritten) -> None:
        was_open, self._is_open = self._is_open, entry.state == "open"
        if was_open and not self._is_open:
            self._cut(self._place(self._cursor))
            self._twice(self._hearing.settle())
            self._hearing.closed()
            self._lost_below(self._unnamed)

    def _cut(self, upto: int) -> None:
        """What was released and not spoken need not be spoken any more."""
        self._covered.extend(self._segments)
        rest = self._reached()
        if rest < upto and self._next_char >= 0:
            self._covered.append((rest, self._place(self._cursor)))
        self._cut_to = max(self._cut_to, upto)

    def cursor(self, entry: h.CursorWritten) -> None:
        before = self._cursor
        if entry.next_offset < before:
            self._wrong(f"the cursor went back from {before} to {entry.next_offset}")
        if entry.skipped is not None and entry.release_id and entry.next_offset > before:
            span = (self._place(entry.skipped[0]), self._place(entry.skipped[1]))
            self._skipped.append(span)
            self._covered.append(span)
            self._settled_offsets.append(entry.skipped)
        if entry.release_id and any(before <= at < entry.next_offset for at in self._interrupts):
            self._cut(self._place(entry.next_offset))
        if entry.release_id:
            self._hearing.facts.applied(entry.process, entry.release_id)
            self._released = (entry.version, entry.release_id)
        elif not self._is_open:
            self._disposed.append((before, entry.next_offset))
        self._cursor = entry.next_offset
        if entry.next_offset > before:
            self._next_char = -1
        self._committed(entry.version)

    def progress(self, entry: h.ProgressWritten) -> None:
        if entry.segments is None:
            self._segments, self._next_char = (), -1
            return
        self._segments = tuple(
            (self._place(a, b), self._place(c, d))
            for a, b, c, d in entry.segments
            if (a, b) != (c, d)
        )
        self._next_char = entry.next_char
        version, release_id = self._released
        asked_ms = entry.at_ms
        if version == entry.version:
            asked_ms = self._hearing.facts.asked_ms.get(release_id, asked_ms)
        self._twice(self._hearing.saved(entry.version, self._segments, entry.samples, asked_ms))
        self._committed(entry.version)

    def _committed(self, version: int) -> None:
        epoch = self._epoch
        if epoch is None:
            return
        if version == epoch.version:
            self._start()
        else:
            epoch.released = max(epoch.released, self._place(self._cursor))

    # -- the stages

    def fed(self, entry: h.Fed) -> None:
        epoch = self._epochs.get(entry.epoch)
        begin = self._find(entry.text, self._size if epoch is None else epoch.released)
        span = (begin, begin + len(entry.text))
        told = f"{entry.process} fed {entry.text!r} in epoch {entry.epoch}"
        if begin < 0:
            self._wrong(f"{told}: no accepted text, or not in order")
            return
        if epoch is None:
            self._wrong(f"{told}, which was never committed")
            return
        self._segment_spans[entry.segment] = span
        bindings = epoch.fed.setdefault(span, set())
        if entry.binding in bindings:
            self._wrong(f"{told} twice")
        elif not bindings and span not in epoch.remakes:
            self._fed_new(epoch, span, told)
        bindings.add(entry.binding)
        self._covered.append(span)

    def _find(self, text: str, released: int) -> int:
        """Where it stands. Of a record that its producer sent twice, the second one is spoken when
        the first was deleted and the second is released: what was said to be lost may be more than
        its owner had not read."""
        begin = self.text.find(text)
        while self._lost and any(a < begin + len(text) and begin < b for a, b in self._lost):
            later = self.text.find(text, begin + 1, released)
            if later < 0:
                break
            begin = later
        return begin

    def _fed_new(self, epoch: _Epoch, span: Span, told: str) -> None:
        if span[0] < epoch.start:
            self._wrong(f"{told}: an earlier generation had released it")
        elif span[0] < epoch.end:
            self._wrong(f"{told}: out of order")
        if span[1] > epoch.released:
            self._wrong(f"{told} before a commit released it")
        if any(a < span[1] and span[0] < b for a, b in self._skipped):
            self._wrong(f"{told}: an interrupt skipped it")
        epoch.end = max(epoch.end, span[1])

    def heard(self, entry: h.Heard) -> None:
        if entry.tick_live_id != self.live_id:
            return
        self._twice(self._hearing.settle())
        span = self._segment_spans.get(entry.segment)
        if span is None:
            self._wrong(f"{entry.process} is heard with a segment that was not fed")
            return
        self._twice(self._hearing.heard(entry, span))
        self._heard.setdefault(span, []).append((entry.begin, entry.end))
        if entry.last:
            self._whole.add(span)

    # -- the end

    def ended(self, settled: bool) -> None:
        self._twice(self._hearing.settle())
        if not settled:
            # Still to be made again, by an owner that it waits for.
            self._covered.extend(self._segments)
        upto = self._place(self._cursor) if settled else self._reached()
        missing = gap(self._covered, upto)
        if missing is not None:
            a, b = missing
            self._wrong(f"{self.text[a:b]!r} was released and never fed, skipped or dead-lettered")
        for offset in self._bad:
            if offset < self._cursor and not self._is_settled(offset):
                self._wrong(f"the bad record at {offset} was passed and has no dead letter")
        if not settled:
            return
        if not self._is_open:
            left = [one for one in self._unlettered if one >= self._cursor]
            left = [one for one in left if not self._is_settled(one)]
            if left:
                self._wrong(f"offset {left[-1]} was left behind by a closed live")
        for span in self._segment_spans.values():
            if span[1] > self._cut_to and span not in self._excused:
                self._all_heard(span)

    def _is_settled(self, offset: int) -> bool:
        return any(begin <= offset < end for begin, end in self._settled_offsets)

    def _all_heard(self, span: Span) -> None:
        heard = self._heard.get(span, [])
        text = self.text[span[0] : span[1]]
        if span not in self._whole:
            self._wrong(f"{text!r} was fed and not heard to its end")
        elif gap(heard, max(end for _, end in heard)) is not None:
            self._wrong(f"{text!r} was heard with a gap")
