"""Eyes and brows: one patch per side holds an eye with its brow.

`t` is 0 at the eye's middle, -1 at its corner by the nose, 1 at the outer corner, on both sides;
`v` is up, in model units.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from gpu_stages.face.looks import Look
from gpu_stages.face.paint import Patches, Row, ink, scaled
from gpu_stages.face.parameters import Face

BASES = 9  # 1, t, v, t*t, v*v, p, p*t, w, t*t*t
PAIRS = 8
SINGLES = 8
_CORNER_SLOPE = 40.0  # the opening ends within a fortieth of the almond's height
TONES = 8
_COLORS = 5


@dataclass(frozen=True, slots=True)
class EyeLook:
    """The colours of a look's eyes: [5, 4] white, iris, pupil, lash, brow."""

    colors: tuple[tuple[float, float, float, float], ...]
    skin_luma: float


def eye_look(look: Look) -> EyeLook:
    """Colours for `eye_forms`."""
    return EyeLook(
        (
            ink("#f6f3ee"),
            ink(look.iris),
            ink("#120c0a"),
            ink(look.lash),
            ink(look.brow),
        ),
        ink(look.skin)[0],
    )


def eye_place(look: Look, right: bool) -> tuple[float, float, float]:
    """The middle of the patch, in model units."""
    f = look.features
    return (-f.eye_x if right else f.eye_x), (f.eye_y + f.brow_y) / 2 + 0.012, 0.34


def eye_forms(
    v: list[float], look: Look, colors: EyeLook, right: bool, sharp: float
) -> tuple[list[Row], list[float]]:
    """Rows for `Patches.edges` (pairs' first sides, second sides, singles) and `TONES` numbers."""
    f = look.features
    side = -1.0 if right else 1.0
    blink = min(max(v[Face.BLINK_RIGHT if right else Face.BLINK_LEFT], 0.0), 1.0)
    squint = min(max(v[Face.SQUINT], 0.0), 1.0)
    gaze_x, gaze_y = min(max(v[Face.GAZE_X], -1.0), 1.0), min(max(v[Face.GAZE_Y], -1.0), 1.0)
    smile = min(max(v[Face.SMILE], 0.0), 1.0)
    up = min(max(v[Face.BROW_UP_RIGHT if right else Face.BROW_UP_LEFT], -1.0), 1.0)
    furrow = min(max(v[Face.BROW_FURROW], 0.0), 1.0)
    w, tilt = f.eye_half_width, f.eye_tilt

    high = f.eye_open * (1.0 + 0.22 * gaze_y + 0.10 * max(up, 0.0)) * (1.0 - 0.25 * squint)
    low = f.eye_open * 0.62 * (1.0 - 0.10 * gaze_y) * (1.0 - 0.40 * squint - 0.20 * smile)
    shut = f.eye_open * 0.40
    upper = high + (-shut - high) * blink
    lower = low + (shut - low) * blink
    s = sharp
    # Bases:      1,    t,     v, tt, vv,  p,            p*t,           wing, ttt
    top = (0.0, tilt, -1.0, 0.0, 0.0, upper, -0.13 * upper, 0.0, 0.0)
    bottom = (0.0, -tilt, 1.0, 0.0, 0.0, lower, 0.18 * lower, 0.0, 0.0)
    fold = (0.004, tilt, -1.0, 0.0, 0.0, high + 0.019, -0.10 * high, 0.0, 0.0)
    fold_k, rim_k = 1.0 / 0.010, 1.0 / 0.009
    # The lash line thickens outwards and swings up past the corner.
    thin, thick = 0.0026 + 0.0010 * f.lashes, 0.0042 + 0.0026 * f.lashes
    lash_mid = (-0.3 * thick, -tilt, 1.0, 0.0, 0.0, -upper, 0.13 * upper, -0.12 * f.lashes, 0.0)
    a_side = [thin + thick * 0.5 - lash_mid[0], thick * 0.62 - lash_mid[1]]
    a_side += [-c for c in lash_mid[2:]]
    b_side = [thin + thick * 0.5 + lash_mid[0], thick * 0.62 + lash_mid[1], *lash_mid[2:]]
    # The brow's heart is a parabola over `along`, its thickness tapers to the temple.
    long = w / f.brow_half_length
    shift = 0.010 * furrow / f.brow_half_length
    brow_y = f.brow_y - f.eye_y + 0.042 * up - 0.018 * furrow - 0.010 * squint
    arch = f.brow_arch + 0.010 * up - 0.008 * furrow
    inner = 0.014 * up - 0.028 * furrow + 0.010
    # along = t * long + shift; heart = brow_y + arch*(0.8 - (along-.25)^2) + inner*(.5-.5*along)
    bend = shift - 0.22
    heart = (
        brow_y + arch * (0.62 - bend * bend) + inner * (0.5 - 0.5 * shift),
        -2.0 * arch * bend * long - 0.5 * inner * long,
        -arch * long * long,
    )
    half = f.brow_thickness
    taper = (
        half * (0.98 - 0.32 * shift - 0.46 * shift * shift),
        half * (-0.32 - 0.92 * shift) * long,
        -0.46 * half * long * long,
    )
    zero = (0.0,) * 5
    brow_a = (taper[0] + heart[0], taper[1] + heart[1], -1.0, taper[2] + heart[2], *zero)
    brow_b = (taper[0] - heart[0], taper[1] - heart[1], 1.0, taper[2] - heart[2], *zero)
    blunt = s * 0.45
    ends = 0.40 * s * w
    first = [
        scaled(top, s),
        scaled(fold, fold_k, 1.0),
        scaled(bottom, rim_k, 1.0),
        scaled(a_side, s * 0.9, 0.5),
        scaled((1.02, 1.0, *(0.0,) * 7), ends),
        scaled(brow_a, blunt, 0.5),
        scaled((1.06 + shift, long, *(0.0,) * 7), 3.4),
        scaled(fold, s * 0.3, 0.5),
    ]
    second = [
        scaled(bottom, s),
        scaled(fold, -fold_k, 1.0),
        scaled(bottom, -rim_k, 1.0),
        scaled(b_side, s * 0.9, 0.5),
        scaled((1.13 + 0.16 * f.lashes, -1.0, *(0.0,) * 7), ends),
        scaled(brow_b, blunt, 0.5),
        scaled((1.16 - shift, -long, *(0.0,) * 7), 6.0),
        scaled(top, -s, 0.5),
    ]
    iris_x = side * gaze_x * 0.34 * w
    iris_y = gaze_y * 0.36 * f.eye_open + 0.10 * f.eye_open

    def disc(x: float, y: float, r: float, slope: float = s) -> Row:
        # (r*r - distance*distance) / 2r is the distance from the edge, close to it.
        row = (r * r - x * x - y * y, 2.0 * w * x, 2.0 * y, -w * w, -1.0, 0.0, 0.0, 0.0, 0.0)
        return scaled(row, slope / (2.0 * r), 0.5)

    r = f.iris
    spark_x, spark_y = iris_x * 0.9 - side * 0.34 * r, iris_y * 0.9 + 0.40 * r
    singles = [
        disc(iris_x, iris_y, r),
        disc(iris_x, iris_y, r * 0.47),
        disc(spark_x, spark_y, r * 0.27),
        disc(iris_x * 0.9 + side * 0.36 * r, iris_y * 0.9 - 0.40 * r, r * 0.15, s * 0.7),
        scaled(top, -1.0 / (0.26 * f.eye_open + 0.010), 1.0),  # the lid's shadow on the eye
        # The iris: dark at its rim, lit from above through to its lower half.
        disc(iris_x, iris_y, r * 0.84, 1.0 / (0.30 * r)),
        scaled((iris_y, 0.0, -1.0, *(0.0,) * 6), 0.8 / r, 0.25),
        scaled((-0.55, 0.0, 0.0, 1.0, *(0.0,) * 5), 1.6),  # the white darkens to its corners
    ]
    dark = colors.skin_luma - 16.0
    white = colors.colors[0][0] - 16.0
    lum = colors.colors[1][0]
    opened = 1.0 - blink
    tones = [
        -0.22 * dark * (0.25 + 0.75 * opened),  # fold
        -0.15 * dark,  # lower rim
        -0.34 * white,  # lid shadow on the eye
        -0.62 * lum,  # limbal ring
        0.85 * lum + 14.0,  # glow
        -0.20 * white,  # corners
        -0.05 * dark,  # lid
        0.50,  # the second spark
    ]
    return [*first, *second, *singles], tones


