"""Phonemes of the voice's alphabet and the visemes that they show.

The alphabet is misaki's (as in hibari-tts): IPA, with single letters for diphthongs (A eɪ, I aɪ,
O oʊ, Q əʊ, W aʊ, Y ɔɪ) and T for a flap. A diphthong moves from one viseme to another. What is not
listed (punctuation, spaces, pads) is a pause.

PURE.
"""

from enum import IntEnum
from typing import Final


class Viseme(IntEnum):
    """A shape of the mouth that one or more phonemes share."""

    REST = 0
    PP = 1  # p b m
    FF = 2  # f v
    TH = 3  # θ ð
    DD = 4  # t d n and the flap
    LL = 5  # l
    SS = 6  # s z
    CH = 7  # ʃ ʒ ʧ ʤ
    KK = 8  # k ɡ ŋ
    RR = 9  # ɹ
    WW = 10  # w
    YY = 11  # j
    HH = 12  # h: the shape of its neighbours
    AA = 13  # ɑ a
    AE = 14  # æ
    AH = 15  # ʌ ə
    EH = 16  # ɛ
    ER = 17  # ɜ ɚ
    IH = 18  # ɪ
    IY = 19  # i
    OH = 20  # ɔ
    UH = 21  # ʊ
    UW = 22  # u


VOWELS: Final = frozenset(Viseme(value) for value in range(Viseme.AA, Viseme.UW + 1))
OPEN_VOWELS: Final = frozenset({Viseme.AA, Viseme.AE, Viseme.AH, Viseme.EH, Viseme.OH})
CLOSURES: Final = frozenset({Viseme.PP})

_ONE: Final[dict[Viseme, str]] = {
    Viseme.PP: "pbmɸβ",
    Viseme.FF: "fvʋ",
    Viseme.TH: "θð",
    Viseme.DD: "tdnTɾɖʈɳɲɟcɽ",
    Viseme.LL: "lʎ",
    Viseme.SS: "szʦʣ",
    Viseme.CH: "ʃʒʧʤɕʑʂʨʥçʝ",
    Viseme.KK: "kɡŋqxχɣɰɴʔS",
    Viseme.RR: "ɹɻrʁ",
    Viseme.WW: "w",
    Viseme.YY: "jɥ",
    Viseme.HH: "h",
    Viseme.AA: "ɑaɒ",
    Viseme.AE: "æ",
    Viseme.AH: "ʌəɐᵊ",
    Viseme.EH: "ɛe",
    Viseme.ER: "ɜɚøœ",
    Viseme.IH: "ɪᵻɨ",
    Viseme.IY: "iy",
    Viseme.OH: "ɔo",
    Viseme.UH: "ʊɤɯ",
    Viseme.UW: "u",
}
_DIPHTHONGS: Final[dict[str, tuple[Viseme, Viseme]]] = {
    "A": (Viseme.EH, Viseme.IY),
    "I": (Viseme.AA, Viseme.IH),
    "O": (Viseme.OH, Viseme.UW),
    "Q": (Viseme.AH, Viseme.UW),
    "W": (Viseme.AA, Viseme.UW),
    "Y": (Viseme.OH, Viseme.IH),
}
DIPHTHONG_TURN: Final = 0.6
"""The share of a diphthong that its first half takes."""

_VISEMES: Final[dict[int, tuple[Viseme, ...]]] = {
    **{ord(symbol): (viseme,) for viseme, symbols in _ONE.items() for symbol in symbols},
    **{ord(symbol): both for symbol, both in _DIPHTHONGS.items()},
}


def visemes_of(code_point: int) -> tuple[Viseme, ...]:
    """One viseme, two for a diphthong; REST for what is not a phoneme."""
    return _VISEMES.get(code_point, (Viseme.REST,))
