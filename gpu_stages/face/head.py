"""The head that everybody sees: face parameters in, I420 frames out, batched over lives."""

from collections.abc import Sequence

import torch
from torch import Tensor

from gpu_stages.face.looks import LOOK_NAMES
from gpu_stages.face.parameters import FACE_PARAMETERS, Face

SIZE_MIN_PX = 64
SIZE_MAX_PX = 1024


class BadSize(ValueError):
    """A frame size that the renderer does not draw."""


def check_size(width_px: int, height_px: int) -> None:
    """Raises `BadSize` unless both are even and within 64..1024."""
    for name, value in (("width_px", width_px), ("height_px", height_px)):
        if value % 2 or not SIZE_MIN_PX <= value <= SIZE_MAX_PX:
            raise BadSize(f"{name}={value}: must be even, {SIZE_MIN_PX}..{SIZE_MAX_PX}")


class HeadRenderer:
    """Draws heads on one device. Not thread-safe: it reuses its scratch memory."""

    def __init__(self, device: str = "cpu") -> None:
        self._device = torch.device(device)

    def warm_up(self, width_px: int, height_px: int) -> None:
        """Prepare every look for this size, so that the first frame is not late."""
        for look in range(len(LOOK_NAMES)):
            self.render(torch.zeros(1, FACE_PARAMETERS), [look], width_px, height_px)

    def render(
        self, parameters: Tensor, looks: Sequence[int], width_px: int, height_px: int
    ) -> Tensor:
        """Frames uint8 [B, height*3/2, width]: I420, BT.601 limited range.

        `parameters` is float32 [B, FACE_PARAMETERS], `looks` B indexes of LOOK_NAMES.
        """
        check_size(width_px, height_px)
        with torch.inference_mode():
            frames = [
                _sketch(row, look, width_px, height_px)
                for row, look in zip(parameters.unbind(0), looks, strict=True)
            ]
            return torch.stack(frames)


def _sketch(p: Tensor, look: int, w: int, h: int) -> Tensor:
    s = min(w, h) / 2
    y, x = torch.meshgrid(
        (torch.arange(h) + 0.5 - h / 2) / s, (torch.arange(w) + 0.5 - w / 2) / s, indexing="ij"
    )
    px = 1.0 / s

    def disc(cx: float, cy: float, rx: float, ry: float) -> Tensor:
        d = torch.sqrt(((x - cx) / rx) ** 2 + ((y - cy) / ry) ** 2)
        return ((1 - d) * min(rx, ry) / px + 0.5).clamp(0, 1)

    v = [float(value) for value in p]
    hx, hy = 0.6 * v[Face.HEAD_X] + 0.4 * v[Face.HEAD_YAW], 0.5 * v[Face.HEAD_Y]
    hy += 0.3 * v[Face.HEAD_PITCH]
    skin = ((0.93, 0.74, 0.62), (0.55, 0.36, 0.26), (0.97, 0.84, 0.78))[look]
    hair = ((0.25, 0.15, 0.11), (0.08, 0.07, 0.07), (0.62, 0.27, 0.16))[look]
    r = [0.80 - 0.25 * y, 0.83 - 0.22 * y, 0.85 - 0.2 * y]

    def lay(alpha: Tensor, color: tuple[float, float, float]) -> None:
        for i in range(3):
            r[i] = r[i] + alpha * (color[i] - r[i])

    lay(disc(0, 1.15 - 0.03 * v[Face.BREATH], 0.8, 0.5), (0.3, 0.42, 0.5))
    lay(disc(hx * 0.3, 0.55, 0.17, 0.3), (skin[0] * 0.85, skin[1] * 0.8, skin[2] * 0.8))
    lay(disc(hx * 0.7, hy - 0.2, 0.49, 0.6), hair)
    jaw = v[Face.JAW_OPEN] * (1 - v[Face.LIPS_CLOSED])
    lay(disc(hx, hy + 0.05 + 0.03 * jaw, 0.40, 0.5 + 0.04 * jaw), skin)
    for side, blink in ((-1, v[Face.BLINK_RIGHT]), (1, v[Face.BLINK_LEFT])):
        ex, ey = hx * 1.2 + side * 0.17, hy - 0.02
        eye = disc(ex, ey, 0.085, max(0.004, 0.055 * (1 - blink)))
        lay(eye, (0.97, 0.97, 0.97))
        lay(
            eye * disc(ex + 0.03 * v[Face.GAZE_X], ey - 0.02 * v[Face.GAZE_Y], 0.045, 0.045),
            (0.2, 0.25, 0.3),
        )
        lay(disc(ex, ey - 0.12 - 0.03 * v[Face.BROW_UP_LEFT], 0.1, 0.018), hair)
    mw = 0.14 + 0.04 * v[Face.LIPS_WIDE] - 0.05 * v[Face.LIPS_ROUND] + 0.03 * v[Face.SMILE]
    lay(disc(hx * 1.2, hy + 0.30, mw + 0.02, 0.04 + 0.09 * jaw), (0.75, 0.36, 0.34))
    lay(disc(hx * 1.2, hy + 0.30, mw, 0.004 + 0.085 * jaw), (0.3, 0.1, 0.1))
    red, green, blue = (c.clamp(0, 1) * 255 for c in r)
    luma = 16 + 0.2568 * red + 0.5041 * green + 0.0979 * blue
    cb = 128 - 0.1482 * red - 0.2910 * green + 0.4392 * blue
    cr = 128 + 0.4392 * red - 0.3678 * green - 0.0714 * blue

    def half(plane: Tensor) -> Tensor:
        return torch.nn.functional.avg_pool2d(plane[None, None], 2).flatten()

    flat = torch.cat([luma.flatten(), half(cb), half(cr)])
    return flat.round().to(torch.uint8).view(h * 3 // 2, w)