def draw_eyes(patches: Patches, rows: Tensor, tones: Tensor, colors: Tensor, bare: Tensor) -> None:
    """Draw; bases 1 (t) and 2 (v) are filled in.

    `tones` is [TONES, n, 1, 1], `colors` [5, 4, n, 1, 1]; `bare` [n, h, w] is 0 where hair or
    glasses lie over the features.
    """
    one, t, v, tt, vv, p, pt, wing, ttt = patches.bases
    torch.mul(t, t, out=tt)
    torch.mul(v, v, out=vv)
    # p = (1 - tt) * (1 + 0.45 * tt): an almond's half.
    torch.mul(tt, tt, out=ttt)
    torch.add(one, tt, alpha=-0.55, out=p)
    p.sub_(ttt, alpha=0.45).clamp_min_(-0.6)
    torch.mul(p, t, out=pt)
    torch.sub(t, one, alpha=0.70, out=wing)
    wing.clamp_min_(0.0)
    wing.mul_(wing)
    torch.mul(ttt, t, out=ttt)
    p.clamp_min_(0.0)
    patches.edges(rows)
    patches.mask(bare)
    hole, fold, rim, lash, lash_ends, brow, brow_ends, lid = patches.strips
    iris, pupil, spark, spark_low, shadow, limb, glow, corner = patches.singles
    a, b, within = patches.scratch
    torch.mul(p, 2.0, out=within)
    within.clamp_(0.0, 1.0)
    fold.mul_(within)
    rim.mul_(within)
    patches.shade(fold, tones[0])
    patches.shade(rim, tones[1])
    patches.shade(torch.mul(lid, within, out=a), tones[6])
    # Beyond the corners both lids lie on one line, and when they are shut a sliver opens along it.
    hole.mul_(torch.mul(p, _CORNER_SLOPE, out=a).clamp_(0.0, 1.0))
    patches.lay(hole, colors[0])
    patches.shade(torch.mul(hole, corner, out=a), tones[5])
    iris.mul_(hole)
    pupil.mul_(hole)
    patches.lay(iris, colors[1])
    patches.shade(torch.mul(iris, glow, out=a), tones[4])
    torch.sub(iris, torch.mul(iris, limb, out=b), out=b)
    patches.shade(b, tones[3])
    patches.lay(pupil, colors[2])
    patches.shade(torch.mul(hole, shadow, out=a), tones[2])
    spark.addcmul_(spark_low, tones[7]).mul_(hole)
    patches.lay(spark, colors[0])
    lash.mul_(lash_ends)
    patches.lay(lash, colors[3])
    brow.mul_(brow_ends)
    patches.lay(brow, colors[4])
