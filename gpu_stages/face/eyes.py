"""Eyes and brows, drawn into the patch of each side in the head's own coordinates.

A patch is one eye with its brow. Both sides run in one batch: the coordinate `u` grows from the
nose to the temple on either side.
"""

from torch import Tensor

from gpu_stages.face.looks import Look
from gpu_stages.face.paint import Ink, Patch, cover, ink
from gpu_stages.face.parameters import Face

LAYERS = 7
SCALARS = 34
_UNBLURRED = 0.0


def eye_scalars(v: list[float], look: Look, right: bool, inks: dict[str, Ink]) -> list[float]:
    """The numbers one eye is drawn from: `SCALARS` of them, in the order `draw_eyes` reads."""
    f = look.features
    side = -1.0 if right else 1.0
    blink = min(max(v[Face.BLINK_RIGHT if right else Face.BLINK_LEFT], 0.0), 1.0)
    squint = min(max(v[Face.SQUINT], 0.0), 1.0)
    gaze_x, gaze_y = v[Face.GAZE_X], v[Face.GAZE_Y]
    smile = max(v[Face.SMILE], 0.0)
    up = v[Face.BROW_UP_RIGHT if right else Face.BROW_UP_LEFT]
    furrow = min(max(v[Face.BROW_FURROW], 0.0), 1.0)
    high = f.eye_open * (1.0 + 0.22 * gaze_y + 0.10 * max(up, 0.0)) * (1.0 - 0.25 * squint)
    low = f.eye_open * 0.66 * (1.0 - 0.10 * gaze_y) * (1.0 - 0.45 * squint - 0.18 * smile)
    shut = f.eye_open * 0.42
    upper = high + (-shut - high) * blink
    lower = low + (shut + 0.001 - low) * blink
    iris_x = side * gaze_x * 0.36 * f.eye_half_width
    iris_y = gaze_y * 0.42 * f.eye_open + 0.06 * f.eye_open - 0.004
    brow_y = f.brow_y - f.eye_y + 0.042 * up - 0.020 * furrow - 0.012 * squint
    arch = f.brow_arch + 0.012 * up - 0.010 * furrow
    inner = 0.020 * up - 0.030 * furrow - 0.004
    values = [
        side,
        f.eye_x,
        f.eye_y,
        1.0 / f.eye_half_width,
        upper,
        lower,
        f.eye_tilt,
        high,
        iris_x,
        iris_y,
        f.iris,
        f.iris * 0.46,
        -side * f.iris * 0.36,
        f.iris * 0.40,
        0.0045 + 0.0045 * f.lashes,
        f.lashes,
        1.0 - 0.85 * blink,
        brow_y,
        arch,
        inner,
        f.brow_half_length,
        f.brow_thickness,
        -0.010 * furrow,
    ]
    for name in ("white", "iris", "lash", "brow"):
        values += inks[name]
    return values


def eye_inks(look: Look) -> dict[str, Ink]:
    """The colours of a look's eyes."""
    return {
        "white": ink("#f4f1ec"),
        "iris": ink(look.iris),
        "lash": ink("#22160f"),
        "brow": ink(look.brow),
    }


