"""From the face vector to numbers: the head's rigid pose and the strengths of its expressions.

Plain floats, so that a live's numbers never depend on which others share its batch.

PURE.
"""

import math
from dataclasses import dataclass
from typing import Final

from gpu_stages.face.parameters import FACE_PARAMETERS, Face

PIVOT: Final = (0.0, -0.26, -0.08)
"""The joint of head and neck, in model units."""

EXPRESSIONS: Final = (
    "jaw",
    "smile",
    "frown",
    "round",
    "wide",
    "brow_left",
    "brow_right",
    "furrow",
    "squint",
    "raise",
)
"""The fields of `expression.fields`, in order."""

_HEAD_WIDTH: Final = 0.84
_TURN_MAX: Final = 0.60
_SHIFT_MAX: Final = 0.45


@dataclass(frozen=True, slots=True)
class Pose:
    """`screen = m @ (model - PIVOT) + PIVOT.xy + shift`, `m` row by row 2 x 3; y is up."""

    m: tuple[float, float, float, float, float, float]
    shift_x: float
    shift_y: float
    yaw: float
    pitch: float
    roll: float
    breath: float

    def project(self, x: float, y: float, z: float) -> tuple[float, float]:
        """Where a point of the head is seen."""
        a, b, c, d, e, f = self.m
        x, y, z = x - PIVOT[0], y - PIVOT[1], z - PIVOT[2]
        return (
            a * x + b * y + c * z + PIVOT[0] + self.shift_x,
            d * x + e * y + f * z + PIVOT[1] + self.shift_y,
        )

    def inverse(self) -> tuple[float, float, float, float, float, float, float, float]:
        """(ax, bx, cx, zx, ay, by, cy, zy): model x = ax*X + bx*Y + cx + zx*z, y likewise."""
        a, b, c, d, e, f = self.m
        det = a * e - b * d
        ia, ib, ic, ie = e / det, -b / det, -d / det, a / det
        ox, oy = PIVOT[0] + self.shift_x, PIVOT[1] + self.shift_y
        zx, zy = -(ia * c + ib * f), -(ic * c + ie * f)
        cx = PIVOT[0] - ia * ox - ib * oy - zx * PIVOT[2]
        cy = PIVOT[1] - ic * ox - ie * oy - zy * PIVOT[2]
        return ia, ib, cx, zx, ic, ie, cy, zy


def soft_limit(value: float, most: float) -> float:
    """The value itself when small, never beyond +-most."""
    return most * math.tanh(value / most)


def clean(values: list[float]) -> list[float]:
    """Finite, bounded values: a stage must draw something, whatever a model writes."""
    if len(values) != FACE_PARAMETERS:
        raise ValueError(f"face parameters: {len(values)}, not {FACE_PARAMETERS}")
    return [min(max(v, -2.0), 2.0) if math.isfinite(v) else 0.0 for v in values]


def pose_of(v: list[float]) -> Pose:
    """The rigid pose of a cleaned vector."""
    yaw = soft_limit(v[Face.HEAD_YAW], _TURN_MAX)
    pitch = soft_limit(v[Face.HEAD_PITCH], _TURN_MAX)
    roll = soft_limit(v[Face.HEAD_ROLL], _TURN_MAX)
    breath = min(max(v[Face.BREATH], 0.0), 1.0)
    cy, sy, cp, sp = math.cos(yaw), math.sin(yaw), math.cos(pitch), math.sin(pitch)
    cr, sr = math.cos(roll), math.sin(roll)
    # Yaw about y, then pitch about x (nods down), then roll in the picture (top to the right).
    x_row = (cy, 0.0, sy)
    y_row = (sp * sy, cp, -sp * cy)
    m = (
        cr * x_row[0] + sr * y_row[0],
        cr * x_row[1] + sr * y_row[1],
        cr * x_row[2] + sr * y_row[2],
        cr * y_row[0] - sr * x_row[0],
        cr * y_row[1] - sr * x_row[1],
        cr * y_row[2] - sr * x_row[2],
    )
    return Pose(
        m=m,
        shift_x=soft_limit(v[Face.HEAD_X] * _HEAD_WIDTH, _SHIFT_MAX),
        shift_y=soft_limit(v[Face.HEAD_Y] * _HEAD_WIDTH, _SHIFT_MAX * 0.5) + 0.006 * breath,
        yaw=yaw,
        pitch=pitch,
        roll=roll,
        breath=breath,
    )


def expression_of(v: list[float]) -> tuple[float, ...]:
    """The strengths of `EXPRESSIONS` of a cleaned vector."""

    def p(which: Face) -> float:
        return min(max(v[which], 0.0), 1.0)

    free = 1.0 - p(Face.LIPS_CLOSED)
    return (
        p(Face.JAW_OPEN) * (0.25 + 0.75 * free),
        min(max(v[Face.SMILE], 0.0), 1.0),
        -max(min(v[Face.SMILE], 0.0), -1.0),
        p(Face.LIPS_ROUND),
        p(Face.LIPS_WIDE),
        v[Face.BROW_UP_LEFT],
        v[Face.BROW_UP_RIGHT],
        p(Face.BROW_FURROW),
        p(Face.SQUINT),
        p(Face.LIP_UPPER_RAISE) * free,
    )
