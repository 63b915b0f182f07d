"""Where a piece of running text may be cut, so that each piece is about a sentence.

The decision at a character depends only on the text from the segment's begin to `MARGIN_CHARS`
behind it, never on how the text arrived. Where that much is not known yet, nothing is decided.

- A sentence ends at `. ! ? …` (with closing quotes) before white space, at 。！？ always, not at
  abbreviations, initials, decimals, list numbers, nor at an ellipsis that goes on in lower case.
- A blank line and the start of a list item end it as well.
- The first segment of a turn that grows long ends at a clause, as the first sound is waited for.
- At the hard maximum it ends at a clause, else at a word, else between two characters.

PURE.
"""

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final, final

from schemas.value import Value

LOOKAHEAD_CHARS: Final = 16
"""How far behind a mark is looked for each of: further marks, closing quotes, white space."""
MARGIN_CHARS: Final = 3 * LOOKAHEAD_CHARS
"""What must be known behind the hard limit before a cut there is certain."""

_STRONG: Final = ".!?…。！？｡．"
_CJK_STOPS: Final = "。！？｡．"
_CLAUSE: Final = ",;:—、，；："
_CJK_CLAUSE: Final = "—、，；："
_CLOSERS: Final = "\"'”’»)]}」』】）》"
_LIST_MARKS: Final = "-*•–"
_CANDIDATE: Final = re.compile(f"[{re.escape(_STRONG + _CLAUSE)}\n]")
_HEARD: Final = re.compile(r"[^\W_]")  # What `str.isalnum` says of a character.
_WORD_BEFORE: Final = re.compile(r"[^\s\"'“‘«(\[]*$")
_DOTTED: Final = re.compile(r"[A-Za-z](\.[A-Za-z])+")
_NOT_AT_END: Final = frozenset(
    [
        "mr",
        "mrs",
        "ms",
        "mx",
        "dr",
        "prof",
        "st",
        "mt",
        "rev",
        "gen",
        "col",
        "capt",
        "lt",
        "sgt",
        "hon",
        "messrs",
        "vs",
        "cf",
        "approx",
        "ca",
        "fig",
        "figs",
        "eq",
        "vol",
        "pp",
        "ed",
        "eds",
        "dept",
        "hr",
        "fr",
        "bzw",
        "usw",
        "z.b",
        "d.h",
        "u.a",
        "sra",
        "srta",
        "av",
        "mme",
        "mlle",
    ]
)


@dataclass(frozen=True, slots=True)
class SegmenterLimits:
    """Lengths in characters. `settled_ms`: how long a finished sentence waits for what might still
    belong to it (a quote, a further mark); `quiet_ms`: how long an unfinished one waits."""

    chars_max: int = 240
    first_chars: int = 60
    clause_chars_min: int = 16
    quiet_ms: int = 400
    settled_ms: int = 60


@final
class Found(Value):
    """`cut` is the index behind the piece, None while undecided; go on searching from `scan`.
    `clause` is the last place seen where a clause ends, -1 for none."""

    __match_args__ = ("cut", "scan", "clause")
    __slots__ = __match_args__

    def __init__(self, cut: int | None, scan: int, clause: int) -> None:
        self.cut: Final = cut
        self.scan: Final = scan
        self.clause: Final = clause


class _Verdict(Enum):
    """What a mark turned out to be."""

    UNDECIDED = 0
    ENDS = 1
    CLAUSE_ENDS = 2
    GOES_ON = 3


def speakable(text: str, begin: int, end: int) -> bool:
    """Whether anything between the two would be heard: a letter or a digit of any script."""
    return _HEARD.search(text, begin, end) is not None


def no_mark(text: str, begin: int, scan: int, at: SegmenterLimits) -> bool:
    """Whether neither a mark from `scan` on nor the hard limit could end `text[begin:]`."""
    limit = begin + at.chars_max - MARGIN_CHARS
    return len(text) <= limit and _CANDIDATE.search(text, scan) is None


def find_cut(
    text: str, begin: int, scan: int, clause: int, *, first: bool, final: bool, at: SegmenterLimits
) -> Found:
    """The first cut of `text[begin:]`, searching from `scan` on. `final`: no more text follows."""
    known = len(text)
    limit = begin + at.chars_max - MARGIN_CHARS
    first_limit = begin + at.first_chars if first else limit
    while True:
        match = _CANDIDATE.search(text, scan, limit)
        here = match.start() if match else min(limit, known)
        if clause >= 0 and first and here >= first_limit:
            return Found(clause, clause, -1)
        if match is None:
            if known >= limit + MARGIN_CHARS or (final and known > limit):
                cut = _hard_cut(text, begin, limit, clause)
                return Found(cut, cut, -1)
            return Found(known if final else None, here, clause)
        verdict, end = _judge(text, begin, here, final=final)
        if verdict is _Verdict.UNDECIDED:
            return Found(known if final else None, here, clause)
        if verdict is _Verdict.ENDS:
            return Found(end, end, -1)
        if verdict is _Verdict.CLAUSE_ENDS and end - begin >= at.clause_chars_min:
            if first and end >= first_limit:
                return Found(end, end, -1)
            clause = end
        scan = end


