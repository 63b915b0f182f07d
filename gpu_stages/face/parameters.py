"""The face's parameters: what motion writes and render reads, one float32 vector per tick.

Named after the blendshapes that face capture has made common, reduced to what one head needs.
All are 0 at rest; the range is given for each. Left and right are the face's own.

PURE.
"""

from enum import IntEnum
from typing import Final


class Face(IntEnum):
    """Index of a parameter in the vector of `FACE_PARAMETERS` float32 values."""

    JAW_OPEN = 0  # 0..1
    LIPS_CLOSED = 1  # 0..1, 1 presses the lips together whatever the jaw does (p, b, m)
    LIPS_ROUND = 2  # 0..1, pucker (w, u)
    LIPS_WIDE = 3  # 0..1, corners apart (i, e)
    LIP_UPPER_RAISE = 4  # 0..1, shows the upper teeth
    LIP_LOWER_DROP = 5  # 0..1, shows the lower teeth
    LIP_LOWER_TUCK = 6  # 0..1, lower lip under the upper teeth (f, v)
    TONGUE_UP = 7  # 0..1, tongue tip at the teeth (l, n, t, d)
    TONGUE_OUT = 8  # 0..1, tongue between the teeth (th)
    SMILE = 9  # -1..1
    BROW_UP_LEFT = 10  # -1..1
    BROW_UP_RIGHT = 11  # -1..1
    BROW_FURROW = 12  # 0..1
    BLINK_LEFT = 13  # 0..1, 1 is a closed eye
    BLINK_RIGHT = 14  # 0..1
    SQUINT = 15  # 0..1
    GAZE_X = 16  # -1..1, about +-25 degrees, positive to the face's left
    GAZE_Y = 17  # -1..1, positive is up
    HEAD_YAW = 18  # radians
    HEAD_PITCH = 19  # radians, positive nods down
    HEAD_ROLL = 20  # radians
    HEAD_X = 21  # -1..1, a head's width
    HEAD_Y = 22  # -1..1
    BREATH = 23  # 0..1, shoulders rise


FACE_PARAMETERS: Final = len(Face)
