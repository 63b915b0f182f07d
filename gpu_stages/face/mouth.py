"""The mouth: lips, teeth and tongue on one patch.

`t` is 0 in the middle and +-1 at the corners of the lips; `v` is up from the line where they meet,
in model units.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from gpu_stages.face.looks import Look
from gpu_stages.face.paint import Ink, Patches, Row, ink, scaled
from gpu_stages.face.parameters import Face

BASES = 8  # 1, t, v, t*t, t**4, bow, |t|, v*v
PAIRS = 7
SINGLES = 12
TONES = 12


@dataclass(frozen=True, slots=True)
class MouthLook:
    """The colours of a look's mouth: lip, inside, teeth, tongue."""

    colors: tuple[Ink, ...]
    skin_luma: float


@dataclass(frozen=True, slots=True)
class Lips:
    """The lips' geometry in model units, from one face vector."""

    middle: float
    half: float
    corner: float
    up: float
    down: float
    upper: float
    lower: float
    roundness: float
    jaw_drop: float
    tongue_up: float
    tongue_out: float
    fold: float
    smile: float
    pucker: float


def mouth_look(look: Look) -> MouthLook:
    """Colours for `mouth_forms`."""
    colors = (ink(look.lip), ink("#45151a"), ink("#f4eee6"), ink("#c4646a"))
    return MouthLook(colors, ink(look.skin)[0])


def mouth_place(look: Look) -> tuple[float, float, float]:
    """The middle of the patch, in model units."""
    return 0.0, look.features.mouth_y - 0.065, 0.38


def lips_of(v: list[float], look: Look) -> Lips:
    """What the parameters of a cleaned vector make of a look's lips."""
    f = look.features

    def p(which: Face) -> float:
        return min(max(v[which], 0.0), 1.0)

    closed = p(Face.LIPS_CLOSED)
    free = 1.0 - closed
    jaw = p(Face.JAW_OPEN) * free
    smile = min(max(v[Face.SMILE], -1.0), 1.0)
    happy = max(smile, 0.0)
    wide = p(Face.LIPS_WIDE)
    pucker = p(Face.LIPS_ROUND) * (1.0 - 0.35 * wide)
    tuck = p(Face.LIP_LOWER_TUCK) * free
    raised, drop = p(Face.LIP_UPPER_RAISE) * free, p(Face.LIP_LOWER_DROP) * free
    half = f.mouth_half_width * (
        1.0 + 0.24 * wide - 0.40 * pucker + 0.18 * happy + 0.02 * min(smile, 0.0) - 0.12 * jaw
    )
    round_gap = pucker * free * (0.30 + jaw)
    up = 0.034 * jaw + 0.024 * raised + 0.020 * round_gap
    down = 0.150 * jaw * (1.0 - 0.25 * pucker) + 0.028 * drop + 0.030 * round_gap
    down = down * (1.0 - 0.90 * tuck)
    up = up + 0.012 * tuck
    full = 1.0 + 0.38 * pucker - 0.14 * wide - 0.16 * happy
    press = 1.0 - 0.30 * closed
    return Lips(
        middle=f.mouth_y - 0.008 * happy - 0.012 * pucker * jaw + 0.010 * tuck,
        half=half,
        corner=0.050 * smile + 0.004 * wide + 0.004 - 0.012 * pucker,
        up=up,
        down=down,
        upper=f.upper_lip * full * press * (1.0 - 0.22 * raised),
        lower=f.lower_lip * full * press * (1.0 - 0.62 * tuck) * (1.0 - 0.12 * jaw),
        roundness=0.15 + 0.75 * pucker + 0.45 * jaw,
        jaw_drop=0.150 * jaw + 0.014 * drop,
        tongue_up=max(p(Face.TONGUE_UP), 0.7 * p(Face.TONGUE_OUT)) * free,
        tongue_out=p(Face.TONGUE_OUT) * free,
        fold=happy * 0.85 + 0.25 * wide + 0.2 * raised,
        smile=happy,
        pucker=pucker,
    )