def _judge(text: str, begin: int, here: int, *, final: bool) -> tuple[_Verdict, int]:
    """What the character at `here` means, and where to go on."""
    mark = text[here]
    if mark == "\n":
        return _judge_line_end(text, begin, here, final=final)
    if mark in _CLAUSE:
        end = here + 1
        if mark in _CJK_CLAUSE:
            return _Verdict.CLAUSE_ENDS, end
        if end == len(text):
            return _Verdict.UNDECIDED, end
        return (_Verdict.CLAUSE_ENDS if text[end].isspace() else _Verdict.GOES_ON), end
    return _judge_stop(text, begin, here, final=final)


def _judge_line_end(text: str, begin: int, here: int, *, final: bool) -> tuple[_Verdict, int]:
    end = _run(text, here, str.isspace)
    if end == len(text) and end - here < LOOKAHEAD_CHARS and not final:
        return _Verdict.UNDECIDED, end
    if not speakable(text, begin, here):
        return _Verdict.GOES_ON, end
    new_item = end < len(text) and (text[end] in _LIST_MARKS or text[end].isdigit())
    if text.count("\n", here, end) > 1 or new_item:
        return _Verdict.ENDS, here
    return _Verdict.CLAUSE_ENDS, here + 1


def _judge_stop(text: str, begin: int, here: int, *, final: bool) -> tuple[_Verdict, int]:
    stop = _run(text, here, _STRONG.__contains__)
    end = _run(text, stop, _CLOSERS.__contains__)
    if end == len(text):
        # Nothing behind it is known: more marks, a quote or a decimal may follow.
        return (_Verdict.ENDS if final else _Verdict.UNDECIDED), end
    if not speakable(text, begin, here):
        return _Verdict.GOES_ON, end
    marks = text[here:stop]
    if any(mark in _CJK_STOPS for mark in marks):
        return _Verdict.ENDS, end
    follows = text[end]
    if not follows.isspace():
        broken_off = follows.isupper() and ("!" in marks or "?" in marks)
        other_script = follows.isalpha() and ord(follows) >= 0x2E80
        return (_Verdict.ENDS if broken_off or other_script else _Verdict.GOES_ON), end
    if marks == ".":
        return (_Verdict.GOES_ON if is_abbreviated(text, begin, here) else _Verdict.ENDS), end
    if set(marks) <= {".", "…"}:
        word = _run(text, end, str.isspace)
        if word == len(text) and word - end < LOOKAHEAD_CHARS and not final:
            return _Verdict.UNDECIDED, end
        if word < len(text) and text[word].islower():
            return _Verdict.CLAUSE_ENDS, end
    return _Verdict.ENDS, end


def _run(text: str, start: int, belongs: Callable[[str], bool]) -> int:
    """The index behind the run that begins at `start`, looking ahead a bounded way."""
    end = start
    stop = min(len(text), start + LOOKAHEAD_CHARS)
    while end < stop and belongs(text[end]):
        end += 1
    return end


def is_abbreviated(text: str, begin: int, dot: int) -> bool:
    """Whether the full stop at `dot` belongs to its word and does not end a sentence."""
    match = _WORD_BEFORE.search(text, max(begin, dot - LOOKAHEAD_CHARS), dot)
    word = match.group() if match else ""
    if len(word) == 1 and word.isalpha():
        return word != "I"
    if word.isdigit():
        return len(word) <= 3 and not text[begin : dot - len(word)].strip()
    return word.lower() in _NOT_AT_END or _DOTTED.fullmatch(word) is not None


def ends_sentence(text: str, begin: int) -> bool:
    """Whether the known text ends like a finished sentence, so that it need not wait long."""
    end = len(text)
    while end > begin and (text[end - 1].isspace() or text[end - 1] in _CLOSERS):
        end -= 1
    if end == begin or text[end - 1] not in _STRONG or not speakable(text, begin, end):
        return False
    if text[end - 1] == "…" or text[end - 2 : end] == "..":
        return False
    if text[end - 1] != ".":
        return True
    # Behind a digit a decimal may follow, in a stream that comes token by token.
    return not text[end - 2].isdigit() and not is_abbreviated(text, begin, end - 1)


def skip_space(text: str, end: int, stop: int) -> int:
    """White space that follows a cut goes with it, as far as it is known and up to `stop`."""
    while end < min(len(text), stop) and text[end].isspace():
        end += 1
    return end


def _hard_cut(text: str, begin: int, limit: int, clause: int) -> int:
    """At most `limit`, in its second half, so that no character is looked at often."""
    half = begin + (limit - begin) // 2
    if clause > half:
        return clause
    for at in range(limit, half, -1):
        if text[at - 1].isspace():
            return at
    cut = limit
    while cut > half and _joined(text, cut):
        cut -= 1
    return cut


def _joined(text: str, cut: int) -> bool:
    """Whether the characters around `cut` are drawn and spoken as one."""
    after = text[cut] if cut < len(text) else " "
    return unicodedata.combining(after) != 0 or after in "\u200d\ufe0f" or text[cut - 1] == "\u200d"
