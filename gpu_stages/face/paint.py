"""Painting on a patch of a frame's planes: luma at full, chroma at half resolution."""

from typing import TypeAlias

from torch import Tensor
from torch.nn.functional import avg_pool2d

Ink: TypeAlias = tuple[float, float, float]
"""A colour as Y, U, V in 8-bit BT.601 limited range."""


def ink(color: str, gain: float = 1.0) -> Ink:
    """The ink of an sRGB colour "#rrggbb"."""
    r, g, b = (min(255.0, int(color[i : i + 2], 16) * gain) for i in (1, 3, 5))
    return yuv(r, g, b)


def yuv(r: float, g: float, b: float) -> Ink:
    """BT.601 limited range of R, G, B in 0..255."""
    return (
        16.0 + (65.481 * r + 128.553 * g + 24.966 * b) / 255.0,
        128.0 + (-37.797 * r - 74.203 * g + 112.0 * b) / 255.0,
        128.0 + (112.0 * r - 93.786 * g - 18.214 * b) / 255.0,
    )


def cover(distance: Tensor, sharp: float) -> Tensor:
    """Coverage 0..1 of a pixel at this signed distance inside an edge; `sharp` is 1/its width.

    Changes nothing but its own result.
    """
    return (distance * sharp).add_(0.5).clamp_(0.0, 1.0)


class Patch:
    """Patches of n items: `luma` float32 [n, h, w], `chroma` float32 [n, 2, h/2, w/2].

    `sharp` is pixels per model unit. Layers are laid in order; their coverage is kept so that
    the chroma follows once, at half the resolution.
    """

    def __init__(self, luma: Tensor, chroma: Tensor, sharp: float, layers: int) -> None:
        self.luma, self.chroma, self.sharp = luma, chroma, sharp
        n, h, w = luma.shape
        self._cover = luma.new_empty(n, layers, h, w)
        self._tints: list[tuple[int, Tensor, Tensor]] = []

    def darken(self, by: Tensor) -> None:
        """Take the share `by` of the light away."""
        self.luma = self.luma - (self.luma - 16.0) * by

    def lay(self, layer: int, alpha: Tensor, luma: Tensor, u: Tensor, v: Tensor) -> None:
        """Lay a colour over what is there."""
        self.luma = self.luma + alpha * (luma - self.luma)
        self._cover[:, layer] = alpha
        self._tints.append((layer, u, v))

    def finish(self) -> None:
        """Bring the chroma up to date."""
        half = avg_pool2d(self._cover, 2)
        u, v = self.chroma[:, 0], self.chroma[:, 1]
        for layer, tint_u, tint_v in self._tints:
            alpha = half[:, layer]
            u = u + alpha * (tint_u - u)
            v = v + alpha * (tint_v - v)
        self.chroma[:, 0] = u
        self.chroma[:, 1] = v
