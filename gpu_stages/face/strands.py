"""Strands on the hair's solid: grooves, tones and the bands of light across them."""

from dataclasses import dataclass

import torch
from torch import Tensor

from gpu_stages.face.looks import Clothes, Hair
from gpu_stages.face.sculpt import Canvas, Relief


@dataclass(frozen=True, slots=True)
class Combed:
    """The relief with its normals bent by the grooves; `tone` about -1..1; `shine` 0..1."""

    relief: Relief
    tone: Tensor
    shine: Tensor


def _noise(u: Tensor) -> Tensor:
    """A fixed rough line, about -1..1."""
    return (
        torch.sin(u * 1.0 + 1.7 * torch.sin(u * 0.31 + 0.4))
        + 0.6 * torch.sin(u * 2.3 + 2.1 * torch.sin(u * 0.53) + 1.1)
        + 0.4 * torch.sin(u * 5.1 + 1.3 * torch.sin(u * 0.9) + 2.7)
    ) * 0.5


def _across(hair: Hair, x: Tensor, y: Tensor, z: Tensor) -> tuple[Tensor, float, float]:
    """The coordinate that changes from strand to strand, its frequency, the grooves' depth."""
    match hair:
        case Hair.SWEPT:
            along = torch.atan2(y - 0.30 - 0.2 * z, x + 0.62)
            return along, 40.0, 0.26
        case Hair.CURLS:
            return x, 30.0, 0.0
        case Hair.BOB:
            fall = torch.atan2(x - 0.05, 0.95 - y)
            return fall * (1.0 + 0.0 * z), 42.0, 0.30


def comb(r: Relief, hair: Hair, canvas: Canvas, device: torch.device) -> Combed:
    """Bend the normals and find the tone and the shine of every strand."""
    x, y = canvas.axes(device)
    u, frequency, depth = _across(hair, x.expand_as(r.depth), y.expand_as(r.depth), r.depth)
    du_dy, du_dx = torch.gradient(u, spacing=1.0 / canvas.density)
    du_dy = -du_dy
    size = torch.rsqrt(du_dx * du_dx + du_dy * du_dy + 1e-6)
    gx, gy = (du_dx * size), (du_dy * size)
    groove = _noise(u * frequency + 0.7) * 0.65 + _noise(u * frequency * 3.1) * 0.35
    nx, ny = r.nx + gx * groove * depth, r.ny + gy * groove * depth
    norm = torch.rsqrt(nx * nx + ny * ny + r.nz * r.nz + 1e-6)
    nx, ny, nz = nx * norm, ny * norm, r.nz * norm
    # The strand's direction lies in the surface, at right angles to the way across it.
    tx, ty = -gy, gx
    along = tx * r.nx + ty * r.ny
    tx, ty, tz = tx - along * r.nx, ty - along * r.ny, -along * r.nz
    norm = torch.rsqrt(tx * tx + ty * ty + tz * tz + 1e-6)
    shine = torch.zeros_like(u)
    for (lx, ly, lz), power, weight in (
        ((-0.30, 0.62, 0.72), 60.0, 0.42),
        ((-0.22, 0.45, 0.86), 18.0, 0.16),
    ):
        dot = (tx * lx + ty * ly + tz * lz) * norm + 0.07 * groove
        shine = shine + weight * (1.0 - dot * dot).clamp_min(0.0) ** (power * 0.5)
    if depth == 0.0:
        shine = shine * 0.0
    bent = Relief(r.depth, r.alpha, nx, ny, nz)
    return Combed(bent, groove, shine * (0.65 + 0.35 * groove).clamp_min(0.0))


def knit(paint: Tensor, clothes: Clothes, r: Relief, canvas: Canvas, second: bool) -> Tensor:
    """The weave of a piece of clothing, as tones of its colour. [3, h, w]."""
    x, y = canvas.axes(r.depth.device)
    rows = torch.sin((y + 0.10 * r.nx) * 260.0) * torch.sin((x + 0.05 * r.ny) * 300.0)
    match clothes:
        case Clothes.CREW:
            ribs = torch.sin(torch.atan2(x, r.depth + 0.32) * 90.0)
            return paint * (1.0 + (0.16 * ribs if second else 0.05 * rows))
        case Clothes.TURTLENECK:
            ribs = torch.sin(torch.atan2(x, r.depth + 0.32) * 84.0)
            high = ((y + 0.66) / 0.06).clamp(0.0, 1.0)
            return paint * (1.0 + 0.09 * ribs * high + 0.05 * rows)
        case Clothes.BLAZER:
            if second:
                button = torch.sqrt(x * x + (y + 0.83) ** 2) - 0.012
                seam = torch.exp(-((x.abs() - 0.028) ** 2) * 90000.0) * 0.10
                return paint * (1.0 - seam - 0.35 * (button < 0.0).to(paint.dtype))
            return paint * (1.0 + 0.07 * torch.sin((x + y) * 420.0) * torch.sin((x - y) * 90.0))
