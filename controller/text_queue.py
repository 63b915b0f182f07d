"""What was read of a live and is not released yet, and the next step that may be released.

Records stand in offset order, and leave in offset order: a text record when a segment touches it, a
mark (END_TURN) or a refused record when all text before it is in segments. A refused record leaves
only after its dead letter is in the log. CLOSE never leaves by a step: it ends the queue.

PURE.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

from controller.events import Accepted, Incoming, Refused
from controller.segmenter import Cut, Segmenter, SegmenterLimits
from schemas.bad_record import DeadLetterReason
from schemas.text_record import RecordKind
from schemas.value import Value

LETTERS_AT_ONCE: Final = 64
_TEXT: Final = RecordKind.TEXT


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """How much of one live is kept in memory, and how much one commit may carry.

    A model's answer comes token by token and much faster than it is spoken; what finds no room is
    read from the log again. A record of a word takes some 430 bytes here.
    """

    records_max: int = 1_024
    chars_max: int = 16_384
    cuts_per_step_max: int = 16
    records_per_step_max: int = 1_024


@final
class Step(Value):
    """What one commit may let go: the cursor's new place and the segments that come with it.

    `version` tells whether the queue is still the one that this was planned on.
    """

    __match_args__ = ("next_offset", "last_seq", "next_char", "cuts", "entries", "version")
    __slots__ = __match_args__

    def __init__(
        self,
        next_offset: int,
        last_seq: int | None,
        next_char: int,
        cuts: tuple[Cut, ...],
        entries: int,
        version: int,
    ) -> None:
        self.next_offset: Final = next_offset
        self.last_seq: Final = last_seq
        self.next_char: Final = next_char
        self.cuts: Final = cuts
        self.entries: Final = entries
        self.version: Final = version


class _Draft:
    """A step while it is being planned."""

    __slots__ = ("cuts", "entries", "last_seq", "next_char", "next_offset", "spoken")

    def __init__(self, next_offset: int, last_seq: int | None, next_char: int) -> None:
        self.next_offset = next_offset
        self.last_seq = last_seq
        self.next_char = next_char
        self.entries = self.spoken = 0
        self.cuts: list[Cut] = []

    def leave(self, entries: Sequence[Incoming]) -> None:
        for entry in entries:
            seq = entry.record.seq if isinstance(entry, Accepted) else None
            if seq is not None and (self.last_seq is None or seq > self.last_seq):
                self.last_seq = seq
        if entries:
            self.next_offset = entries[-1].offset + 1
            self.entries += len(entries)

    def take(self, cut: Cut) -> None:
        self.next_char = -1 if cut.whole else cut.bounds.end_char
        self.spoken += cut.speak
        self.cuts.append(cut)

    def step(self, version: int) -> Step | None:
        if not self.entries and not self.cuts:
            return None
        return Step(
            self.next_offset,
            self.last_seq,
            self.next_char,
            tuple(self.cuts),
            self.entries,
            version,
        )


class TextQueue:
    """One live's unreleased records and segments.

    Invariants: `_entries` are in offset order, all at or above the cursor; `_ready` are the cuts in
    order, the first begins where released text ends; `next_char` is -1 or how many characters of
    the record below the cursor are in released segments; what the segmenter holds lies behind the
    last cut; `_unsent` are the refused records, by offset, whose dead letters are not in the log.
    """

    def __init__(
        self,
        limits: QueueLimits,
        segmenter: SegmenterLimits,
        *,
        cursor: int,
        last_seq: int | None,
        next_char: int = -1,
        first_of_turn: bool = True,
    ) -> None:
        self._limits = limits
        self._segmenter = Segmenter(segmenter, first_of_turn=first_of_turn)
        self._entries: deque[Incoming] = deque()
        self._unsent: dict[int, Refused] = {}
        self._ready: deque[Cut] = deque()
        self._size = 0
        self._version = 0
        self._numbered = False
        self.cursor = cursor
        self.last_seq = last_seq
        self.next_char = next_char

    # -- what it holds

    @property
    def room(self) -> tuple[int, int]:
        """How many more records and characters may be kept."""
        return self._limits.records_max - len(self._entries), self._limits.chars_max - self._size

    @property
    def roomy(self) -> bool:
        """Whether half of what may be kept is free."""
        records, chars = self.room
        return 2 * records >= self._limits.records_max and 2 * chars >= self._limits.chars_max

    @property
    def ready(self) -> int:
        """Segments that are cut and not released."""
        return len(self._ready)

    @property
    def empty(self) -> bool:
        """Whether nothing unreleased is left, half a sentence included."""
        return not self._entries and not self._ready and not self._segmenter.open

    @property
    def first_unreleased(self) -> int | None:
        """The lowest offset kept and not released, for the partition's watermark."""
        return self._entries[0].offset if self._entries else None

    @property
    def close_next(self) -> Accepted | None:
        """The CLOSE record, once nothing but it is left."""
        if not self._entries or self._ready or self._segmenter.open:
            return None
        head = self._entries[0]
        if isinstance(head, Refused) or head.record.kind is not RecordKind.CLOSE:
            return None
        return head

    @property
    def deadline_ms(self) -> int | None:
        """When `time_passed` will cut what is open."""
        return self._segmenter.deadline_ms

    # -- what comes in

    def take(self, batch: Sequence[Incoming], now_ms: int) -> None:
        """Records behind all before them. Texts that follow one another are looked at together,
        for a token stream brings a segment in many.
        """
        run: list[Accepted] = []
        for incoming in batch:
            if isinstance(incoming, Accepted) and incoming.record.kind is _TEXT:
                run.append(incoming)
                continue
            if run:
                self._take_texts(run, now_ms)
                run = []
            if isinstance(incoming, Refused):
                self._take_refused(incoming)
            else:
                self._take_mark(incoming)
        if run:
            self._take_texts(run, now_ms)

    def _take_texts(self, run: Sequence[Accepted], now_ms: int) -> None:
        self._entries.extend(run)
        texts: list[tuple[int, str, str]] = []
        for accepted in run:
            record = accepted.record
            text = record.text
            texts.append((accepted.offset, text, record.event_id))
            self._size += len(text)
        cuts = self._segmenter.feed_all(texts, now_ms)
        if cuts:
            end = cuts[-1].bounds.end_offset
            run = [accepted for accepted in run if accepted.offset >= end]
        numbered = any(accepted.record.seq is not None for accepted in run)
        if cuts:
            self._add(cuts, numbered_after=numbered)
        else:
            self._numbered = self._numbered or numbered

    def _take_mark(self, accepted: Accepted) -> None:
        self._entries.append(accepted)
        self._add(self._segmenter.end_turn(), numbered_after=False)

    def _take_refused(self, refused: Refused) -> None:
        if refused.reason is DeadLetterReason.DUPLICATE_SEQ and not self._numbered:
            # A new owner re-reads a segment from its first record. It sees that this one is a
            # duplicate only if a numbered record of the same segment stands before it.
            self._add(self._segmenter.flush(), numbered_after=False)
        self._entries.append(refused)
        self._unsent[refused.offset] = refused
        self._size += _size_of(refused)

    def resume(self, offset: int, text: str, now_ms: int, source_event_id: str) -> None:
        """The record below the cursor, of which segments hold `next_char` characters already."""
        cuts = self._segmenter.feed(offset, text, now_ms, source_event_id, self.next_char)
        self._add(cuts, numbered_after=False)

    def begin_turn(self) -> None:
        """The next text begins a turn; only where nothing is left of the last one."""
        if self.empty:
            self._segmenter.begin_turn()

    def time_passed(self, now_ms: int) -> None:
        """Cut what waited long enough for more text."""
        self._add(self._segmenter.due(now_ms), numbered_after=False)

    def _add(self, cuts: Sequence[Cut], *, numbered_after: bool) -> None:
        if cuts:
            self._ready.extend(cuts)
            self._numbered = numbered_after and self._segmenter.open

    def letter_sent(self, offset: int) -> None:
        """The dead letter of this record is in the log."""
        self._unsent.pop(offset, None)

    # -- what goes out

    def has_step(self, segments_max: int) -> bool:
        """Whether `plan` would find something; letters to be sent are something."""
        cut = self._ready[0] if self._ready else None
        if cut is not None and (segments_max > 0 or not cut.speak):
            return True
        return bool(self._entries) and self._is_mark_next(self._entries[0], cut, self.next_char)

    def plan(self, segments_max: int) -> tuple[Step | None, tuple[Refused, ...]]:
        """The largest step with at most `segments_max` spoken segments, None when there is none,
        and the refused records whose dead letters it waits for."""
        draft = _Draft(self.cursor, self.last_seq, self.next_char)
        letters: list[Refused] = []
        while draft.entries < self._limits.records_per_step_max:
            at = len(draft.cuts)
            cut = self._ready[at] if at < len(self._ready) else None
            head = self._entries[draft.entries] if draft.entries < len(self._entries) else None
            if head is not None and self._is_mark_next(head, cut, draft.next_char):
                letters = self._leading_letters(draft.entries)
                if letters:
                    break
                draft.leave((head,))
                continue
            if cut is None or at >= self._limits.cuts_per_step_max:
                break
            if cut.speak and draft.spoken >= segments_max:
                break
            touched = self._touched(draft.entries, cut)
            if self._unsent:
                letters = [
                    self._unsent[one.offset] for one in touched if one.offset in self._unsent
                ]
            if letters:
                break
            draft.leave(touched)
            draft.take(cut)
        return draft.step(self._version), tuple(letters)

    def _is_mark_next(self, head: Incoming, cut: Cut | None, next_char: int) -> bool:
        """Whether `head` is no text, and all text before it is in released segments."""
        if next_char != -1:
            return False
        if isinstance(head, Accepted) and head.record.kind in (RecordKind.TEXT, RecordKind.CLOSE):
            return False
        return cut is None or cut.bounds.start_offset > head.offset

    def _touched(self, taken: int, cut: Cut) -> list[Incoming]:
        """The entries that a cut's release moves the cursor past."""
        found: list[Incoming] = []
        for at in range(taken, len(self._entries)):
            entry = self._entries[at]
            if entry.offset > cut.bounds.end_offset:
                break
            found.append(entry)
        return found

    def _leading_letters(self, taken: int) -> list[Refused]:
        """The run of refused records from `taken` on, so that their dead letters go together."""
        run: list[Refused] = []
        for at in range(taken, min(len(self._entries), taken + LETTERS_AT_ONCE)):
            letter = self._unsent.get(self._entries[at].offset)
            if letter is None:
                break
            run.append(letter)
        return run

    def done(self, step: Step) -> None:
        """The step was committed."""
        self.cursor, self.last_seq, self.next_char = step.next_offset, step.last_seq, step.next_char
        if step.version != self._version:
            return
        leave = self._entries.popleft
        self._size -= sum([_size_of(leave()) for _ in range(step.entries)])
        for _ in step.cuts:
            self._ready.popleft()

    def skip_to(self, next_offset: int, last_seq: int | None) -> None:
        """The cursor was moved past everything that is kept below it (interrupt, lost log)."""
        self.cursor, self.last_seq = next_offset, _later(self.last_seq, last_seq)
        self.next_char = -1

    def clear(self) -> None:
        """Forget everything that is kept: an INTERRUPT stands behind it. A new turn begins."""
        self._entries.clear()
        self._unsent.clear()
        self._ready.clear()
        self._segmenter.reset()
        self._size = 0
        self._numbered = False
        self._version += 1


def _size_of(incoming: Incoming) -> int:
    """What it counts against `chars_max`."""
    if isinstance(incoming, Accepted):
        return len(incoming.record.text)
    return len(incoming.value or b"")


def _later(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    return max(one, other)
