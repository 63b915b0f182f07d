"""WebVTT (https://www.w3.org/TR/webvtt1/) of what was spoken, each word with its time.

PURE.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from dhsched.offline.word_times import Word
from schemas.media import SAMPLE_RATE_HZ

HEADER: Final = "WEBVTT\n"
CHARS_PER_LINE_MAX: Final = 42
LINES_MAX: Final = 2


@dataclass(frozen=True, slots=True)
class Spoken:
    """A segment as it was heard: its sample 0 at `at_ms` of the film, `samples` of it (24 kHz)."""

    at_ms: int
    samples: int
    words: Sequence[Word]


def cues_of(spoken: Spoken) -> str:
    """The segment's cues, each two lines at most. What was cut off is left out."""
    heard = [word for word in spoken.words if word.start < spoken.samples]
    parts: list[str] = []
    for lines in _screens(heard):
        words = [word for line in lines for word in line]
        start = _ms(spoken, words[0].start)
        end = max(_ms(spoken, min(words[-1].end, spoken.samples)), start + 1)
        text = "\n".join(_line(spoken, line, first=line is lines[0]) for line in lines)
        parts.append(f"\n{_time(start)} --> {_time(end)}\n{text}\n")
    return "".join(parts)


def _line(spoken: Spoken, words: Sequence[Word], *, first: bool) -> str:
    """Every word but a cue's first is preceded by its time, as the format wants it."""
    timed = [
        _escaped(word.text)
        if first and at == 0
        else f"<{_time(_ms(spoken, word.start))}>{_escaped(word.text)}"
        for at, word in enumerate(words)
    ]
    return " ".join(timed)


def _screens(words: Iterable[Word]) -> list[list[list[Word]]]:
    lines: list[list[Word]] = []
    width = 0
    for word in words:
        if lines and width + 1 + len(word.text) <= CHARS_PER_LINE_MAX:
            lines[-1].append(word)
            width += 1 + len(word.text)
        else:
            lines.append([word])
            width = len(word.text)
    return [lines[at : at + LINES_MAX] for at in range(0, len(lines), LINES_MAX)]


def _ms(spoken: Spoken, sample: int) -> int:
    return spoken.at_ms + sample * 1000 // SAMPLE_RATE_HZ


def _time(ms: int) -> str:
    seconds, ms = divmod(ms, 1000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{seconds:02}.{ms:03}"


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
