"""The solids of a person: skull, neck, hair, clothes, in the model units of `looks`."""

import torch
from torch import Tensor

from gpu_stages.face.looks import Clothes, Hair, Look
from gpu_stages.face.sculpt import (
    Field,
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


def clothes_of(look: Look) -> Field:
    """The torso as its clothes show it."""
    w, n = look.shape.shoulders, look.shape.neck
    clothes = look.clothes

    def field(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
        ax = x.abs()
        d = ellipsoid(x, y, z, (0, -1.22, -0.10), (0.68 * w, 0.56, 0.33))
        arm = capsule(ax, y, z, (0.30 * w, -0.92, -0.14), (0.60 * w, -1.03, -0.14), 0.16, 0.21)
        d = smooth_union(d, arm, 0.20)
        arm = capsule(ax, y, z, (0.62 * w, -1.04, -0.14), (0.72 * w, -1.7, -0.12), 0.205, 0.2)
        d = smooth_union(d, arm, 0.10)
        d = smooth_union(d, capsule(x, y, z, (0, -0.6, -0.1), (0, -0.9, -0.12), 0.22, 0.30), 0.16)
        if clothes is Clothes.TURTLENECK:
            roll = capsule(x, y, z, (0, -0.46, -0.09), (0, -0.8, -0.11), 0.205 * n, 0.235 * n)
            d = smooth_union(d, roll, 0.05)
            d = smooth_cut(
                d, capsule(x, y, z, (0, -0.1, -0.1), (0, -0.44, -0.09), 0.2 * n, 0.19 * n), 0.02
            )
            return smooth_union(
                d, ring(x, y, z, (0, -0.475, -0.09), (0.212 * n, 0.2, 0.212 * n), 0.03), 0.02
            )
        hole = capsule(x, y, z, (0, -0.2, -0.10), (0, -0.70, -0.06), 0.225 * n, 0.222 * n)
        d = smooth_cut(d, hole, 0.02)
        collar = ring(x, y, z, (0, -0.70, -0.07), (0.232 * n, 0.28, 0.225 * n), 0.034)
        return smooth_union(d, collar, 0.015)

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


def _swept(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    cap = ellipsoid(x, y, z, (0, 0.225, -0.07), (0.452, 0.505, 0.49))
    face = ellipsoid(x, y, z, (0, 0.06, 0.55), (0.385, 0.42, 0.72))
    cap = smooth_cut(cap, face, 0.04)
    cap = smooth_cut(cap, ellipsoid(x, y, z, (0, -0.40, 0.0), (0.9, 0.42, 0.9)), 0.03)
    tx, ty = turned(x - 0.10, y - 0.63, -0.16)
    q = ellipsoid(tx, ty, z, (0, 0, 0.14), (0.34, 0.15, 0.28))
    tx, ty = turned(x + 0.24, y - 0.55, 0.55)
    q = smooth_union(q, ellipsoid(tx, ty, z, (0, 0, 0.14), (0.22, 0.13, 0.24)), 0.06)
    tx, ty = turned(x - 0.30, y - 0.54, -0.75)
    q = smooth_union(q, ellipsoid(tx, ty, z, (0, 0, 0.10), (0.20, 0.10, 0.25)), 0.05)
    return smooth_union(cap, q, 0.06)


def _curls(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    cap = ellipsoid(x, y, z, (0, 0.27, -0.07), (0.47, 0.50, 0.49))
    bump = torch.sin(x * 34) * torch.sin(y * 34 + 1.0) * torch.sin(z * 34)
    cap = cap + bump * 0.016
    face = ellipsoid(x, y, z, (0, 0.06, 0.55), (0.375, 0.40, 0.72))
    cap = smooth_cut(cap, face, 0.03)
    return smooth_cut(cap, ellipsoid(x, y, z, (0, -0.36, 0.0), (0.9, 0.42, 0.9)), 0.03)


def _bob(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    d = ellipsoid(x, y, z, (0, 0.22, -0.05), (0.475, 0.525, 0.50))
    side = capsule(x.abs(), y, z, (0.40, 0.15, 0.0), (0.42, -0.34, 0.02), 0.12, 0.10)
    d = smooth_union(d, side, 0.10)
    face = ellipsoid(x, y, z, (0, -0.06, 0.55), (0.355, 0.40, 0.80))
    return smooth_cut(d, face, 0.05)


def _bob_back(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    return ellipsoid(x, y, z, (0, -0.02, -0.26), (0.50, 0.50, 0.24))
