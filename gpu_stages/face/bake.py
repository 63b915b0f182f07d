"""A look's pictures at rest, made once: the head's layer, and what lies behind it.

The head's layer (skull, ears, front hair, glasses) is warped by every frame's pose over the back
layer (neck, clothes, hair behind the neck), which follows it more softly.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, pad

from gpu_stages.face.looks import Hair, Look
from gpu_stages.face.model import (
    back_hair_of,
    clothes_of,
    glasses_of,
    hair_of,
    neck_of,
    second_of,
    skin_of,
)
from gpu_stages.face.sculpt import Canvas, Field, Relief, relief
from gpu_stages.face.shading import (
    CLOTH,
    HAIR,
    LACQUER,
    SKIN,
    Material,
    light,
    linear,
    shade_of,
    to_srgb,
)
from gpu_stages.face.strands import comb, knit

_DENSITY = 256.0
HEAD_CANVAS = Canvas(-0.625, 0.875, int(1.25 * _DENSITY), int(1.5 * _DENSITY), _DENSITY)
BACK_CANVAS = Canvas(-1.0, 0.875, int(2.0 * _DENSITY), int(2.25 * _DENSITY), _DENSITY)
_NEAR, _FAR = 0.85, -0.65
_OUTLINE_PX = 9


@dataclass(frozen=True, slots=True)
class Baked:
    """Display values 0..1. `head` and `back` are [4, h, w]: R, G, B times alpha, then alpha.

    `bare` [h, w] is 1 where nothing (hair, glasses) hides the face's drawn features; `depth` [h, w]
    is z of the head without glasses. All but `back` lie on HEAD_CANVAS, that on BACK_CANVAS.
    """

    head: Tensor
    bare: Tensor
    depth: Tensor
    back: Tensor


def bake(look: Look, device: torch.device) -> Baked:
    """Sculpt, light and paint one look. Takes about a second of one core."""
    skin, neck, cloth, hair = skin_of(look), neck_of(look), clothes_of(look), hair_of(look)
    head_scene = _union([skin, hair])
    scene = _union([skin, hair, cloth, neck])

    head = _Layer(HEAD_CANVAS, device)
    face = head.look_at(skin, mirrored=True)
    head.lay(face, _lit(face, head_scene, _skin_paint(look, head), SKIN, head))
    locks = head.look_at(hair, mirrored=look.hair is Hair.CURLS)
    over = head.lay(locks, _hair_light(locks, head_scene, look, head))
    bare = 1.0 - over
    depth = head.depth.clone()
    glasses = glasses_of(look)
    if glasses is not None:
        rims = head.look_at(glasses, mirrored=True)
        over = head.lay(rims, _lit(rims, head_scene, head.flat("#2b2220"), LACQUER, head))
        bare = bare * (1.0 - over)

    back = _Layer(BACK_CANVAS, device)
    behind = back_hair_of(look)
    if behind is not None:
        locks = back.look_at(behind, mirrored=True)
        back.lay(locks, _hair_light(locks, scene, look, back))
    column = back.look_at(neck, mirrored=True)
    back.lay(column, _lit(column, scene, back.flat(look.skin), SKIN, back))
    second = second_of(look)
    if second is not None:
        piece = back.look_at(second, mirrored=True)
        paint = knit(back.flat(look.cloth_second), look.clothes, piece, back.canvas, True)
        back.lay(piece, _lit(piece, scene, paint, CLOTH, back))
    piece = back.look_at(cloth, mirrored=True)
    paint = knit(back.flat(look.cloth), look.clothes, piece, back.canvas, False)
    back.lay(piece, _lit(piece, scene, paint, CLOTH, back))
    return Baked(head.pixels, bare, depth, back.pixels)


def _union(fields: list[Field]) -> Field:
    def field(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
        got = fields[0](x, y, z)
        for other in fields[1:]:
            got = torch.minimum(got, other(x, y, z))
        return got

    return field


class _Layer:
    """Surfaces laid over each other by depth."""

    def __init__(self, canvas: Canvas, device: torch.device) -> None:
        self.canvas, self.device = canvas, device
        self.pixels = torch.zeros(4, canvas.height_px, canvas.width_px, device=device)
        self.depth = torch.full((canvas.height_px, canvas.width_px), _FAR, device=device)

    def look_at(self, field: Field, mirrored: bool) -> Relief:
        """The relief of a solid on this layer's canvas."""
        return relief(field, self.canvas, self.device, _NEAR, _FAR, mirrored)

    def flat(self, color: str) -> Tensor:
        """One colour's linear light, [3, 1, 1]."""
        return torch.tensor(linear(color), device=self.device)[:, None, None]

    def lay(self, r: Relief, rgb: Tensor) -> Tensor:
        """Lay `rgb` [3, h, w] over what is farther and under what is nearer.

        Returns the coverage that was laid over.
        """
        nearer = ((r.depth - self.depth) / 0.012 + 0.5).clamp(0.0, 1.0)
        cover = avg_pool2d((r.alpha * nearer)[None], 3, 1, 1)[0]
        under = r.alpha * (1.0 - nearer) * (1.0 - self.pixels[3])
        self.pixels[:3] += cover * (rgb - self.pixels[:3]) + under * rgb
        self.pixels[3] += cover * (1.0 - self.pixels[3]) + under
        self.pixels.clamp_(0.0, 1.0)
        seen = ((r.alpha * nearer) > 0.03).to(cover.dtype)
        self.depth += seen * (r.depth - self.depth)
        return cover