def draw_eyes(x: Tensor, y: Tensor, s: Tensor, patch: Patch) -> None:
    """Draw on `patch` at the head coordinates `x`, `y` [n, h, w]; `s` [SCALARS, n, 1, 1]."""
    (
        side,
        ex,
        ey,
        per_w,
        upper,
        lower,
        tilt,
        high,
        ix,
        iy,
        iris,
        pupil,
        cx,
        cy,
        thick,
        lash,
        opened,
        brow_y,
        arch,
        inner,
        brow_l,
        brow_t,
        brow_in,
        white_y,
        white_u,
        white_v,
        iris_l,
        iris_u,
        iris_v,
        lash_y,
        lash_u,
        lash_v,
        brow_l_y,
        brow_u,
        brow_v,
    ) = s.unbind(0)
    sharp = patch.sharp
    u = x * side - ex
    v = y - ey
    t = u * per_w
    tt = (t * t).clamp_max_(1.0)
    profile = (1.0 - tt) * (tt * 0.4 + 1.0)
    line = tilt * t
    top = profile * (upper - upper * 0.14 * t) + line
    bottom = line - profile * (lower + lower * 0.16 * t)
    from_top, from_bottom = top - v, v - bottom
    within = ((1.0 - tt) * 6.0).clamp_(0.0, 1.0)

    # The fold above the lid, the lid's own shade, the lower rim: tones of the skin that is there.
    fold = profile * (high + 0.020) + line + 0.006 - v
    fold_line = (fold * fold * -14000.0).exp_() * within * opened
    rim = (from_bottom * from_bottom * -16000.0).exp_() * within
    lid = cover(fold, 60.0) * cover(from_top.neg(), 200.0) * within
    patch.darken(fold_line * 0.26 + rim * 0.16 + lid * 0.05)

    hole = cover(from_top.minimum(from_bottom) - 0.5 / sharp, sharp)
    shadow = (from_top * 26.0).clamp_(0.0, 1.0)
    patch.lay(0, hole, white_y * (shadow * 0.30 + 0.70 - tt * 0.16), white_u, white_v)

    du, dv = u - ix, v - iy
    r = (du * du + dv * dv).sqrt_()
    disc = cover(iris - r, sharp) * hole
    rim_dark = ((r - iris * 0.62) / (iris * 0.38)).clamp_(0.0, 1.0)
    glow = (dv / iris * -0.55 + 0.55).clamp_min_(0.0)
    tone = (
        iris_l * (glow * 0.9 + 0.55) * (1.0 - rim_dark * rim_dark * 0.65) * (shadow * 0.35 + 0.65)
    )
    patch.lay(1, disc, tone, iris_u, iris_v)
    patch.lay(2, cover(pupil - r, sharp) * hole, lash_y * 0.6, lash_u, lash_v)
    ax, ay = du - cx, dv - cy
    big = iris * 0.27 - (ax * ax + ay * ay).sqrt_()
    ax, ay = du + cx * 0.9, dv + cy * 0.9
    small = iris * 0.13 - (ax * ax + ay * ay).sqrt_()
    spark = cover(big, sharp).add_(cover(small, sharp), alpha=0.55) * hole
    patch.lay(3, spark, white_y * 1.04, white_u, white_v)

    # Lashes: a stroke along the upper lid that swings out over the outer corner.
    out = (t - 0.75).clamp_min_(0.0)
    weight = (t * 0.5 + 0.62).clamp_(0.12, 1.0)
    stroke_t = thick * weight * (1.0 - out * 1.9).clamp_min_(0.0)
    middle = v - top - out * out * lash * 0.11 - stroke_t * 0.35
    ends = cover(t + 1.02, 18.0) * cover(1.32 - t, 12.0)
    stroke = cover(stroke_t - middle.abs_(), sharp) * ends
    patch.lay(4, stroke, lash_y, lash_u, lash_v)

    # The brow: an arched stroke, full towards the nose, thin at the temple.
    along = (u - brow_in) / brow_l
    bend = along - 0.25
    heart = brow_y + arch * (0.75 - bend * bend * 1.1) + inner * (0.5 - along * 0.5)
    taper = (1.12 - along * 0.52 - (along * along) * 0.42).clamp_(0.0, 1.0)
    away = (v - heart).abs_()
    body = cover(brow_t * taper - away, sharp * 0.42)
    body = body * cover(along + 1.0, 7.0) * cover(1.15 - along, 7.0)
    hairs = ((u * 1.0 + v * 0.8) * 420.0).sin_() * 0.10 + 0.90
    patch.lay(5, body * hairs, brow_l_y, brow_u, brow_v)