def mouth_forms(
    lips: Lips, look: Look, colors: MouthLook, sharp: float
) -> tuple[list[Row], list[float]]:
    """Rows for `Patches.edges` (pairs' first sides, second sides, singles) and `TONES` numbers."""
    half, corner, up, down = lips.half, lips.corner, lips.up, lips.down
    upper, lower, a, s = lips.upper, lips.lower, lips.roundness, sharp
    gape = up + down

    def form(
        one: float = 0.0, v: float = 0.0, tt: float = 0.0, t4: float = 0.0, bow: float = 0.0,
        side: float = 0.0, vv: float = 0.0,
    ) -> tuple[float, ...]:  # fmt: skip
        return one, 0.0, v, tt, t4, bow, side, vv

    # A mouth's half arches as (1 - tt) * (1 + a * tt): rounder with a larger a.
    def arched(height: float, a: float, v: float, bow: float = 0.0) -> tuple[float, ...]:
        return form(height, v, height * (a - 1.0) + corner, -height * a, bow)

    inner_up = arched(up, a, -1.0)  # inner upper line above v
    low = arched(-down, a + 0.25, -1.0)
    inner_low = tuple(-c for c in low)  # v above the inner lower line
    bow = -0.26 * upper
    lip_up = form(upper, 0.0, upper * -0.62, upper * -0.38, bow)
    lip_low = form(lower, 0.0, lower * -0.40, lower * -0.60)
    outer_up = [i + o for i, o in zip(inner_up, lip_up, strict=True)]
    outer_low = [i + o for i, o in zip(inner_low, lip_low, strict=True)]
    line = form(0.0, -1.0, corner)
    seam_k = 1.0 / 0.0075
    chin_mid = [c for c in outer_low]
    chin_mid[0] += 0.030
    chin_k = 1.0 / 0.034
    crease = form(-half - 0.052 - 0.030, 0.62, 0.0, 0.0, 0.0, half)
    crease_k = 1.0 / 0.040
    # The upper teeth hang from the skull, the lower ones from the jaw.
    teeth = form(0.026 - 0.004 * lips.smile - 0.034 * lips.pucker, 1.0, -0.016)
    low_teeth = form(-lips.jaw_drop + 0.004 - 0.03 * lips.pucker, -1.0, -0.014)
    row_ends = form(0.92, 0.0, -1.0)
    soft = s * 0.50
    first = [
        scaled(outer_up, soft, 0.6),
        scaled(inner_up, s),
        scaled(line, seam_k, 1.0),
        scaled(chin_mid, chin_k, 1.0),
        scaled(crease, crease_k, 1.0),
        scaled(teeth, s, 0.5),
        scaled(low_teeth, s * 0.8, 0.5),
    ]
    second = [
        scaled(outer_low, soft, 0.6),
        scaled(inner_low, s),
        scaled(line, -seam_k, 1.0),
        scaled(chin_mid, -chin_k, 1.0),
        scaled(crease, -crease_k, 1.0),
        scaled(row_ends, 0.15 * s * half, 0.5),
        scaled(row_ends, 0.15 * s * half, 0.5),
    ]
    shine_v = -down - lower * 0.42
    # The tongue lies on the floor of the mouth, its tip rises to the teeth, or comes between them.
    hill = min(0.040 - lips.jaw_drop, -0.030)
    hill += (-0.021 - hill) * lips.tongue_up
    hill += (-0.004 - hill) * lips.tongue_out
    tongue = form(hill, -1.0, -0.060 - 0.05 * lips.tongue_up + 0.075 * lips.tongue_out)
    corner_x, corner_v = half + 0.012, corner
    singles = [
        scaled(form(1.0, 0.0, -1.0), 9.0),  # ends
        scaled(inner_low, -1.0 / (lower + 0.004)),  # 0 at the lower lip's inner edge
        scaled(inner_up, -1.0 / (upper + 0.004)),
        form(1.0 - (shine_v / 0.013) ** 2, 2 * shine_v / 0.013**2, -4.0, 0, 0, 0, -1 / 0.013**2),
        scaled(inner_up, 1.0 / 0.10),  # into the depth
        scaled(inner_up, -1.0 / 0.034, 1.0),  # the upper lip's shadow on the teeth
        scaled(tongue, s * 0.8, 0.5),
        form(1.0, 0.0, -22.0),  # the tongue's groove
        scaled(tongue, 1.0 / 0.060),
        form(
            1.0 - (corner_x / 0.034) ** 2 - (corner_v / 0.03) ** 2, 2 * corner_v / 0.03**2,
            -((half / 0.034) ** 2), 0, 0, 2 * half * corner_x / 0.034**2, -1 / 0.03**2,
        ),
        form(1.0 - (0.052 / 0.075) ** 2, 2 * 0.052 / 0.075**2, 0, 0, 0, 0, -1 / 0.075**2),
        form(1.0, 0.0, -0.9),  # the chin's shade is in the middle
    ]  # fmt: skip
    skin, lip = colors.skin_luma - 16.0, colors.colors[0][0] - 16.0
    teeth_l, tongue_l = colors.colors[2][0] - 16.0, colors.colors[3][0] - 16.0
    tones = [
        -0.20 * skin,  # below the lower lip
        -0.11 * skin * lips.fold,  # the folds beside a smile
        -0.13 * skin * (0.6 + 0.6 * lips.fold),  # the corners
        -0.20 * lip,  # lower lip's far side
        0.02 * lip - 6.0,  # the upper lip
        (0.20 * lip + 18.0) * min(1.0, lower / 0.03),  # gloss
        max(0.0, 0.75 - gape / 0.012),  # the line between closed lips
        -22.0,  # depth
        -0.36 * teeth_l,  # shadow on the teeth
        -0.26 * tongue_l,  # the tongue's floor
        -0.16 * tongue_l,  # its groove
        -0.30 * teeth_l,  # teeth to the sides
    ]
    return [*first, *second, *singles], tones


