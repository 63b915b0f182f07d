"""The head's layer of one frame size: warped by pose and expression, with its features drawn."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor
from torch.nn.functional import grid_sample

from gpu_stages.face import eyes, mouth
from gpu_stages.face.bake import HEAD_CANVAS, Baked
from gpu_stages.face.expression import depth_grid, fields
from gpu_stages.face.look_cache import baked_look
from gpu_stages.face.looks import Look
from gpu_stages.face.paint import Ink, Patches, Row, floats
from gpu_stages.face.pose import Pose, expression_of, pose_of
from gpu_stages.face.textures import ALPHA_ONE, BARE_ONE, Frame, Sheet
from gpu_stages.face.warp import Nodes, Spread

_C = HEAD_CANVAS
_GAIN_X, _GAIN_Y = 2.0 * _C.density / _C.width_px, -2.0 * _C.density / _C.height_px
_OFF_X, _OFF_Y = -1.0 - _C.left * _GAIN_X, -1.0 - _C.top * _GAIN_Y
_DEPTH_GUESS = 0.2  # where the search for the depth under a pixel begins
_MIDDLE_Y = _C.top - _C.height_px / _C.density / 2.0


class Person:
    """What every size of a look shares."""

    def __init__(self, look: Look, device: torch.device) -> None:
        self.look = look
        self.baked: Baked = baked_look(look, device)
        self.depth = depth_grid(self.baked.depth, self.baked.head[3])
        self.fields = fields(look, device)
        self.eyes = eyes.eye_look(look)
        self.mouth = mouth.mouth_look(look)


@dataclass(frozen=True, slots=True)
class Item:
    """One live in a batch: its cleaned vector, its pose, its look's parts."""

    vector: list[float]
    pose: Pose
    person: Person
    sheet: Sheet

    @staticmethod
    def of(vector: list[float], person: Person, sheet: Sheet) -> "Item":
        """Find the pose."""
        return Item(vector, pose_of(vector), person, sheet)


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of patch: its size in pixels and its counts for `Patches`."""

    width: int
    height: int
    bases: int
    pairs: int
    singles: int


def _ceil_to(value: float, unit: int) -> int:
    return math.ceil(value / unit) * unit


class Foreground:
    """Keeps the scratch of its size, so it is not for two threads."""

    def __init__(self, frame: Frame, device: torch.device) -> None:
        self._frame, self._device = frame, device
        s, step = frame.scale, frame.step
        self.width = min(_ceil_to(1.20 * s, 16), frame.width_px // step * step)
        self.height = min(_ceil_to(1.46 * s, 2 * step), frame.height_px // step * step)
        self._nodes = Nodes(self.width, self.height, step, device)
        self._full, self._half = Spread(self._nodes, 1, device), Spread(self._nodes, 2, device)
        self._node_x = self._nodes.x_px[None, :, :, None]
        self._node_y = self._nodes.y_px[None, :, :, None]
        k = s * frame.texels
        size_x, size_y = _C.width_px / _C.density * k, _C.height_px / _C.density * k
        self._to_model = self._pairs(1 / _GAIN_X, 1 / _GAIN_Y, -_OFF_X / _GAIN_X, -_OFF_Y / _GAIN_Y)
        self._to_texel = self._pairs(size_x / 2, size_y / 2, size_x / 2, size_y / 2)
        self._move_texel, self._least = self._pairs(-k, k, 0.0, 0.0)
        self._most, _ = self._pairs(size_x - 2.0, size_y - 2.0, 0.0, 0.0)
        self._eye = self._kind(0.32, 0.30, eyes.BASES, eyes.PAIRS, eyes.SINGLES)
        self._mouth = self._kind(0.48, 0.40, mouth.BASES, mouth.PAIRS, mouth.SINGLES)
        self._patches: dict[tuple[bool, int], Patches] = {}
        shape = (self.height, self.width)
        self._wide = [torch.empty(shape, dtype=torch.int16, device=device) for _ in range(2)]
        shape = (2, self.height // 2, self.width // 2)
        self._wide_half = [torch.empty(shape, dtype=torch.int16, device=device) for _ in range(2)]

    def _pairs(self, ax: float, ay: float, bx: float, by: float) -> tuple[Tensor, Tensor]:
        """Two tensors [2, 1, 1]: of (ax, ay) and of (bx, by)."""
        a, b = floats((ax, ay, bx, by), (2, 2, 1, 1), self._device).unbind(0)
        return a, b

    def _kind(self, width: float, height: float, bases: int, pairs: int, singles: int) -> _Kind:
        unit, scale = 2 * self._frame.step, self._frame.scale
        return _Kind(
            min(_ceil_to(width * scale, unit), self.width // unit * unit),
            min(_ceil_to(height * scale, unit), self.height // unit * unit),
            bases, pairs, singles,
        )  # fmt: skip

    def draw(self, items: Sequence[Item], out: Tensor) -> None:
        """Lay the heads over `out`, uint8 [n, height * width * 3/2]."""
        n, bw, bh = len(items), self.width, self.height
        device, half = self._device, (bh // 2, bw // 2)
        luma = torch.empty(n, bh, bw, dtype=torch.uint8, device=device)
        clear = torch.empty(n, bh, bw, dtype=torch.uint8, device=device)
        chroma = torch.empty(n, 2, *half, dtype=torch.uint8, device=device)
        clear_half = torch.empty(n, *half, dtype=torch.uint8, device=device)
        places = [self._place(item.pose) for item in items]
        skull, skin = self._flows(items, places)
        spots = self._spots(items, places)
        eye = self._eye
        bare = torch.empty(2 * n, eye.height, eye.width, device=device)
        for i, item in enumerate(items):
            sheet = item.sheet
            index = self._full.index(skin[i], sheet.canvas.width_px)
            torch.index_select(sheet.luma, 0, index, out=luma[i].view(-1))
            torch.index_select(sheet.clear, 0, index, out=clear[i].view(-1))
            whole = index.view(bh, bw)
            for k in (2 * i, 2 * i + 1):
                x, y = spots[k]
                part = whole[y : y + eye.height, x : x + eye.width].reshape(-1)
                bare[k].view(-1).copy_(torch.index_select(sheet.bare, 0, part))
            index = self._half.index(skin[i], sheet.half.width_px)
            torch.index_select(sheet.u, 0, index, out=chroma[i, 0].view(-1))
            torch.index_select(sheet.v, 0, index, out=chroma[i, 1].view(-1))
            torch.index_select(sheet.clear_half, 0, index, out=clear_half[i].view(-1))
        bare.mul_(1.0 / BARE_ONE)
        self._draw_eyes(items, skull, spots[: 2 * n], luma, chroma, bare)
        self._draw_mouths(items, skull, spots[2 * n :], luma, chroma)
        w, h = self._frame.width_px, self._frame.height_px
        for i, (ox, oy) in enumerate(places):
            below = out[i, : w * h].view(h, w)[oy : oy + bh, ox : ox + bw]
            _over(below, luma[i], clear[i], self._wide)
            below = out[i, w * h :].view(2, h // 2, w // 2)
            below = below[:, oy // 2 : (oy + bh) // 2, ox // 2 : (ox + bw) // 2]
            _over(below, chroma[i], clear_half[i], self._wide_half)

    def _place(self, pose: Pose) -> tuple[int, int]:
        """The layer's left and top pixel for this pose: even, inside the frame."""
        f = self._frame
        x, y = pose.project(0.0, _MIDDLE_Y, 0.1)
        ox = round((f.x0_px + x * f.scale - self.width / 2) / 2) * 2
        oy = round((f.y0_px - y * f.scale - self.height / 2) / 2) * 2
        return (
            min(max(ox, 0), (f.width_px - self.width) // 2 * 2),
            min(max(oy, 0), (f.height_px - self.height) // 2 * 2),
        )

    def _spots(
        self, items: Sequence[Item], places: Sequence[tuple[int, int]]
    ) -> list[tuple[int, int]]:
        """Left and top, in the layer, of the patches: two eyes per item, then the mouths."""
        spots: list[tuple[int, int]] = []
        for item, place in zip(items, places, strict=True):
            for right in (False, True):
                at = eyes.eye_place(item.person.look, right)
                spots.append(self._spot(item.pose, at, place, self._eye))
        for item, place in zip(items, places, strict=True):
            at = mouth.mouth_place(item.person.look)
            spots.append(self._spot(item.pose, at, place, self._mouth))
        return spots

    def _spot(
        self, pose: Pose, at: tuple[float, float, float], place: tuple[int, int], kind: _Kind
    ) -> tuple[int, int]:
        f = self._frame
        x, y = pose.project(*at)
        px = f.x0_px + x * f.scale - place[0] - kind.width / 2
        py = f.y0_px - y * f.scale - place[1] - kind.height / 2
        return (
            min(max(round(px / f.step) * f.step, 0), self.width - kind.width),
            min(max(round(py / f.step) * f.step, 0), self.height - kind.height),
        )

    def _flows(
        self, items: Sequence[Item], places: Sequence[tuple[int, int]]
    ) -> tuple[Tensor, Tensor]:
        """At the nodes: model coordinates on the rigid skull, and the skin's texels.

        Both [n, 2, nodes_h + 2, nodes_w + 2].
        """
        # All positions are `grid_sample`'s: -1..1 over the head's canvas, x and y last.
        f, nodes, device, n = self._frame, self._nodes, self._device, len(items)
        rows: list[tuple[float, ...]] = []
        for item, (ox, oy) in zip(items, places, strict=True):
            ax, bx, cx, zx, ay, by, cy, zy = item.pose.inverse()
            x0, y0, px = (ox - f.x0_px) / f.scale, (f.y0_px - oy) / f.scale, 1.0 / f.scale
            at_x, at_y = ax * x0 + bx * y0 + cx, ay * x0 + by * y0 + cy
            rows.append((ax * px * _GAIN_X, ay * px * _GAIN_Y))
            rows.append((-bx * px * _GAIN_X, -by * px * _GAIN_Y))
            rows.append((at_x * _GAIN_X + _OFF_X, at_y * _GAIN_Y + _OFF_Y))
            rows.append((zx * _GAIN_X, zy * _GAIN_Y))
        s = floats(chain.from_iterable(rows), (n, 4, 1, 1, 2), device)
        per_x, per_y, start, per_z = s.unbind(1)
        flat = torch.addcmul(start, self._node_y, per_y)
        flat = torch.addcmul(flat, self._node_x, per_x)
        depth = torch.stack([item.person.depth for item in items])[:, None]
        grid = torch.add(flat, per_z, alpha=_DEPTH_GUESS)
        for _ in range(2):
            z = grid_sample(depth, grid, padding_mode="border", align_corners=False)
            grid = torch.addcmul(flat, per_z, z.view(n, *grid.shape[1:3], 1))
        moves = torch.stack([_expression(item, device) for item in items])
        move = grid_sample(moves, grid, padding_mode="border", align_corners=False)
        shape = (n, 2, nodes.count_h + 2, nodes.count_w + 2)
        planes = grid.permute(0, 3, 1, 2)
        skull = torch.addcmul(self._to_model[1], planes, self._to_model[0])
        skin = torch.empty(shape, device=device)
        torch.addcmul(self._to_texel[1], planes, self._to_texel[0], out=skin)
        skin.addcmul_(move, self._move_texel)
        return skull, torch.clamp(skin, self._least, self._most, out=skin)

    def _kind_patches(self, is_mouth: bool, n: int) -> Patches:
        key = (is_mouth, n)
        if key not in self._patches:
            k = self._mouth if is_mouth else self._eye
            self._patches[key] = Patches(
                n, k.width, k.height, self._frame.step, k.bases, k.pairs, k.singles, self._device
            )
        return self._patches[key]

    def _fill(
        self, patches: Patches, skull: Tensor, spots: Sequence[tuple[int, int]],
        per_item: int, scales: list[list[float]],
    ) -> None:  # fmt: skip
        """Bases 1 and 2 from the skull's coordinates: `scales` holds gain and offset of both."""
        step = self._frame.step
        w, h = patches.width // step, patches.height // step
        s = floats(chain.from_iterable(scales), (-1, 2, 2, 1, 1), self._device)
        for k, ((x, y), (gain, offset)) in enumerate(zip(spots, s.unbind(0), strict=True)):
            left, top = x // step + 1, y // step + 1
            nodes = skull[k // per_item, :, top : top + h, left : left + w]
            patches.place(k, torch.addcmul(offset, nodes, gain))

    def _draw_eyes(
        self, items: Sequence[Item], skull: Tensor, spots: Sequence[tuple[int, int]],
        luma: Tensor, chroma: Tensor, bare: Tensor,
    ) -> None:  # fmt: skip
        n, sharp = 2 * len(items), self._frame.scale
        patches = self._kind_patches(False, n)
        rows: list[Sequence[Row]] = []
        tones: list[list[float]] = []
        scales: list[list[float]] = []
        for item in items:
            look, f = item.person.look, item.person.look.features
            for right in (False, True):
                form, tone = eyes.eye_forms(item.vector, look, item.person.eyes, right, sharp)
                rows.append(form)
                tones.append(tone)
                side = -1.0 if right else 1.0
                scales.append([side / f.eye_half_width, 1.0, -f.eye_x / f.eye_half_width, -f.eye_y])
        self._fill(patches, skull, spots, 2, scales)
        lumas, chromas = self._cut(luma, chroma, spots, self._eye, 2)
        patches.begin(lumas)
        colors = [item.person.eyes.colors for item in items for _ in range(2)]
        eyes.draw_eyes(patches, *self._numbers(patches, rows, tones, colors), bare)
        patches.end(lumas, chromas)

    def _draw_mouths(
        self, items: Sequence[Item], skull: Tensor, spots: Sequence[tuple[int, int]],
        luma: Tensor, chroma: Tensor,
    ) -> None:  # fmt: skip
        patches = self._kind_patches(True, len(items))
        rows: list[Sequence[Row]] = []
        tones: list[list[float]] = []
        scales: list[list[float]] = []
        for item in items:
            look = item.person.look
            lips = mouth.lips_of(item.vector, look)
            form, tone = mouth.mouth_forms(lips, look, item.person.mouth, self._frame.scale)
            rows.append(form)
            tones.append(tone)
            scales.append([1.0 / lips.half, 1.0, 0.0, -lips.middle])
        self._fill(patches, skull, spots, 1, scales)
        lumas, chromas = self._cut(luma, chroma, spots, self._mouth, 1)
        patches.begin(lumas)
        colors = [item.person.mouth.colors for item in items]
        mouth.draw_mouth(patches, *self._numbers(patches, rows, tones, colors))
        patches.end(lumas, chromas)

    def _numbers(
        self, patches: Patches, rows: list[Sequence[Row]], tones: list[list[float]],
        colors: list[tuple[Ink, ...]],
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        """Rows [n, edges, bases], tones [tones, n, 1, 1], colours [colours, 4, n, 1, 1]."""
        device, n = self._device, patches.n
        edges = chain.from_iterable(chain.from_iterable(rows))
        shades = (tone[k] for k in range(len(tones[0])) for tone in tones)
        kinds, planes = range(len(colors[0])), range(4)
        inks = (color[k][plane] for k in kinds for plane in planes for color in colors)
        return (
            floats(edges, (n, -1, len(patches.bases)), device),
            floats(shades, (-1, n, 1, 1), device),
            floats(inks, (-1, 4, n, 1, 1), device),
        )

    def _cut(
        self, luma: Tensor, chroma: Tensor, spots: Sequence[tuple[int, int]], kind: _Kind,
        per_item: int,
    ) -> tuple[list[Tensor], list[Tensor]]:  # fmt: skip
        w, h = kind.width, kind.height
        lumas = [luma[k // per_item, y : y + h, x : x + w] for k, (x, y) in enumerate(spots)]
        chromas = [
            chroma[k // per_item, :, y // 2 : (y + h) // 2, x // 2 : (x + w) // 2]
            for k, (x, y) in enumerate(spots)
        ]
        return lumas, chromas


def _expression(item: Item, device: torch.device) -> Tensor:
    """The skin's displacement [2, GRID_H, GRID_W] of one item."""
    basis = item.person.fields
    strengths = floats(expression_of(item.vector), (1, -1), device)
    return torch.mm(strengths, basis.view(basis.shape[0], -1)).view(basis.shape[1:])


def _over(below: Tensor, above: Tensor, clear: Tensor, scratch: Sequence[Tensor]) -> None:
    """Lay premultiplied `above` over `below`, in place; uint8, `clear` 0..ALPHA_ONE."""
    mixed, share = scratch
    mixed.copy_(below)
    share.copy_(clear)
    mixed.mul_(share).add_(ALPHA_ONE // 2).bitwise_right_shift_(7)
    below.copy_(mixed.add_(above))
