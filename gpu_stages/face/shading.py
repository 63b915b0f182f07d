"""Studio light on the sculpted head: three soft lights, a sky, occlusion, and skin that glows.

Colours are linear light until `to_srgb`. It runs when a look is built, never per frame.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from gpu_stages.face.sculpt import Canvas, Field, Relief, Vec

_KEY: Vec = (-0.50, 0.58, 0.64)
_FILL: Vec = (0.80, 0.05, 0.55)
_RIM_RIGHT: Vec = (0.82, 0.35, -0.45)
_RIM_LEFT: Vec = (-0.88, 0.30, -0.40)
_KEY_COLOR: Vec = (1.00, 0.955, 0.90)
_FILL_COLOR: Vec = (0.82, 0.90, 1.00)
_SHADE_BY = 4  # occlusion and shadow are soft: a quarter of the density is enough


@dataclass(frozen=True, slots=True)
class Material:
    """`wrap` lets light run round the form per channel (skin); `gloss` is a sharpness exponent."""

    wrap: Vec = (0.18, 0.18, 0.18)
    shine: float = 0.05
    gloss: float = 20.0
    rim: float = 0.5
    occlusion_tint: Vec = (0.0, 0.0, 0.0)


SKIN = Material((0.42, 0.22, 0.15), 0.10, 14.0, 0.42, (0.55, 0.22, 0.16))
CLOTH = Material((0.25, 0.25, 0.25), 0.0, 8.0, 0.55)
LACQUER = Material((0.0, 0.0, 0.0), 0.35, 40.0, 0.6)
HAIR = Material((0.20, 0.20, 0.20), 0.0, 30.0, 0.75, (0.1, 0.08, 0.08))


@dataclass(frozen=True, slots=True)
class Shade:
    """What stands between a surface and the light: both [height, width], 1 is open."""

    open_sky: Tensor
    key_light: Tensor


def unit(v: Vec) -> Vec:
    """The vector with length one."""
    size = math.sqrt(v[0] * v[0] + v[1] * v[1] + v[2] * v[2])
    return v[0] / size, v[1] / size, v[2] / size


def linear(color: str) -> Vec:
    """Linear light of an sRGB colour written "#rrggbb"."""
    values = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    r, g, b = ((v / 12.92) if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in values)
    return r, g, b


def to_srgb(light: Tensor) -> Tensor:
    """Display values 0..1 of linear light: a gentle shoulder, then the sRGB curve."""
    x = light.clamp_min(0.0)
    x = torch.minimum(x, 0.6 + (1.0 - torch.exp(-(x - 0.6).clamp_min(0.0) / 0.4)) * 0.4)
    low = x * 12.92
    high = 1.055 * x.clamp_min(0.0031308) ** (1 / 2.4) - 0.055
    return torch.maximum(torch.minimum(low, high), high * (x > 0.0031308).to(x.dtype))


def shade_of(scene: Field, r: Relief, canvas: Canvas, device: torch.device) -> Shade:
    """Ambient occlusion along the normal and a soft shadow towards the key light."""
    small = canvas.coarse(_SHADE_BY)
    x, y = small.axes(device)

    def half(t: Tensor) -> Tensor:
        return interpolate(
            t[None, None], (small.height_px, small.width_px), mode="bilinear", align_corners=False
        )[0, 0]

    z, nx, ny, nz = half(r.depth), half(r.nx), half(r.ny), half(r.nz)
    x, y = x.expand_as(z), y.expand_as(z)
    hidden = torch.zeros_like(z)
    for far, weight in ((0.03, 0.9), (0.08, 0.55), (0.18, 0.32), (0.34, 0.16)):
        d = scene(x + nx * far, y + ny * far, z + nz * far)
        hidden = hidden + ((far - d) / far).clamp(0.0, 1.0) * weight
    open_sky = torch.exp(-hidden * 1.25)
    lx, ly, lz = unit(_KEY)
    lit = torch.ones_like(z)
    way = 0.035
    for _ in range(8):
        at = way + 0.01
        d = scene(x + nx * 0.012 + lx * at, y + ny * 0.012 + ly * at, z + nz * 0.012 + lz * at)
        lit = torch.minimum(lit, d * (7.0 / at) * 0.5 + 0.5)
        way *= 1.43
    lit = lit.clamp(0.0, 1.0)
    lit = lit * lit * (3.0 - 2.0 * lit)

    def full(t: Tensor) -> Tensor:
        return interpolate(
            t[None, None], tuple(r.depth.shape), mode="bicubic", align_corners=False
        )[0, 0].clamp(0.0, 1.0)

    return Shade(full(open_sky), full(lit))


def light(
    r: Relief, shade: Shade, albedo: Tensor, m: Material, outline: Tensor | None = None
) -> Tensor:
    """Linear light [3, height, width] that comes from the surface with `albedo` [3, h, w].

    `outline` [h, w] keeps the light from behind to where it is 1.
    """

    def facing(v: Vec) -> Tensor:
        x, y, z = unit(v)
        return r.nx * x + r.ny * y + r.nz * z

    key, fill = facing(_KEY), facing(_FILL)
    grazing = (1.0 - r.nz.clamp(0.0, 1.0)) ** 2.5
    rim = (facing(_RIM_RIGHT) + 0.25).clamp_min(0.0) * 1.0 + (facing(_RIM_LEFT) + 0.2).clamp_min(
        0.0
    ) * 0.55
    rim = rim * grazing * m.rim * shade.open_sky**2
    if outline is not None:
        rim = rim * outline
    sky = 0.5 + 0.5 * r.ny
    hx, hy, hz = unit((_KEY[0], _KEY[1], _KEY[2] + 1.0))
    half_way = (r.nx * hx + r.ny * hy + r.nz * hz).clamp(0.0, 1.0)
    shine = m.shine * half_way**m.gloss * shade.key_light
    planes: list[Tensor] = []
    for i in range(3):
        wrap = m.wrap[i]
        diffuse = ((key + wrap) / (1.0 + wrap)).clamp_min(0.0) ** 1.15
        soft = shade.key_light ** (1.0 - 0.6 * m.occlusion_tint[i])
        ambient = shade.open_sky ** (1.0 - 0.75 * m.occlusion_tint[i])
        got = (
            0.95 * _KEY_COLOR[i] * diffuse * (0.16 + 0.84 * soft)
            + 0.24 * _FILL_COLOR[i] * (fill + 0.30).clamp_min(0.0) * ambient
            + (0.16 * (0.92, 0.97, 1.0)[i] * sky + 0.15 * (1.0, 0.90, 0.82)[i]) * ambient
        )
        planes.append(albedo[i] * got + (0.25 + 0.75 * albedo[i]) * rim * 0.55 + shine)
    return torch.stack(planes)