def draw_mouth(patches: Patches, rows: Tensor, tones: Tensor, colors: Tensor) -> None:
    """Draw; bases 1 (t) and 2 (v) are filled in.

    `tones` is [TONES, n, 1, 1], `colors` [4, 4, n, 1, 1].
    """
    one, t, v, tt, t4, bow, side, vv = patches.bases
    torch.mul(t, t, out=tt)
    torch.mul(tt, tt, out=t4)
    torch.sub(one, tt, alpha=9.0, out=bow)
    bow.clamp_min_(0.0)
    bow.mul_(bow)
    torch.abs(t, out=side)
    torch.mul(v, v, out=vv)
    patches.edges(rows)
    lips, hole, seam, chin, crease, teeth, low_teeth = patches.strips
    ends, lo, hi, gloss, depth, shadow, tongue, groove, floor, corners, window, middle = (
        patches.singles
    )
    a = patches.scratch[0]
    patches.shade(torch.mul(chin, middle, out=a).mul_(a), tones[0])
    patches.shade(torch.mul(crease, window, out=a).mul_(crease), tones[1])
    patches.shade(torch.mul(corners, corners, out=a), tones[2])
    lips.mul_(ends)
    patches.lay(lips, colors[0])
    patches.shade(torch.mul(lips, lo, out=a).mul_(lo), tones[3])
    # Above the line between the lips `lo` is 0: the upper lip is what is left of them.
    patches.shade(torch.mul(lips, hi, out=a), tones[4])
    patches.shade(torch.mul(lips, gloss, out=a).mul_(gloss), tones[5])
    seam.mul_(ends)
    patches.lay(seam.mul_(tones[6]), colors[1])
    patches.lay(hole, colors[1])
    patches.shade(torch.mul(hole, depth, out=a), tones[7])
    low_teeth.mul_(hole)
    patches.lay(low_teeth, colors[2])
    patches.shade(torch.mul(low_teeth, tt, out=a), tones[11])
    teeth.mul_(hole)
    patches.lay(teeth, colors[2])
    patches.shade(torch.mul(teeth, shadow, out=a), tones[8])
    patches.shade(torch.mul(teeth, tt, out=a), tones[11])
    tongue.mul_(hole)
    patches.lay(tongue, colors[3])
    patches.shade(torch.mul(tongue, floor, out=a), tones[9])
    patches.shade(torch.mul(tongue, groove, out=a), tones[10])
