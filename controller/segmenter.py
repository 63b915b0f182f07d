"""Gathers the text of successive records into segments, about a sentence each.

Bounds are exact: the segments of a live tile its text without a gap, and `cut_text` makes the same
text from the same records again. A token stream (one word per record) is cut as soon as its first
sentence is whole. Every character is looked at a bounded number of times.

PURE.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final, final

from controller.sentence_ends import (
    SegmenterLimits,
    ends_sentence,
    find_cut,
    no_mark,
    skip_space,
    speakable,
)
from schemas.store_values import SegmentBounds
from schemas.value import Value

__all__ = ["Cut", "Segmenter", "SegmenterLimits", "TextMissing", "cut_text"]


class TextMissing(LookupError):
    """A record that a segment was made of is not there any more (retention, compaction)."""


@final
class Cut(Value):
    """One segment. Its start names its first character, its end lies behind its last one.

    `whole`: the record at `bounds.end_offset` is used up. `speak` is False for white space and
    other text that nobody would hear. `ends_turn`: an END_TURN follows it.
    """

    __match_args__ = ("bounds", "text", "source_event_id", "whole", "speak", "ends_turn")
    __slots__ = __match_args__

    def __init__(
        self,
        bounds: SegmentBounds,
        text: str,
        source_event_id: str,
        whole: bool,
        speak: bool,
        ends_turn: bool = False,
    ) -> None:
        self.bounds: Final = bounds
        self.text: Final = text
        self.source_event_id: Final = source_event_id
        self.whole: Final = whole
        self.speak: Final = speak
        self.ends_turn: Final = ends_turn

    def ending_turn(self) -> "Cut":
        """The same, with an END_TURN behind it."""
        return Cut(
            self.bounds, self.text, self.source_event_id, self.whole, self.speak, ends_turn=True
        )


_Piece = tuple[int, int, int, int, str]
"""The text of one record: where it begins and ends in all text that ever was, the record's offset,
which character of the record the first one is, and its event's id. One is made for every record."""


