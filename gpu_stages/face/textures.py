"""A baked look prepared for one frame size: 8-bit textures finer than the frame.

A texture holds several texels per pixel, low-passed to a pixel, so that the warp may take the
nearest texel: no interpolation per frame, and still smooth edges and motion.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from gpu_stages.face.bake import BACK_CANVAS, HEAD_CANVAS, Baked
from gpu_stages.face.looks import VIEW_HALF, Look
from gpu_stages.face.sculpt import Canvas
from gpu_stages.face.shading import linear, to_srgb

ALPHA_ONE = 128  # full coverage, so that products with 8-bit values fit int16
BARE_ONE = 255  # nothing lies over the features
MARGIN = 0.14  # model units of the back layer kept beyond the frame's edges


@dataclass(frozen=True, slots=True)
class Frame:
    """Where the model lies in a frame: `scale` pixels per unit, origin at (x0_px, y0_px)."""

    width_px: int
    height_px: int
    scale: float
    x0_px: float
    y0_px: float
    texels: int
    """Texels per pixel, both ways, in luma and in chroma."""
    step: int
    """Pixels between the nodes of the warp."""


def frame_of(width_px: int, height_px: int) -> Frame:
    """Centred, the shorter side holds 2 * VIEW_HALF units; spare height goes mostly on top."""
    short = min(width_px, height_px)
    scale = short / (2.0 * VIEW_HALF)
    spare = height_px - short
    below = min(spare * 0.5, 0.30 * scale)
    y0 = height_px - below - VIEW_HALF * scale
    if short <= 320:
        texels, step = 4, 4
    elif short <= 640:
        texels, step = 4, 8
    else:
        texels, step = 2, 16
    return Frame(width_px, height_px, scale, width_px / 2.0, y0, texels, step)


@dataclass(frozen=True, slots=True)
class Sheet:
    """One layer as flat uint8 textures and the place of texel (0, 0), in model units."""

    luma: Tensor
    u: Tensor
    v: Tensor
    clear: Tensor
    """ALPHA_ONE less the coverage."""
    clear_half: Tensor
    bare: Tensor
    """BARE_ONE where features may be drawn, less where hair or glasses lie over the skin."""
    canvas: Canvas
    half: Canvas


def _kernel(source: Tensor, target: Tensor, width: float) -> Tensor:
    """Weights [target, source] of Mitchell's cubic, `width` wide, as if beyond source were zero."""
    step = source[1] - source[0]
    beyond = math.ceil(2.0 * width / abs(float(step)))
    reach = torch.arange(-beyond, len(source) + beyond, device=source.device)
    t = ((target[:, None] - (source[0] + step * reach)[None, :]) / width).abs()
    near = (7.0 * t**3 - 12.0 * t**2 + 16.0 / 3.0) / 6.0
    far = (-7.0 / 3.0 * t**3 + 12.0 * t**2 - 20.0 * t + 32.0 / 3.0) / 6.0
    got = torch.where(t < 1.0, near, torch.where(t < 2.0, far, torch.zeros_like(t)))
    got = got / got.sum(1, keepdim=True).clamp_min(1e-6)
    return got[:, beyond : beyond + len(source)].contiguous()


def resample(planes: Tensor, source: Canvas, target: Canvas, pixel: float) -> Tensor:
    """[c, h, w] on `source` to [c, h, w] on `target`, low-passed to `pixel` units; zero outside."""
    device = planes.device
    (sx, sy), (tx, ty) = source.axes(device), target.axes(device)
    width = max(1.0 / source.density, pixel)
    across = _kernel(sx[0], tx[0], width)
    down = _kernel(sy[:, 0], ty[:, 0], width)
    return torch.matmul(down, torch.matmul(planes, across.t()))


def _yuv(rgb: Tensor, alpha: Tensor) -> Tensor:
    """Premultiplied R, G, B (0..1) to premultiplied 8-bit Y, U, V."""
    r, g, b = rgb.unbind(0)
    return torch.stack(
        [
            16.0 * alpha + 65.481 * r + 128.553 * g + 24.966 * b,
            128.0 * alpha - 37.797 * r - 74.203 * g + 112.0 * b,
            128.0 * alpha + 112.0 * r - 93.786 * g - 18.214 * b,
        ]
    )


def _bytes(plane: Tensor) -> Tensor:
    return plane.add(0.5).clamp_(0.0, 255.0).to(torch.uint8).flatten()


