"""How skin moves with an expression: displacement fields over the head's layer, and its depth."""

import torch
from torch import Tensor

from gpu_stages.face.bake import HEAD_CANVAS, blurred
from gpu_stages.face.looks import Look
from gpu_stages.face.pose import EXPRESSIONS

GRID_W, GRID_H = 64, 72


def grid_axes(device: torch.device) -> tuple[Tensor, Tensor]:
    """x [1, GRID_W] and y [GRID_H, 1] of the grid's nodes, which span HEAD_CANVAS's cells."""
    c = HEAD_CANVAS
    width, height = c.width_px / c.density, c.height_px / c.density
    x = c.left + (torch.arange(GRID_W, device=device) + 0.5) * (width / GRID_W)
    y = c.top - (torch.arange(GRID_H, device=device) + 0.5) * (height / GRID_H)
    return x[None, :], y[:, None]


def depth_grid(depth: Tensor, alpha: Tensor) -> Tensor:
    """The head's depth [GRID_H, GRID_W], smooth, and carried on beyond its outline."""
    solid = (alpha > 0.5).to(depth.dtype)
    size = (GRID_H, GRID_W)
    weight = torch.nn.functional.adaptive_avg_pool2d(solid[None, None], size)[0, 0]
    value = torch.nn.functional.adaptive_avg_pool2d((depth * solid)[None, None], size)[0, 0]
    total, share = value, weight
    for radius, gain in ((1, 1.0), (3, 1e-2), (6, 1e-4), (12, 1e-6)):
        total = total + gain * blurred(value, radius)
        share = share + gain * blurred(weight, radius)
    filled = total / share.clamp_min(1e-9)
    return blurred(filled, 2)


def fields(look: Look, device: torch.device) -> Tensor:
    """[len(EXPRESSIONS), 2, GRID_H, GRID_W]: how far skin at a node has moved, in model units."""
    x, y = grid_axes(device)
    x, y = x.expand(GRID_H, GRID_W), y.expand(GRID_H, GRID_W)
    f = look.features
    my, mw = f.mouth_y, f.mouth_half_width
    ax, side = x.abs(), torch.sign(x)

    def spot(cx: float, cy: float, rx: float, ry: float, of: Tensor = ax) -> Tensor:
        return torch.exp(-(((of - cx) / rx) ** 2 + ((y - cy) / ry) ** 2))

    def ramp(value: Tensor) -> Tensor:
        t = value.clamp(0.0, 1.0)
        return t * t * (3.0 - 2.0 * t)

    nothing = torch.zeros_like(x)
    low = ramp((my + 0.03 - y) / 0.20) * ramp((0.50 - ax) / 0.30)
    cheek = spot(0.20, -0.09, 0.13, 0.11)
    corner = spot(mw + 0.05, my + 0.01, 0.09, 0.09)
    made: dict[str, tuple[Tensor, Tensor]] = {
        "jaw": (-0.009 * side * spot(0.27, -0.20, 0.10, 0.14), -0.085 * low),
        "smile": (side * 0.020 * (cheek + corner), 0.030 * cheek + 0.016 * corner),
        "frown": (-side * 0.006 * corner, -0.020 * corner),
        "round": (-side * 0.026 * corner, nothing),
        "wide": (side * 0.022 * corner, 0.006 * cheek),
        "brow_left": (nothing, 0.016 * spot(f.eye_x, f.brow_y + 0.02, 0.13, 0.09, x)),
        "brow_right": (nothing, 0.016 * spot(-f.eye_x, f.brow_y + 0.02, 0.13, 0.09, x)),
        "furrow": (
            -side * 0.016 * spot(0.09, f.brow_y, 0.08, 0.08),
            -0.012 * spot(0.07, f.brow_y, 0.10, 0.08),
        ),
        "squint": (nothing, 0.012 * spot(f.eye_x, f.eye_y - 0.09, 0.12, 0.06)),
        "raise": (nothing, 0.010 * spot(0.09, -0.13, 0.09, 0.07)),
    }
    return torch.stack([torch.stack(made[name]) for name in EXPRESSIONS])
