"""Solids as signed distance fields in torch, and the march that looks at them from the front.

A field takes the coordinates x (to the picture's right), y (up) and z (to the viewer) of any one
shape, in units of half a frame, and returns the distance to its surface, negative inside. All of
it runs once per look, when the stage loads.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn.functional import interpolate, max_pool2d

Field: TypeAlias = Callable[[Tensor, Tensor, Tensor], Tensor]
Vec: TypeAlias = tuple[float, float, float]

_ROWS = 128  # rows marched at once: the working set stays in the cache
_STEPS, _STEPS_MORE = 7, 24
_COARSE = 4  # a first march at a quarter of the density finds where the solid is


def _square(t: Tensor, at: float) -> Tensor:
    moved = t - at
    return moved.mul_(moved)


def sphere(x: Tensor, y: Tensor, z: Tensor, at: Vec, r: float) -> Tensor:
    """A ball."""
    return (_square(x, at[0]) + _square(y, at[1])).add_(_square(z, at[2])).sqrt_().sub_(r)


def ellipsoid(x: Tensor, y: Tensor, z: Tensor, at: Vec, r: Vec) -> Tensor:
    """An ellipsoid with the axes' directions; the distance is a good estimate, not exact."""
    xx, yy, zz = _square(x, at[0]), _square(y, at[1]), _square(z, at[2])
    a, b, c = (1.0 / (v * v) for v in r)
    k0 = (xx * a).add(yy, alpha=b).add_(zz, alpha=c).sqrt_()
    k1 = (xx * (a * a)).add(yy, alpha=b * b).add_(zz, alpha=c * c).add_(1e-9).sqrt_()
    return torch.addcmul(-k0, k0, k0).div_(k1)


def capsule(x: Tensor, y: Tensor, z: Tensor, a: Vec, b: Vec, ra: float, rb: float) -> Tensor:
    """A rod from `a` to `b` whose radius goes from `ra` to `rb`."""
    ax, ay, az = (b[i] - a[i] for i in range(3))
    px, py, pz = x - a[0], y - a[1], z - a[2]
    per = 1.0 / (ax * ax + ay * ay + az * az)
    t = (px * (ax * per)).add(py, alpha=ay * per).add_(pz, alpha=az * per).clamp_(0.0, 1.0)
    px, py, pz = px.sub(t, alpha=ax), py.sub(t, alpha=ay), pz.sub(t, alpha=az)
    away = px.mul_(px).add_(py.mul_(py)).add_(pz.mul_(pz)).sqrt_()
    return away.sub_(t, alpha=rb - ra).sub_(ra)


def smooth_union(a: Tensor, b: Tensor, k: float) -> Tensor:
    """The union of two solids, its seam rounded over about `k`."""
    h = torch.sub(a, b).abs_().neg_().add_(k).clamp_min_(0.0)
    return torch.minimum(a, b).sub_(h.mul_(h), alpha=0.25 / k)


def smooth_cut(a: Tensor, b: Tensor, k: float) -> Tensor:
    """`a` without `b`, the edge rounded over about `k`."""
    return -smooth_union(-a, b, k)


def smooth_overlap(a: Tensor, b: Tensor, k: float) -> Tensor:
    """What is in both, the edge rounded over about `k`."""
    return -smooth_union(-a, -b, k)


def ring(x: Tensor, y: Tensor, z: Tensor, at: Vec, radius: Vec, thick: float) -> Tensor:
    """A ring round y: half axes `radius[0]` in x and `radius[2]` in z, its slope `radius[1]`."""
    px, pz = (x - at[0]) / radius[0], (z - at[2]) / radius[2]
    away = (torch.sqrt(px * px + pz * pz) - 1.0) * min(radius[0], radius[2])
    up = y - at[1] + radius[1] * (z - at[2])
    return torch.sqrt(away * away + up * up) - thick


def turned(x: Tensor, y: Tensor, angle: float) -> tuple[Tensor, Tensor]:
    """Coordinates in a system that is turned by `angle` against the clock."""
    c, s = math.cos(angle), math.sin(angle)
    return x * c + y * s, y * c - x * s


