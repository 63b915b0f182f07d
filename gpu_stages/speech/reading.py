"""Text made readable before the lexicon sees it.

The wheel's reader is made for prose. What breaks or stalls it (numbers beyond its words, words
without an end, invisible characters) is turned into something that can be said; what it cannot
read even so is read plainly: letters, digits one by one, simple punctuation.

PURE.
"""

import re
import unicodedata
from typing import Final

DIGITS_MAX: Final = 15  # beyond hundreds of billions, people read digits
WORD_CHARACTERS_MAX: Final = 40

_LONG_NUMBER: Final = re.compile(r"\d[\d,. ]*\d")
_LONG_WORD: Final = re.compile(rf"\S{{{WORD_CHARACTERS_MAX + 1},}}")
_NOT_PLAIN: Final = re.compile(r"[^\w\s.,;:!?'’-]|_")
_DIGIT: Final = re.compile(r"(\d)")
_SPACES: Final = re.compile(r"\s+")


def readable(text: str) -> str:
    """Without invisible characters, long numbers spelt, endless words cut."""
    kept = "".join(
        character
        for character in text
        if character in "\t\n\r" or unicodedata.category(character) not in ("Cc", "Cf", "Cn", "Co")
    )
    spelt = _LONG_NUMBER.sub(_spell_long, kept)
    return _LONG_WORD.sub(_cut_long, spelt)


def plain(text: str) -> str:
    """The last resort for a sentence: bare letters, digits one by one, simple punctuation."""
    bare = "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
    letters = _NOT_PLAIN.sub(" ", bare)
    return _SPACES.sub(" ", _DIGIT.sub(r" \1 ", letters)).strip()


def _spell_long(match: re.Match[str]) -> str:
    found = match.group()
    runs = re.split(r"[, .]+", found)
    if sum(map(len, runs)) <= DIGITS_MAX or (" " in found and max(map(len, runs)) <= DIGITS_MAX):
        return found
    return " ".join(" ".join(run) for run in runs)


def _cut_long(match: re.Match[str]) -> str:
    word = match.group()
    step = WORD_CHARACTERS_MAX
    return " ".join(word[begin : begin + step] for begin in range(0, len(word), step))
