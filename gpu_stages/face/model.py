"""The solids of a person: skull, neck, hair, clothes, in the model units of `looks`."""

import math

import torch
from torch import Tensor

from gpu_stages.face.looks import Clothes, Hair, Look
from gpu_stages.face.sculpt import (
    Field,
    Vec,
    capsule,
    ellipsoid,
    ring,
    smooth_cut,
    smooth_union,
    sphere,
    turned,
)


def skin_of(look: Look) -> Field:
    """The head without its neck; eyelids are closed, lips are drawn later."""
    s, f = look.shape, look.features
    ex, ey = f.eye_x, f.eye_y

    def field(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
        ax = x.abs()
        d = ellipsoid(x, y, z, (0, 0.20, -0.06), (0.42, 0.48, 0.46))
        jaw = (0.335 * s.jaw_width, 0.35, 0.36)
        d = smooth_union(d, ellipsoid(x, y, z, (0, -0.10, 0.06), jaw), 0.18)
        chin = (0.12 * s.chin, 0.09, 0.11)
        d = smooth_union(d, ellipsoid(x, y, z, (0, -0.345, 0.23), chin), 0.16)
        d = smooth_union(d, sphere(ax, y, z, (0.20, -0.055, 0.225), 0.15 * s.cheeks), 0.12)
        d = smooth_cut(d, ellipsoid(ax, y, z, (ex, ey + 0.01, 0.52), (0.15, 0.09, 0.14)), 0.12)
        d = smooth_union(d, ellipsoid(x, y, z, (0, -0.235, 0.30), (0.16, 0.09, 0.115)), 0.12)
        d = smooth_union(d, ellipsoid(ax, y, z, (ex, ey, 0.25), (0.125, 0.105, 0.125)), 0.05)
        w = s.nose
        n = capsule(x, y, z, (0, 0.12, 0.37), (0, -0.05, 0.465), 0.028 * w, 0.042 * w)
        n = smooth_union(n, ellipsoid(x, y, z, (0, -0.075, 0.465), (0.06 * w, 0.05, 0.062)), 0.04)
        n = smooth_union(
            n, ellipsoid(ax, y, z, (0.05 * w, -0.088, 0.425), (0.036 * w, 0.032, 0.05)), 0.035
        )
        d = smooth_union(d, n, 0.07)
        e = ellipsoid(ax, y, z, (0.425, 0.04, -0.06), (0.07, 0.12, 0.06))
        e = smooth_cut(e, ellipsoid(ax, y, z, (0.44, 0.045, 0.0), (0.04, 0.08, 0.045)), 0.03)
        return smooth_union(d, e, 0.04)

    return field


def neck_of(look: Look) -> Field:
    """Neck and the slope to the shoulders."""
    w = look.shape.neck

    def field(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
        d = capsule(x, y, z, (0, -0.1, -0.10), (0, -0.80, -0.12), 0.185 * w, 0.20 * w)
        return smooth_union(d, ellipsoid(x, y, z, (0, -0.86, -0.16), (0.5, 0.18, 0.17)), 0.22)

    return field


def _torso(x: Tensor, y: Tensor, z: Tensor, w: float) -> Tensor:
    ax = x.abs()
    d = ellipsoid(x, y, z, (0, -1.22, -0.10), (0.68 * w, 0.56, 0.33))
    arm = capsule(ax, y, z, (0.30 * w, -0.92, -0.14), (0.60 * w, -1.03, -0.14), 0.16, 0.21)
    d = smooth_union(d, arm, 0.20)
    arm = capsule(ax, y, z, (0.62 * w, -1.04, -0.14), (0.72 * w, -1.7, -0.12), 0.205, 0.2)
    d = smooth_union(d, arm, 0.10)
    return smooth_union(d, capsule(x, y, z, (0, -0.6, -0.1), (0, -0.9, -0.12), 0.22, 0.30), 0.16)


def clothes_of(look: Look) -> Field:
    """What covers the torso."""
    w, n = look.shape.shoulders, look.shape.neck

    def turtleneck(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
        d = _torso(x, y, z, w)
        roll = capsule(x, y, z, (0, -0.46, -0.09), (0, -0.8, -0.11), 0.205 * n, 0.235 * n)
        d = smooth_union(d, roll, 0.05)
        hole = capsule(x, y, z, (0, -0.1, -0.1), (0, -0.44, -0.09), 0.2 * n, 0.19 * n)
        d = smooth_cut(d, hole, 0.02)
        fold = ring(x, y, z, (0, -0.475, -0.09), (0.212 * n, 0.2, 0.212 * n), 0.03)
        d = smooth_union(d, fold, 0.02)
        fold = ring(x, y, z, (0, -0.575, -0.09), (0.222 * n, 0.2, 0.222 * n), 0.028)
        return smooth_union(d, fold, 0.03)

    def crew(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
        d = _torso(x, y, z, w)
        hole = capsule(x, y, z, (0, -0.2, -0.10), (0, -0.70, -0.06), 0.225 * n, 0.222 * n)
        return smooth_cut(d, hole, 0.02)

    def blazer(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
        ax = x.abs()
        d = _torso(x, y, z, w) - 0.022
        # Open in a V, with lapels laid along it and a notch in each.
        edge = (ax - (y + 1.06) * 0.62) * 0.85
        lapel = torch.maximum(d - 0.020, edge - 0.115 + 0.05 * (y + 0.80).abs())
        notch = (ax - 0.285) * 0.55 + (y + 0.775).abs() - 0.010
        lapel = torch.maximum(lapel, -torch.maximum(notch, 0.205 - ax))
        d = smooth_union(d, lapel, 0.008)
        d = smooth_cut(d, edge, 0.012)
        hole = capsule(x, y, z, (0, -0.2, -0.12), (0, -0.66, -0.10), 0.25 * n, 0.235 * n)
        return smooth_cut(d, hole, 0.02)

    match look.clothes:
        case Clothes.TURTLENECK:
            return turtleneck
        case Clothes.CREW:
            return crew
        case Clothes.BLAZER:
            return blazer


def second_of(look: Look) -> Field | None:
    """What shows of a second piece: the collar's rib, or the shirt under the blazer."""
    w, n = look.shape.shoulders, look.shape.neck

    def rib(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
        return ring(x, y, z, (0, -0.70, -0.07), (0.232 * n, 0.28, 0.225 * n), 0.036)

    def shirt(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
        d = _torso(x, y, z, w)
        hole = capsule(x, y, z, (0, -0.2, -0.08), (0, -0.69, -0.02), 0.215 * n, 0.19 * n)
        d = smooth_cut(d, hole, 0.015)
        ax = x.abs()
        flap = capsule(ax, y, z, (0.215 * n, -0.60, -0.06), (0.085, -0.80, 0.175), 0.034, 0.030)
        return smooth_union(d, flap, 0.012)

    match look.clothes:
        case Clothes.TURTLENECK:
            return None
        case Clothes.CREW:
            return rib
        case Clothes.BLAZER:
            return shirt


def glasses_of(look: Look) -> Field | None:
    """Round rims before the eyes, a bridge, and bows to the ears."""
    if not look.glasses:
        return None
    f = look.features

    def field(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
        ax = x.abs()
        px, py = ax - f.eye_x - 0.004, (y - f.eye_y + 0.004) * 1.10
        away = torch.sqrt(px * px + py * py) - 0.122
        front = z - 0.445 + ax * ax * 1.1
        d = torch.sqrt(away * away + front * front) - 0.0105
        bridge = capsule(ax, y, z, (0.0, 0.128, 0.462), (0.066, 0.118, 0.440), 0.0095, 0.0095)
        d = smooth_union(d, bridge, 0.012)
        bow = capsule(ax, y, z, (0.302, 0.125, 0.345), (0.44, 0.115, -0.02), 0.012, 0.010)
        return torch.minimum(d, bow)

    return field


def hair_of(look: Look) -> Field:
    """The hair that belongs to the head's layer: all of it that lies before the neck."""
    match look.hair:
        case Hair.SWEPT:
            return _swept
        case Hair.CURLS:
            return _curls
        case Hair.BOB:
            return _bob


def back_hair_of(look: Look) -> Field | None:
    """The hair that hangs behind the neck, where there is any."""
    match look.hair:
        case Hair.SWEPT | Hair.CURLS:
            return None
        case Hair.BOB:
            return _bob_back


def _tilted(x: Tensor, y: Tensor, z: Tensor, at: Vec, r: Vec, angle: float) -> Tensor:
    """An ellipsoid turned by `angle` in the picture."""
    tx, ty = turned(x - at[0], y - at[1], angle)
    return ellipsoid(tx, ty, z - at[2], (0.0, 0.0, 0.0), r)


def _swept(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    cap = ellipsoid(x, y, z, (0, 0.225, -0.07), (0.450, 0.500, 0.49))
    cap = smooth_cut(cap, ellipsoid(x, y, z, (0.02, 0.04, 0.55), (0.372, 0.43, 0.72)), 0.04)
    cap = smooth_cut(cap, ellipsoid(x, y, z, (0, -0.36, 0.0), (0.9, 0.42, 0.9)), 0.03)
    q = _tilted(x, y, z, (0.07, 0.635, 0.12), (0.35, 0.135, 0.28), -0.14)
    q = smooth_union(q, _tilted(x, y, z, (-0.25, 0.555, 0.14), (0.21, 0.125, 0.24), 0.62), 0.05)
    q = smooth_union(q, _tilted(x, y, z, (0.29, 0.555, 0.08), (0.22, 0.105, 0.25), -0.72), 0.04)
    q = smooth_union(q, _tilted(x, y, z, (-0.02, 0.535, 0.27), (0.27, 0.075, 0.16), 0.22), 0.03)
    q = smooth_union(q, _tilted(x, y, z, (0.20, 0.53, 0.25), (0.20, 0.07, 0.15), -0.42), 0.03)
    return smooth_union(cap, q, 0.05)


def _curl_centres() -> list[tuple[float, float, float, float]]:
    """Curls over the crown: a spiral of points on the scalp, above the hairline."""
    centres: list[tuple[float, float, float, float]] = []
    for k in range(300):
        up = 1.0 - 2.0 * (k + 0.5) / 300
        angle = k * 2.399963
        flat = math.sqrt(1.0 - up * up)
        px, py, pz = flat * math.cos(angle), up, flat * math.sin(angle)
        x, y, z = px * 0.43, 0.25 + py * 0.46, -0.06 + pz * 0.44
        if (
            x < -0.01
            or z < -0.16
            or y < 0.12 + 0.36 * max(0.0, pz) ** 0.7
            or (pz > 0.2 and y < 0.43)
        ):
            continue
        centres.append((x, y, z, 0.052 + 0.014 * math.sin(k * 1.7)))
    return centres


_CURLS = _curl_centres()


def _curls(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    cap = ellipsoid(x, y, z, (0, 0.25, -0.07), (0.435, 0.475, 0.455))
    cap = smooth_cut(cap, ellipsoid(x, y, z, (0, 0.04, 0.55), (0.375, 0.41, 0.72)), 0.03)
    cap = smooth_cut(cap, ellipsoid(x, y, z, (0, -0.33, 0.0), (0.9, 0.42, 0.9)), 0.03)
    ax = x.abs()
    for cx, cy, cz, r in _CURLS:
        cap = smooth_union(cap, sphere(ax, y, z, (cx, cy, cz), r), 0.02)
    return cap


def _bob(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    ax = x.abs()
    d = ellipsoid(x, y, z, (0, 0.225, -0.05), (0.465, 0.515, 0.50))
    d = smooth_union(d, ellipsoid(ax, y, z, (0.365, -0.06, 0.0), (0.135, 0.36, 0.17)), 0.14)
    d = smooth_cut(d, ellipsoid(x, y, z, (0, -0.10, 0.55), (0.335, 0.47, 0.80)), 0.04)
    fringe = _tilted(x, y, z, (-0.17, 0.44, 0.30), (0.34, 0.135, 0.17), 0.62)
    fringe = smooth_union(
        fringe, _tilted(x, y, z, (0.24, 0.46, 0.24), (0.25, 0.12, 0.17), -0.80), 0.03
    )
    return smooth_union(d, fringe, 0.035)


def _bob_back(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    return ellipsoid(x, y, z, (0, -0.02, -0.26), (0.46, 0.42, 0.24))