@dataclass(frozen=True, slots=True)
class Canvas:
    """A rectangle in front of the solids: centre, half extents, pixels per unit."""

    left: float
    top: float
    width_px: int
    height_px: int
    density: float

    def axes(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """x as [1, width] and y as [height, 1] of the pixels' centres, y pointing up."""
        x = self.left + (torch.arange(self.width_px, device=device) + 0.5) / self.density
        y = self.top - (torch.arange(self.height_px, device=device) + 0.5) / self.density
        return x[None, :], y[:, None]

    def coarse(self, by: int) -> "Canvas":
        """The same rectangle with 1/by of the density."""
        return Canvas(
            self.left, self.top, self.width_px // by, self.height_px // by, self.density / by
        )


@dataclass(frozen=True, slots=True)
class Relief:
    """A solid seen from the front: float32 [height, width] each.

    `depth` is z of the surface (or of the closest approach), `alpha` the pixel's coverage 0..1,
    `nx, ny, nz` the unit normal.
    """

    depth: Tensor
    alpha: Tensor
    nx: Tensor
    ny: Tensor
    nz: Tensor


def _march(
    field: Field, x: Tensor, y: Tensor, z: Tensor, steps: int, far: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Walks from z towards -z. Returns the nearest point's depth and distance, and where it is."""
    least = torch.full_like(z, 9.0)
    best = z
    for _ in range(steps):
        d = field(x, y, z)
        closer = (d < least).to(d.dtype)
        best = torch.addcmul(best, closer, z - best)
        least = torch.minimum(least, d)
        z = (z - d.clamp_min(-0.02)).clamp_min_(far)
    return best, least, z


def _march_fine(
    field: Field, x: Tensor, y: Tensor, z: Tensor, far: float, pixel: float
) -> tuple[Tensor, Tensor]:
    """A few steps for all, many for the rays that graze an edge on their way to what is behind."""
    depth, least, z = _march(field, x, y, z, _STEPS, far)
    on = (least > 0.08 * pixel) & (z > far)
    depth, least = depth.flatten(), least.flatten()
    left = on.flatten().nonzero()[:, 0]
    if len(left):
        xs, ys, zs = x.reshape(-1)[left], y.reshape(-1)[left], z.flatten()[left]
        more, closest, _ = _march(field, xs, ys, zs, _STEPS_MORE, far)
        closer = closest < least[left]
        depth[left] = torch.where(closer, more, depth[left])
        least[left] = torch.minimum(closest, least[left])
    return depth.view(x.shape), least.view(x.shape)


def relief(
    field: Field, canvas: Canvas, device: torch.device, near: float, far: float, mirrored: bool
) -> Relief:
    """Look at `field` along -z from `near` to `far`.

    `mirrored` says that the field is symmetric in x, as the canvas then must be: only one half is
    looked at.
    """
    whole = canvas
    if mirrored:
        canvas = Canvas(0.0, canvas.top, canvas.width_px // 2, canvas.height_px, canvas.density)
    coarse = canvas.coarse(_COARSE)
    x, y = coarse.axes(device)
    z = torch.full((coarse.height_px, coarse.width_px), near, device=device)
    depth, least, _ = _march(field, x.expand_as(z), y.expand_as(z), z, 26, far)
    start = max_pool2d(depth[None, None], 5, 1, 2)
    start = interpolate(start, (canvas.height_px, canvas.width_px), mode="bilinear")[0, 0]
    there = max_pool2d((least < 3.0 / coarse.density).float()[None, None], 3, 1, 1)[0, 0] > 0.5
    x, y = canvas.axes(device)
    pixel = 1.0 / canvas.density
    planes = torch.zeros(5, canvas.height_px, canvas.width_px, device=device)
    planes[0], planes[4] = far, 1.0
    for top in range(0, canvas.height_px, _ROWS):
        rows = slice(top, min(top + _ROWS, canvas.height_px))
        seen = there[top // _COARSE : -(-rows.stop // _COARSE)].any(0).nonzero()
        if len(seen) == 0:
            continue
        columns = slice(
            int(seen.min()) * _COARSE, min((int(seen.max()) + 1) * _COARSE, canvas.width_px)
        )
        z = start[rows, columns] + 0.02
        xs, ys = x[:, columns].expand_as(z), y[rows].expand_as(z)
        depth, least = _march_fine(field, xs, ys, z, far, pixel)
        planes[0, rows, columns] = depth
        planes[1, rows, columns] = (1.2 - least / pixel).clamp(0.0, 1.0)
        for plane, value in zip(planes[2:], normal(field, xs, ys, depth, pixel), strict=True):
            plane[rows, columns] = value
    if mirrored:
        other = planes.flip(2)
        other[2] = -other[2]
        planes = torch.cat([other, planes], 2)
        if planes.shape[2] != whole.width_px:
            raise ValueError("a mirrored canvas needs an even width round x = 0")
    return Relief(*planes.unbind(0))


def normal(
    field: Field, x: Tensor, y: Tensor, z: Tensor, step: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The unit normal of the surface, from four samples at the corners of a tetrahedron."""
    a = field(x + step, y - step, z - step)
    b = field(x - step, y - step, z + step)
    c = field(x - step, y + step, z - step)
    d = field(x + step, y + step, z + step)
    nx, ny, nz = a - b - c + d, c - a - b + d, b - a - c + d
    size = torch.rsqrt(nx * nx + ny * ny + nz * nz + 1e-12)
    return nx * size, ny * size, nz * size
