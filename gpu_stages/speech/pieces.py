"""Cutting phonemes into pieces that the voice speaks in one go, and the pauses between them.

PURE.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

PIECE_PHONEMES_MAX: Final = 300
"""The model was made for at most 400; shorter pieces keep one long sentence from holding up the
other lives, and stay below a ring slot at half speed."""

_SENTENCE_ENDS: Final = frozenset(".!?…")
_CLAUSE_ENDS: Final = frozenset(",;:—")
_CLOSERS: Final = frozenset('"”)“( ')
_SPEAKABLE: Final = frozenset(
    "AIOQSTWYabcdefhijklmnopqrstuvwxyzɑɐɒæβɔɕçɖðʤəɚɛɜɟɡɥɨɪʝɯɰŋɳɲɴøɸθœɹɾɻʁɽʂʃʈʧʊʋʌɣɤχʎʒʣʥʦʨᵊᵻꭧ"
)


class PauseMs(IntEnum):
    """The pause that belongs to the end of a piece, after its last sound has died away."""

    SENTENCE = 160
    CLAUSE = 90
    NONE = 30


@dataclass(frozen=True, slots=True)
class Piece:
    """`phonemes` in the voice's alphabet, at most PIECE_PHONEMES_MAX; `pause_ms` follows it."""

    phonemes: str
    pause_ms: PauseMs


def speakable(phonemes: str) -> bool:
    """Whether there is anything to say: punctuation alone makes no sound."""
    return any(symbol in _SPEAKABLE for symbol in phonemes)


def pause_after(phonemes: str) -> PauseMs:
    """Told by the last punctuation mark, quotes and brackets aside."""
    for symbol in reversed(phonemes):
        if symbol in _CLOSERS:
            continue
        if symbol in _SENTENCE_ENDS:
            return PauseMs.SENTENCE
        return PauseMs.CLAUSE if symbol in _CLAUSE_ENDS else PauseMs.NONE
    return PauseMs.NONE


def pieces_of(sentences: list[str]) -> list[Piece]:
    """The pieces of the phonemes of some sentences, those with nothing to say left out."""
    texts = [text for sentence in sentences for text in _cut(sentence.strip())]
    return [Piece(text, pause_after(text)) for text in texts if speakable(text)]


def _cut(phonemes: str) -> list[str]:
    out: list[str] = []
    rest = phonemes
    while len(rest) > PIECE_PHONEMES_MAX:
        at = _best_cut(rest)
        out.append(rest[:at].strip())
        rest = rest[at:].strip()
    return [*out, rest] if rest else out


def _best_cut(text: str) -> int:
    """Behind the last clause of the first PIECE_PHONEMES_MAX, else between words, else anywhere."""
    head = text[:PIECE_PHONEMES_MAX]
    clause = max(head.rfind(mark + " ") for mark in _CLAUSE_ENDS)
    if clause >= PIECE_PHONEMES_MAX // 4:
        return clause + 1
    space = head.rfind(" ")
    return space if space > 0 else PIECE_PHONEMES_MAX