def head_sheet(baked: Baked, frame: Frame) -> Sheet:
    """The head's layer, premultiplied."""
    bare = baked.bare * baked.head[3]
    planes = torch.cat([_yuv(baked.head[:3], baked.head[3]), baked.head[3:], bare[None]])
    full = _target(HEAD_CANVAS, frame.scale * frame.texels)
    half = _target(HEAD_CANVAS, frame.scale * frame.texels / 2.0)
    pixel = 1.0 / frame.scale
    fine = resample(planes[[0, 3, 4]], HEAD_CANVAS, full, pixel)
    rough = resample(planes[[1, 2, 3]], HEAD_CANVAS, half, 2.0 * pixel)
    return Sheet(
        luma=_bytes(fine[0]),
        u=_bytes(rough[0]),
        v=_bytes(rough[1]),
        clear=_bytes((1.0 - fine[1].clamp(0.0, 1.0)) * ALPHA_ONE),
        clear_half=_bytes((1.0 - rough[2].clamp(0.0, 1.0)) * ALPHA_ONE),
        bare=_bytes(fine[2].clamp(0.0, 1.0) * BARE_ONE),
        canvas=full,
        half=half,
    )


def back_sheet(baked: Baked, look: Look, frame: Frame) -> Sheet:
    """Background, neck and clothes, opaque, with a margin round the frame."""
    wide = Canvas(
        -frame.x0_px / frame.scale - MARGIN,
        frame.y0_px / frame.scale + MARGIN,
        math.ceil((frame.width_px / frame.scale + 2 * MARGIN) * frame.scale * frame.texels),
        math.ceil((frame.height_px / frame.scale + 2 * MARGIN) * frame.scale * frame.texels),
        frame.scale * frame.texels,
    )
    half = Canvas(wide.left, wide.top, wide.width_px // 2, wide.height_px // 2, wide.density / 2)
    planes = torch.cat([_yuv(baked.back[:3], baked.back[3]), baked.back[3:]])
    pixel = 1.0 / frame.scale
    fine = resample(planes[[0, 3]], BACK_CANVAS, wide, pixel)
    rough = resample(planes[[1, 2, 3]], BACK_CANVAS, half, 2.0 * pixel)
    behind = _background(look, wide, frame, baked.back.device)
    luma = fine[0] + behind[0] * (1.0 - fine[1].clamp(0.0, 1.0))
    behind = _background(look, half, frame, baked.back.device)
    chroma = rough[:2] + behind[1:] * (1.0 - rough[2].clamp(0.0, 1.0))
    none = luma.new_empty(0, dtype=torch.uint8)
    return Sheet(_bytes(luma), _bytes(chroma[0]), _bytes(chroma[1]), none, none, none, wide, half)


def _target(canvas: Canvas, density: float) -> Canvas:
    ratio = density / canvas.density
    return Canvas(
        canvas.left,
        canvas.top,
        math.ceil(canvas.width_px * ratio),
        math.ceil(canvas.height_px * ratio),
        density,
    )


def _background(look: Look, canvas: Canvas, frame: Frame, device: torch.device) -> Tensor:
    """A lit wall: brightest behind the head's left, falling off to the corners. [3, h, w] YUV."""
    coarse = Canvas(
        canvas.left, canvas.top, canvas.width_px // 8, canvas.height_px // 8, canvas.density / 8
    )
    x, y = coarse.axes(device)
    reach = max(frame.width_px, frame.height_px) / frame.scale / (2.0 * VIEW_HALF)
    away = torch.sqrt(((x + 0.22) / reach) ** 2 + ((y - 0.22) / reach) ** 2) / 1.25
    away = away.clamp(0.0, 1.0)
    fall = away * away * (3.0 - 2.0 * away)
    light = torch.tensor(linear(look.background_light), device=device)[:, None, None]
    dark = torch.tensor(linear(look.background_dark), device=device)[:, None, None]
    corner = torch.sqrt((x / reach) ** 2 + (y / reach) ** 2) / 1.22
    vignette = 1.0 - 0.30 * corner.clamp(0.0, 1.0) ** 4
    rgb = to_srgb((light + (dark - light) * fall) * vignette)
    planes = _yuv(rgb, torch.ones_like(rgb[0]))
    fine = torch.nn.functional.interpolate(
        planes[None], (canvas.height_px, canvas.width_px), mode="bilinear", align_corners=False
    )[0]
    # A fixed grain of less than one step keeps the gradient from showing bands.
    grain = torch.rand(
        canvas.height_px,
        canvas.width_px,
        generator=torch.Generator("cpu").manual_seed(1),
        device="cpu",
    )
    return fine + (grain.to(device) - 0.5)
