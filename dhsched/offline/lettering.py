"""Capital letters, digits and a few signs as dots, to label a picture without any font.

PURE.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

GLYPH_ROWS: Final = 7
GLYPH_COLUMNS: Final = 5

# Each glyph is seven rows of five dots, the leftmost dot in the highest of five bits.
_GLYPHS: Final[dict[str, tuple[int, ...]]] = {
    " ": (0, 0, 0, 0, 0, 0, 0),
    "-": (0, 0, 0, 31, 0, 0, 0),
    "_": (0, 0, 0, 0, 0, 0, 31),
    ".": (0, 0, 0, 0, 0, 12, 12),
    ",": (0, 0, 0, 0, 12, 4, 8),
    ":": (0, 12, 12, 0, 12, 12, 0),
    "/": (1, 1, 2, 4, 8, 16, 16),
    "+": (0, 4, 4, 31, 4, 4, 0),
    "=": (0, 0, 31, 0, 31, 0, 0),
    "(": (2, 4, 8, 8, 8, 4, 2),
    ")": (8, 4, 2, 2, 2, 4, 8),
    "?": (14, 17, 1, 2, 4, 0, 4),
    "0": (14, 17, 19, 21, 25, 17, 14),
    "1": (4, 12, 4, 4, 4, 4, 14),
    "2": (14, 17, 1, 2, 4, 8, 31),
    "3": (31, 2, 4, 2, 1, 17, 14),
    "4": (2, 6, 10, 18, 31, 2, 2),
    "5": (31, 16, 30, 1, 1, 17, 14),
    "6": (6, 8, 16, 30, 17, 17, 14),
    "7": (31, 1, 2, 4, 8, 8, 8),
    "8": (14, 17, 17, 14, 17, 17, 14),
    "9": (14, 17, 17, 15, 1, 2, 12),
    "A": (14, 17, 17, 31, 17, 17, 17),
    "B": (30, 17, 17, 30, 17, 17, 30),
    "C": (14, 17, 16, 16, 16, 17, 14),
    "D": (28, 18, 17, 17, 17, 18, 28),
    "E": (31, 16, 16, 30, 16, 16, 31),
    "F": (31, 16, 16, 30, 16, 16, 16),
    "G": (14, 17, 16, 23, 17, 17, 15),
    "H": (17, 17, 17, 31, 17, 17, 17),
    "I": (14, 4, 4, 4, 4, 4, 14),
    "J": (7, 2, 2, 2, 2, 18, 12),
    "K": (17, 18, 20, 24, 20, 18, 17),
    "L": (16, 16, 16, 16, 16, 16, 31),
    "M": (17, 27, 21, 21, 17, 17, 17),
    "N": (17, 17, 25, 21, 19, 17, 17),
    "O": (14, 17, 17, 17, 17, 17, 14),
    "P": (30, 17, 17, 30, 16, 16, 16),
    "Q": (14, 17, 17, 17, 21, 18, 13),
    "R": (30, 17, 17, 30, 20, 18, 17),
    "S": (15, 16, 16, 14, 1, 1, 30),
    "T": (31, 4, 4, 4, 4, 4, 4),
    "U": (17, 17, 17, 17, 17, 17, 14),
    "V": (17, 17, 17, 17, 17, 10, 4),
    "W": (17, 17, 17, 21, 21, 21, 10),
    "X": (17, 17, 10, 4, 10, 17, 17),
    "Y": (17, 17, 17, 10, 4, 4, 4),
    "Z": (31, 1, 2, 4, 8, 16, 31),
}


def label(text: str, *, width: int, scale: int = 2) -> NDArray[np.uint8]:
    """The text as a picture, uint8 [height, width] of 0 and 1, cut off where it is too long.

    The height is that of a glyph with a margin of three dots above and below. A sign that is not
    known stands as a question mark.
    """
    rows = GLYPH_ROWS + 6
    dots = np.zeros((rows, max(1, width // scale)), np.uint8)
    for at, sign in enumerate(text.upper()):
        left = 3 + at * (GLYPH_COLUMNS + 1)
        if left + GLYPH_COLUMNS > dots.shape[1]:
            break
        for row, bits in enumerate(_GLYPHS.get(sign, _GLYPHS["?"])):
            for column in range(GLYPH_COLUMNS):
                dots[3 + row, left + column] = bits >> (GLYPH_COLUMNS - 1 - column) & 1
    picture = np.repeat(np.repeat(dots, scale, axis=0), scale, axis=1)
    return np.pad(picture, ((0, 0), (0, width - picture.shape[1])))
