"""When each word of a segment is heard, from the durations of its phonemes.

The voice tells the time of every phoneme, and a space where a word ends; the text tells the words.
Where both have the same number of words, they are the same words. Elsewhere (a figure is read as
several words, an abbreviation as its letters) words are laid over the sounds by their lengths, and
begin where a spoken word begins.

PURE.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

_LETTERS_PER_DIGIT: Final = 4
"""A digit is read as a word of about so many letters."""


@dataclass(frozen=True, slots=True)
class Word:
    """A word of the text, and the samples of its segment in which it is heard."""

    text: str
    start: int
    end: int


def spoken_words(phonemes: NDArray[np.void]) -> list[tuple[int, int]]:
    """(start, end) of each run of phonemes between spaces and marks, in samples."""
    words: list[tuple[int, int]] = []
    start, end = -1, -1
    for row in phonemes:
        symbol = chr(int(row["phoneme"]))
        if symbol == " ":
            if start >= 0:
                words.append((start, end))
            start = -1
        elif symbol.isalpha():
            start = int(row["start"]) if start < 0 else start
            end = int(row["end"])
    if start >= 0:
        words.append((start, end))
    return words


def words_of(text: str, phonemes: NDArray[np.void]) -> list[Word]:
    """The words of `text` in order. All of them, also when nothing of them is heard."""
    words = text.split()
    spoken = spoken_words(phonemes)
    if not words or not spoken:
        return [Word(word, 0, 0) for word in words]
    sounding = [any(map(str.isalnum, word)) for word in words]
    if sum(sounding) == len(spoken):
        times = iter(spoken)
        return _with_silent_ones(words, [next(times) if heard else None for heard in sounding])
    return _by_length(words, spoken)


def _with_silent_ones(words: Sequence[str], times: Sequence[tuple[int, int] | None]) -> list[Word]:
    """A word without letters (a dash) stands where the one before it ends."""
    placed: list[Word] = []
    at = 0
    for word, time in zip(words, times, strict=True):
        start, end = (at, at) if time is None else time
        placed.append(Word(word, start, end))
        at = end
    return placed


def _by_length(words: Sequence[str], spoken: Sequence[tuple[int, int]]) -> list[Word]:
    weights = [_weight(word) for word in words]
    lengths = [end - start for start, end in spoken]
    before = np.concatenate(([0], np.cumsum(lengths)))
    reach = np.cumsum(weights) / max(1, sum(weights)) * before[-1]
    placed: list[Word] = []
    first = 0
    for at, word in enumerate(words):
        last = at == len(words) - 1
        upto = len(spoken) if last else _nearest(before.tolist(), float(reach[at]), first)
        upto = max(upto, first)
        if upto > first:
            placed.append(Word(word, spoken[first][0], spoken[upto - 1][1]))
        else:
            here = spoken[min(first, len(spoken) - 1)][0]
            placed.append(Word(word, here, here))
        first = upto
    return placed


def _nearest(before: Sequence[float], wanted: float, first: int) -> int:
    """How many spoken words lie before `wanted`, to the nearest border."""
    at = bisect_left(before, wanted, lo=first)
    if at > first and at < len(before) and wanted - before[at - 1] < before[at] - wanted:
        return at - 1
    return min(at, len(before) - 1)


def _weight(word: str) -> int:
    letters = sum(map(str.isalpha, word))
    return letters + _LETTERS_PER_DIGIT * sum(map(str.isdigit, word))