def _lit(r: Relief, scene: Field, paint: Tensor, m: Material, layer: _Layer) -> Tensor:
    return to_srgb(light(r, shade_of(scene, r, layer.canvas, layer.device), paint, m))


def _skin_paint(look: Look, layer: _Layer) -> Tensor:
    x, y = layer.canvas.axes(layer.device)
    f = look.features
    ax = x.abs()

    def spot(cx: float, cy: float, rx: float, ry: float) -> Tensor:
        return torch.exp(-(((ax - cx) / rx) ** 2 + ((y - cy) / ry) ** 2))

    base, blush = layer.flat(look.skin), layer.flat(look.blush)
    red = 0.40 * spot(0.235, -0.05, 0.12, 0.085) + 0.35 * spot(0.0, -0.075, 0.07, 0.055)
    red = red + 0.45 * spot(0.45, 0.03, 0.06, 0.12) + 0.12 * spot(0.0, -0.37, 0.10, 0.06)
    red = red + 0.20 * spot(f.eye_x, f.eye_y, 0.11, 0.06)
    w = look.shape.nose
    nostril = 0.62 * spot(0.036 * w, -0.1205, 0.017 * w, 0.0085)
    return (base + red * (blush - base)) * (1.0 - nostril)


def _hair_light(r: Relief, scene: Field, look: Look, layer: _Layer) -> Tensor:
    combed = comb(r, look.hair, layer.canvas, layer.device)
    paint = layer.flat(look.hair_color) * (1.0 + combed.tone * 0.55)
    shade = shade_of(scene, r, layer.canvas, layer.device)
    # Locks over locks have edges too, but no light from behind comes through there.
    covered = torch.maximum(layer.pixels[3], r.alpha)
    outline = None
    if look.hair is not Hair.CURLS:
        outline = ((1.0 - blurred(covered, _OUTLINE_PX)) * 5.0).clamp(0.0, 1.0)
    lit = light(combed.relief, shade, paint, HAIR, outline)
    glow = layer.flat(look.hair_shine)
    return to_srgb(lit + glow * combed.shine * (0.25 + 0.75 * shade.key_light) * shade.open_sky)


def blurred(plane: Tensor, radius: int) -> Tensor:
    """[..., h, w] averaged three times over a box of 2 * radius + 1: nearly a Gaussian."""
    if radius <= 0:
        return plane
    got = plane.reshape(-1, 1, *plane.shape[-2:])
    for _ in range(3):
        got = avg_pool2d(pad(got, (radius,) * 4, mode="replicate"), 2 * radius + 1, 1)
    return got.reshape(plane.shape)
