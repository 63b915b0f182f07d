"""Where every pixel of a layer comes from: a few nodes are computed, the pixels between follow.

Flows are float32 [2, nodes_h + 2, nodes_w + 2]: x and y of the source, in texels, at nodes one step
apart with one ring of nodes beyond the rectangle. `Spread` fills in the pixels bilinearly and makes
indexes into a flat texture of them. Per item, so that no result depends on the rest of a batch.
"""

import math

import torch
from torch import Tensor


class Nodes:
    """A rectangle of `width` x `height` pixels with a node every `step` pixels, and a ring more."""

    def __init__(self, width: int, height: int, step: int, device: torch.device) -> None:
        self.width, self.height, self.step = width, height, step
        self.count_w, self.count_h = -(-width // step), -(-height // step)
        self.x_px = (torch.arange(-1, self.count_w + 1, device=device) + 0.5)[None] * step
        self.y_px = (torch.arange(-1, self.count_h + 1, device=device) + 0.5)[:, None] * step


class Spread:
    """Turns flows over `nodes` into texture indexes of its pixels, or of blocks of `by` x `by`.

    With `by` 2 the texture is the one of half the density, for chroma. Keeps its scratch: what
    `index` returns is valid until the next call.
    """

    def __init__(self, nodes: Nodes, by: int, device: torch.device) -> None:
        self.width, self.height = nodes.width // by, nodes.height // by
        column = torch.arange(self.width, device=device)
        at = (column + 0.5) * by / nodes.step + 0.5
        left = at.floor().long()
        across = torch.zeros(nodes.count_w + 2, self.width, device=device)
        across[left, column] = 1.0 - (at - left)
        across[left + 1, column] = at - left
        self._across = across / by
        n, rows = nodes.count_h, nodes.step // by
        self._mid = torch.empty(2, n + 2, self.width, device=device)
        flow = torch.empty(2, n, rows, self.width, device=device)
        self._flow = flow.view(2, -1)
        self._lerps: list[tuple[Tensor, Tensor, float, Tensor]] = []
        for k in range(rows):
            place = (k + 0.5) * by / nodes.step + 0.5
            at = math.floor(place)
            above, below = self._mid[:, at : at + n], self._mid[:, at + 1 : at + 1 + n]
            self._lerps.append((above, below, place - at, flow[:, :, k]))
        self._at = torch.empty(2, n * rows * self.width, dtype=torch.int32, device=device)
        self._at_x, self._at_y = self._at.unbind(0)
        self._index = torch.empty(n * rows * self.width, dtype=torch.int32, device=device)
        self._part = self._index[: self.height * self.width]

    def index(self, flow: Tensor, stride: int) -> Tensor:
        """int32 [height * width]: the index of each pixel's texel in a texture `stride` wide."""
        torch.matmul(flow, self._across, out=self._mid)
        for above, below, share, out in self._lerps:
            torch.lerp(above, below, share, out=out)
        self._at.copy_(self._flow)
        torch.add(self._at_x, self._at_y, alpha=stride, out=self._index)
        return self._part
