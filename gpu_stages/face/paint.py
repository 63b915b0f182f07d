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

LUMA_MAX = 235.9  # what is over it when cut off to whole numbers is brighter than white


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

    Planes lie one after another with the patches of one plane side by side, so that what works on
    one plane of all patches runs over one stretch of memory. `bases` are [bases, n, h, w], the
    first is 1. `state` is [4, n, h, w]: Y, then U and V of what was laid, then the share that shows
    of what was there before. Products of matrices are made patch by patch, always of one shape: so
    no patch depends on how many others there are.
    """

    def __init__(
        self, n: int, width: int, height: int, step: int, bases: int, pairs: int, singles: int,
        device: torch.device,
    ) -> None:  # fmt: skip
        self.n, self.width, self.height = n, width, height
        self._bases = torch.ones(bases, n, height, width, device=device)
        self.bases = self._bases.unbind(0)
        self._edges = torch.empty(2 * pairs + singles, n, height, width, device=device)
        self._first, self._second = self._edges[:pairs], self._edges[pairs : 2 * pairs]
        edges = self._edges.unbind(0)
        self.strips, self.singles = edges[:pairs], edges[2 * pairs :]
        self._items = [
            (self._bases[:, i].view(bases, -1), self._edges[:, i].view(len(edges), -1))
            for i in range(n)
        ]
        self.state = torch.empty(4, n, height, width, device=device)
        self._luma = self.state[0]
        self._pairs = self.state[1:].view(3, n, height // 2, 2, width)
        self._tall = torch.empty(3, n, height // 2, width, device=device)
        self._half = torch.empty(3, n, height // 2, width // 2, device=device)
        self._pool = torch.zeros(width, width // 2, device=device)
        column = torch.arange(width, device=device)
        self._pool[column, column // 2] = 0.25
        self.scratch = torch.empty(3, n, height, width, device=device).unbind(0)
        self._across = bilinear(width // step, width, device).t().contiguous()
        self._down = bilinear(height // step, height, device)

    def place(self, item: int, nodes: Tensor) -> None:
        """Fill bases 1 and 2 of a patch from `nodes` [2, height/step, width/step]."""
        wide = torch.matmul(nodes, self._across)
        torch.matmul(self._down, wide, out=self._bases[1:3, item])

    def begin(self, luma: Sequence[Tensor]) -> None:
        """Start from what is there: uint8 [h, w] per patch."""
        self.state[1:3] = 0.0
        self.state[3] = 1.0
        for into, plane in zip(self._luma.unbind(0), luma, strict=True):
            into.copy_(plane)

    def edges(self, rows: Tensor) -> None:
        """Coverages 0..1 of `rows` [n, 2 * pairs + singles, bases], into `strips` and `singles`.

        The first 2 * pairs rows are the two sides of strips: row k and row k + pairs.
        """
        for row, (bases, edges) in zip(rows.unbind(0), self._items, strict=True):
            torch.mm(row, bases, out=edges)
        self._edges.clamp_(0.0, 1.0)
        torch.minimum(self._first, self._second, out=self._first)

    def mask(self, bare: Tensor) -> None:
        """Multiply the strips by `bare` [n, h, w]: what lies before the features hides them."""
        self._first.mul_(bare)

    def lay(self, alpha: Tensor, color: Tensor) -> None:
        """Lay `color` [4, n, 1, 1] with the coverage `alpha` [n, h, w] over what is there."""
        torch.lerp(self.state, color, alpha, out=self.state)

    def shade(self, alpha: Tensor, by: Tensor) -> None:
        """Add `by` [n, 1, 1] to the luma where `alpha` covers."""
        self._luma.addcmul_(alpha, by)

    def end(self, luma: Sequence[Tensor], chroma: Sequence[Tensor]) -> None:
        """Write back: luma uint8 [h, w], chroma uint8 [2, h/2, w/2] per patch."""
        torch.add(self._pairs[:, :, :, 0], self._pairs[:, :, :, 1], out=self._tall)
        # Two terms per output, one quarter each: exact, whatever the size of the batch.
        torch.matmul(self._tall, self._pool, out=self._half)
        self._luma.add_(0.5).clamp_(0.0, LUMA_MAX)
        for i in range(self.n):
            luma[i].copy_(self._luma[i])
            below = chroma[i].to(torch.float32)
            laid = self._half[:, i]
            chroma[i].copy_(below.mul_(laid[2]).add_(laid[:2]).add_(0.5))


def bilinear(nodes: int, pixels: int, device: torch.device) -> Tensor:
    """Weights [pixels, nodes]: each node in the middle of its pixels, the ends carried on."""
    pixel = torch.arange(pixels, device=device)
    at = ((pixel + 0.5) * nodes / pixels - 0.5).clamp(0.0, nodes - 1.0)
    left = at.floor().long().clamp(0, max(nodes - 2, 0))
    got = torch.zeros(pixels, nodes, device=device)
    got[pixel, left] = 1.0 - (at - left)
    if nodes > 1:
        got[pixel, left + 1] = at - left
    return got