class Segmenter:
    """One live's text that is not yet cut.

    Invariants: `_text[_begin:]` is the open text, at most `chars_max` characters after any call;
    the pieces tile it in order; nothing before `_scan` ends a segment; `_clause` is -1 or the last
    place in the open text before `_scan` where a clause ends.
    """

    def __init__(self, limits: SegmenterLimits, *, first_of_turn: bool = True) -> None:
        self._limits = limits
        self._text = ""
        self._gone = 0
        """How many characters were dropped in front of `_text`."""
        self._begin = 0
        self._scan = 0
        self._clause = -1
        self._pieces: deque[_Piece] = deque()
        self._first = first_of_turn
        self._last_text_ms = 0
        self._settled: bool | None = None
        """Whether the open text ends like a sentence; None: to be looked up."""

    @property
    def open(self) -> bool:
        """Whether there is text that no segment holds yet."""
        return self._begin < len(self._text)

    @property
    def open_chars(self) -> int:
        """How much of it."""
        return len(self._text) - self._begin

    @property
    def deadline_ms(self) -> int | None:
        """When `due` will cut what is open, if no more text comes; None when nothing is open."""
        if not self.open:
            return None
        if self._settled is None:
            self._settled = ends_sentence(self._text, self._begin)
        limits = self._limits
        return self._last_text_ms + (limits.settled_ms if self._settled else limits.quiet_ms)

    def feed(
        self, offset: int, text: str, now_ms: int, source_event_id: str = "", from_char: int = 0
    ) -> list[Cut]:
        """Take the text of the record at `offset`, from its character `from_char` on."""
        if from_char >= len(text):
            return []
        self._last_text_ms = now_ms
        return self._add(
            offset, text[from_char:] if from_char else text, source_event_id, from_char
        )

    def feed_all(self, texts: Iterable[tuple[int, str, str]], now_ms: int) -> list[Cut]:
        """The same for successive records, each (offset, text, source_event_id).

        Each is looked at by itself, as if it had come alone: what a cut takes of the white space
        behind it depends on the records, and must not on how many of them a poll brought.
        """
        self._last_text_ms = now_ms
        cuts: list[Cut] = []
        for offset, text, source_event_id in texts:
            found = self._add(offset, text, source_event_id, 0)
            if found:
                cuts += found
        return cuts

    def _add(self, offset: int, added: str, source_event_id: str, char: int) -> list[Cut]:
        if self._begin:
            self._compact()
        at = self._gone + len(self._text)
        self._pieces.append((at, at + len(added), offset, char, source_event_id))
        self._text += added
        self._settled = None
        if (not self._first or self._clause < 0) and no_mark(
            self._text, self._begin, self._scan, self._limits
        ):
            # A word in the middle of a sentence, as most of a token stream are.
            self._scan = len(self._text)
            return []
        return self._cut_all(final=False)

    def end_turn(self) -> list[Cut]:
        """Cut all that is open: the producer says that nothing belongs to it any more."""
        cuts = self.flush()
        if cuts:
            cuts[-1] = cuts[-1].ending_turn()
        self._first = True
        return cuts

    def begin_turn(self) -> None:
        """What comes next is heard out of silence: its first segment is to be short."""
        self._first = True

    def flush(self) -> list[Cut]:
        """Cut all that is open."""
        return self._cut_all(final=True)

    def due(self, now_ms: int) -> list[Cut]:
        """Cut what is open when it waited long enough."""
        deadline_ms = self.deadline_ms
        return self.flush() if deadline_ms is not None and now_ms >= deadline_ms else []

    def reset(self) -> None:
        """Forget what is open; a new turn begins."""
        self._text = ""
        self._settled = None
        self._begin = self._scan = 0
        self._clause = -1
        self._pieces.clear()
        self._first = True

    def _compact(self) -> None:
        """Drop what was cut. Once per record, so that a long record is not copied per segment."""
        gone = self._begin
        self._text = self._text[gone:]
        self._gone += gone
        self._scan -= gone
        if self._clause >= 0:
            self._clause -= gone
        self._begin = 0

    def _cut_all(self, *, final: bool) -> list[Cut]:
        cuts: list[Cut] = []
        limits = self._limits
        while self.open:
            found = find_cut(
                self._text,
                self._begin,
                self._scan,
                self._clause,
                first=self._first,
                final=final,
                at=limits,
            )
            if found.cut is None:
                self._scan, self._clause = found.scan, found.clause
                break
            end = skip_space(self._text, found.cut, self._begin + limits.chars_max)
            cuts.append(self._take(end))
        return cuts

    def _take(self, end: int) -> Cut:
        begin, pieces = self._begin, self._pieces
        first, last = self._gone + begin, self._gone + end
        while pieces[0][1] <= first:
            pieces.popleft()
        # Of those that the cut uses up none is looked at again.
        begins_at, _, start_offset, start_char, source_event_id = pieces[0]
        while len(pieces) > 1 and pieces[1][0] < last:
            pieces.popleft()
        tail_at, tail_end, end_offset, end_char, _ = pieces[0]
        bounds = SegmentBounds(
            start_offset, start_char + first - begins_at, end_offset, end_char + last - tail_at
        )
        speak = speakable(self._text, begin, end)
        self._settled = None
        self._begin = self._scan = end
        self._clause = -1
        self._first = self._first and not speak
        return Cut(
            bounds=bounds,
            text=self._text[begin:end],
            source_event_id=source_event_id,
            whole=last == tail_end,
            speak=speak,
        )


def cut_text(texts: Sequence[tuple[int, str]], bounds: SegmentBounds) -> str:
    """The text of a segment, from (offset, text) of the accepted TEXT records in its range.

    Raises TextMissing when its first or last character is not there.
    """
    inside = [
        (offset, text)
        for offset, text in texts
        if bounds.start_offset <= offset <= bounds.end_offset
    ]
    lengths = {offset: len(text) for offset, text in inside}
    if lengths.get(bounds.start_offset, -1) < bounds.start_char:
        raise TextMissing(f"the record at {bounds.start_offset} is not there")
    if lengths.get(bounds.end_offset, -1) < bounds.end_char:
        raise TextMissing(f"the record at {bounds.end_offset} is not there")
    parts: list[str] = []
    for offset, text in inside:
        begin = bounds.start_char if offset == bounds.start_offset else 0
        end = bounds.end_char if offset == bounds.end_offset else len(text)
        parts.append(text[begin:end])
    return "".join(parts)
