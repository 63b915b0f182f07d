"""The mouth: lips, teeth and tongue, drawn in the head's own coordinates."""

from torch import Tensor

from gpu_stages.face.looks import Look
from gpu_stages.face.paint import Ink, Patch, cover, ink
from gpu_stages.face.parameters import Face

LAYERS = 6


def mouth_inks(look: Look) -> dict[str, Ink]:
    """The colours of a look's mouth."""
    return {
        "lip": ink(look.lip),
        "dark": ink("#3a1213"),
        "teeth": ink("#f3ede4"),
        "tongue": ink("#c0605f"),
    }


def mouth_scalars(v: list[float], look: Look, inks: dict[str, Ink]) -> list[float]:
    """The numbers a mouth is drawn from, in the order `draw_mouth` reads."""
    f = look.features

    def p(which: Face) -> float:
        return min(max(v[which], 0.0), 1.0)

    closed = p(Face.LIPS_CLOSED)
    free = 1.0 - closed
    jaw, rnd, wide = p(Face.JAW_OPEN), p(Face.LIPS_ROUND), p(Face.LIPS_WIDE)
    tuck = p(Face.LIP_LOWER_TUCK) * free
    smile = min(max(v[Face.SMILE], -1.0), 1.0)
    raised, drop = p(Face.LIP_UPPER_RAISE) * free, p(Face.LIP_LOWER_DROP) * free
    narrow = rnd * (1.0 - 0.3 * wide)
    half = f.mouth_half_width * (
        1.0
        + 0.26 * wide * (1 - rnd)
        - 0.44 * narrow
        + 0.16 * max(smile, 0.0)
        - 0.10 * jaw * free
        + 0.03 * min(smile, 0.0)
    )
    gap = (jaw * (1.0 - 0.12 * wide)) * free
    up = (0.030 * gap + 0.026 * raised + 0.006 * narrow * free * (0.4 + jaw)) * free
    down = (0.150 * gap + 0.030 * drop + 0.020 * narrow * free * (0.4 + jaw)) * free
    down = down * (1.0 - 0.85 * tuck) + 0.006 * tuck
    up = up + 0.020 * tuck
    full = 1.0 + 0.32 * narrow - 0.16 * wide - 0.18 * max(smile, 0.0)
    press = 1.0 - 0.28 * closed
    upper = f.upper_lip * full * press * (1.0 - 0.25 * raised)
    lower = f.lower_lip * full * press * (1.0 - 0.72 * tuck)
    corner = 0.052 * smile + 0.004 * wide - 0.010 * narrow
    middle = f.mouth_y - 0.012 * max(smile, 0.0) - 0.010 * narrow * jaw + 0.004 * closed
    jaw_drop = 0.150 * gap
    teeth_up = (
        0.020 + 0.024
    )  # the upper teeth's edge below the line of the lips, fixed to the skull
    tongue_out = p(Face.TONGUE_OUT) * free
    tongue_up = max(p(Face.TONGUE_UP) * free, tongue_out * 0.8)
    values = [
        middle,
        1.0 / half,
        half,
        corner,
        up,
        down,
        upper,
        lower,
        0.6 + 0.15 * narrow,  # the opening's roundness
        teeth_up,
        jaw_drop,
        tongue_up,
        tongue_out,
        max(smile, 0.0) * 0.8 + 0.25 * wide,
        narrow,
    ]
    for name in ("lip", "dark", "teeth", "tongue"):
        values += inks[name]
    return values


