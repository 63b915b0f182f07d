"""Painting features on patches of a head: linear forms over a few bases, clamped to coverages.

Every edge of a feature is written as a linear form over bases such as 1, t, v, t*t: the signed
distance inside the edge in pixels, plus one half. So all edges of a patch are one matrix product
and one clamp, and the many small operations that cost the time of a CPU are gone.
"""

from array import array
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import torch
from torch import Tensor

Ink: TypeAlias = tuple[float, float, float, float]
"""A colour as Y, U, V in 8-bit BT.601 limited range, and the 0 that it leaves of what was there."""

Row: TypeAlias = Sequence[float]


def ink(color: str, gain: float = 1.0) -> Ink:
    """The ink of an sRGB colour "#rrggbb"."""
    r, g, b = (min(255.0, int(color[i : i + 2], 16) * gain) for i in (1, 3, 5))
    return (
        16.0 + (65.481 * r + 128.553 * g + 24.966 * b) / 255.0,
        128.0 + (-37.797 * r - 74.203 * g + 112.0 * b) / 255.0,
        128.0 + (112.0 * r - 93.786 * g - 18.214 * b) / 255.0,
        0.0,
    )


def scaled(row: Row, by: float, add: float = 0.0) -> tuple[float, ...]:
    """`row * by + add`, where the first basis is 1. Written out: it runs for every edge drawn."""
    if len(row) == 9:
        a, b, c, d, e, f, g, h, i = row
        return a * by + add, b * by, c * by, d * by, e * by, f * by, g * by, h * by, i * by
    a, b, c, d, e, f, g, h = row
    return a * by + add, b * by, c * by, d * by, e * by, f * by, g * by, h * by


def floats(values: Iterable[float], shape: Sequence[int], device: torch.device) -> Tensor:
    """float32 of `shape` from numbers in order; much faster than `torch.tensor` of nested lists."""
    return torch.frombuffer(array("f", values), dtype=torch.float32).view(*shape).to(device)


class Patches:
    """n patches of one kind: their bases, their edges' coverages and their planes in work.

    `state` is [n, 4, h, w]: Y, then U and V of what was laid, then the share that shows of what was
    there before. Bases are [n, bases, h, w], the first is 1.
    """

    def __init__(
        self, n: int, width: int, height: int, bases: int, pairs: int, singles: int,
        device: torch.device,
    ) -> None:  # fmt: skip
        self.n, self.width, self.height, self.pairs = n, width, height, pairs
        self.bases = torch.ones(n, bases, height, width, device=device)
        self._edges = torch.empty(n, 2 * pairs + singles, height, width, device=device)
        self.state = torch.empty(n, 4, height, width, device=device)
        self._tall = torch.empty(n, 3, height // 2, width, device=device)
        self._half = torch.empty(n, 3, height // 2, width // 2, device=device)
        pool = torch.zeros(width, width // 2)
        pool[torch.arange(width), torch.arange(width) // 2] = 0.25
        self._pool = pool.to(device)
        self.scratch = torch.empty(3, n, height, width, device=device)

    def begin(self, luma: Sequence[Tensor]) -> None:
        """Start from what is there: uint8 [h, w] per patch."""
        self.state[:, 1:3] = 0.0
        self.state[:, 3] = 1.0
        for i, plane in enumerate(luma):
            self.state[i, 0].copy_(plane)

    def edges(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Coverages of `rows` [n, 2 * pairs + singles, bases], in 0..1.

        The first 2 * pairs rows are the two sides of strips: row k and row k + pairs. Returns
        strips [n, pairs, h, w] and singles [n, singles, h, w].
        """
        flat = self.bases.view(self.n, self.bases.shape[1], -1)
        edges = self._edges.view(self.n, self._edges.shape[1], -1)
        for i in range(self.n):
            torch.mm(rows[i], flat[i], out=edges[i])
        self._edges.clamp_(0.0, 1.0)
        strips, others = self._edges[:, : self.pairs], self._edges[:, self.pairs : 2 * self.pairs]
        torch.minimum(strips, others, out=strips)
        return strips, self._edges[:, 2 * self.pairs :]

    def mask(self, bare: Tensor) -> None:
        """Multiply every coverage by `bare` [n, h, w]: what lies before the features hides them."""
        self._edges.mul_(bare[:, None])

    def lay(self, alpha: Tensor, color: Tensor) -> None:
        """Lay `color` [n, 4, 1, 1] with the coverage `alpha` [n, h, w] over what is there."""
        torch.lerp(self.state, color, alpha[:, None], out=self.state)

    def shade(self, alpha: Tensor, by: Tensor) -> None:
        """Add `by` [n, 1, 1] to the luma where `alpha` covers."""
        luma = self.state[:, 0]
        torch.addcmul(luma, alpha, by, out=luma)

    def end(self, luma: Sequence[Tensor], chroma: Sequence[Tensor]) -> None:
        """Write back: luma uint8 [h, w], chroma uint8 [2, h/2, w/2] per patch."""
        rows = self.state[:, 1:].view(self.n, 3, self.height // 2, 2, self.width)
        torch.add(rows[:, :, :, 0], rows[:, :, :, 1], out=self._tall)
        # Two terms per output, one quarter each: exact, whatever the size of the batch.
        torch.matmul(self._tall, self._pool, out=self._half)
        done = self.state[:, 0].add_(0.5).clamp_(0.0, 235.9).to(torch.uint8)
        for i in range(self.n):
            luma[i].copy_(done[i])
            below = chroma[i].to(torch.float32)
            below = torch.addcmul(self._half[i, :2], below, self._half[i, 2:]).add_(0.5)
            chroma[i].copy_(below)