def draw_mouth(x: Tensor, y: Tensor, s: Tensor, patch: Patch) -> None:
    """Draw on `patch` at the head coordinates `x`, `y` [n, h, w]; `s` [scalars, n, 1, 1]."""
    (
        middle,
        per_w,
        half,
        corner,
        up,
        down,
        upper,
        lower,
        power,
        teeth_up,
        jaw_drop,
        tongue_up,
        tongue_out,
        fold,
        narrow,
        lip_y,
        lip_u,
        lip_v,
        dark_y,
        dark_u,
        dark_v,
        teeth_y,
        teeth_u,
        teeth_v,
        tongue_y,
        tongue_u,
        tongue_v,
    ) = s.unbind(0)
    sharp = patch.sharp
    t = x * per_w
    v = y - middle
    tt = (t * t).clamp_max_(1.0)
    rest = 1.0 - tt
    arch = rest**power
    line = corner * tt
    inner_up = line + up * arch
    inner_low = line - down * arch
    bow = (t * t * -22.0).exp_()
    outer_up = inner_up + upper * (rest**0.8) * (1.0 - bow * 0.20)
    outer_low = inner_low - lower * (rest**0.62)

    # Skin around: the shade below the lower lip, the folds beside a smile, the corners.
    below = v - outer_low + 0.026
    shade = (below * below * -1500.0 - t * t * 2.2).exp_() * 0.24
    du, dv = x.abs() - half - 0.022, v - corner
    shade = shade + (du * du * -3600.0 - dv * dv * 1800.0).exp_() * 0.16
    fu = x.abs() - half - 0.050 + (v - 0.05) * 0.55
    shade = shade + (fu * fu * -2600.0 - (v - 0.055) * (v - 0.055) * 260.0).exp_() * fold * 0.24
    patch.darken(shade)

    lips = cover((outer_up - v).minimum(v - outer_low), sharp * 0.55)
    ends = (rest * 14.0).clamp_(0.0, 1.0)
    hole = cover((inner_up - v).minimum(v - inner_low) - 0.5 / sharp, sharp)
    # Light on the lips: the upper one looks down, the lower one up.
    lo = ((inner_low - v) / (lower + 0.002)).clamp_(0.0, 1.0)
    hi = ((v - inner_up) / (upper + 0.002)).clamp_(0.0, 1.0)
    belly = (lo * (1.0 - lo)) * 4.0 * (1.0 - tt)
    spot = (lo - 0.42) * 4.2
    gloss = (spot * spot * -1.0 - t * t * 7.0).exp_()
    tone = lip_y * (0.86 + belly * 0.16 + hi * 0.08)
    tone = tone + gloss * (lower * 700.0)
    patch.lay(0, lips * ends, tone, lip_u, lip_v)
    seam = (v - line).abs_() * -150.0
    closed_line = seam.exp_() * ends * cover(0.012 - up - down, 160.0)
    patch.lay(1, closed_line * 0.62, dark_y * 1.25, dark_u, dark_v)

    depth = ((inner_up - v) * 9.0).clamp_(0.0, 1.0)
    patch.lay(2, hole, dark_y * (1.15 - depth * 0.45), dark_u, dark_v)
    # Teeth: the upper row hangs from the skull, the lower one from the jaw.
    wide = cover(0.93 - tt * 1.05, 9.0)
    side = 1.0 - tt * 0.55
    edge = teeth_up * (1.0 - tt * 0.45)
    row = cover(v + edge - 0.020, sharp) * hole * wide
    under = ((inner_up - v) * 30.0).clamp_(0.0, 1.0) * 0.35 + 0.65
    patch.lay(3, row, teeth_y * side * under, teeth_u, teeth_v)
    low_edge = v + jaw_drop + 0.006 + (tt * 0.016)
    row = cover(low_edge.neg(), sharp) * hole * wide
    patch.lay(4, row * 0.9, teeth_y * side * 0.80, teeth_u, teeth_v)
    # The tongue: a soft hill on the floor of the mouth; its tip rises to the teeth.
    tip = (0.030 - jaw_drop) * (1.0 - tongue_up) + tongue_up * -0.014 - tongue_out * 0.010
    hill = tip - t * t * (0.075 - 0.02 * tongue_up) - 0.012
    body = cover(hill - v, sharp * 0.8) * hole
    groove = (t * t * -60.0).exp_() * 0.12
    light = ((hill - v) * 14.0).clamp_(0.0, 1.0)
    patch.lay(5, body, tongue_y * (1.02 - light * 0.30 - groove), tongue_u, tongue_v)
