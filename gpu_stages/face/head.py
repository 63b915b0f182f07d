"""The head that everybody sees: face parameters in, I420 frames out, batched over lives."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import grid_sample, interpolate

from gpu_stages.face.bake import HEAD_CANVAS, Baked, bake
from gpu_stages.face.expression import depth_grid, fields
from gpu_stages.face.eyes import LAYERS as EYE_LAYERS
from gpu_stages.face.eyes import draw_eyes, eye_inks, eye_scalars
from gpu_stages.face.looks import LOOKS
from gpu_stages.face.mouth import LAYERS as MOUTH_LAYERS
from gpu_stages.face.mouth import draw_mouth, mouth_inks, mouth_scalars
from gpu_stages.face.paint import Patch
from gpu_stages.face.parameters import FACE_PARAMETERS
from gpu_stages.face.pose import Pose, clean, expression_of, pose_of
from gpu_stages.face.textures import (
    ALPHA_ONE,
    Frame,
    Sheet,
    back_sheet,
    frame_of,
    head_sheet,
)

SIZE_MIN_PX = 64
SIZE_MAX_PX = 1024
_TOP = 0.40  # the back layer is still above this height


class BadSize(ValueError):
    """A frame size that the renderer does not draw."""


def check_size(width_px: int, height_px: int) -> None:
    """Raises `BadSize` unless both are even and within 64..1024."""
    for name, value in (("width_px", width_px), ("height_px", height_px)):
        if value % 2 or not SIZE_MIN_PX <= value <= SIZE_MAX_PX:
            raise BadSize(f"{name}={value}: must be even, {SIZE_MIN_PX}..{SIZE_MAX_PX}")


def _ceil_to(value: float, unit: int) -> int:
    return math.ceil(value / unit) * unit


@dataclass(frozen=True, slots=True)
class _Person:
    """What every size of a look shares."""

    baked: Baked
    depth: Tensor
    fields: Tensor


class _Box:
    """A region of fixed size that moves with the head, and the warp's nodes in it."""

    def __init__(self, frame: Frame, width: float, height: float, device: torch.device) -> None:
        step = frame.step
        self.width = min(_ceil_to(width * frame.scale, 16), frame.width_px // step * step)
        self.height = min(_ceil_to(height * frame.scale, 2 * step), frame.height_px // step * step)
        self.nodes_w, self.nodes_h = -(-self.width // step), -(-self.height // step)
        middle = step / 2.0
        self.u = ((torch.arange(self.nodes_w, device=device) * step + middle) / frame.scale)[None]
        self.v = ((torch.arange(self.nodes_h, device=device) * step + middle) / frame.scale)[
            :, None
        ]


class _Size:
    """Everything that one frame size keeps: textures of the looks, grids, scratch."""

    def __init__(self, frame: Frame, device: torch.device) -> None:
        self.frame = frame
        self.device = device
        self.heads: dict[int, Sheet] = {}
        self.stills: dict[int, tuple[Tensor, Tensor, Tensor]] = {}
        self.backs: dict[int, Sheet] = {}
        self.box = _Box(frame, 1.20, 1.46, device)
        s, step = frame.scale, frame.step
        self.eye_w, self.eye_h = _ceil_to(0.36 * s, 2 * step), _ceil_to(0.33 * s, 2 * step)
        self.mouth_w, self.mouth_h = _ceil_to(0.48 * s, 2 * step), _ceil_to(0.42 * s, 2 * step)
        top = max(0, int(frame.y0_px - _TOP * s)) // 4 * 4
        self.top = top
        self.back_full = _BackGrid(frame, 1, top, device)
        self.back_half = _BackGrid(frame, 2, top, device)


class _BackGrid:
    """Texel coordinates of the back layer at rest, and how they follow head and breath."""

    def __init__(self, frame: Frame, by: int, top: int, device: torch.device) -> None:
        from gpu_stages.face.textures import MARGIN

        w, h = frame.width_px // by, frame.height_px // by
        x_px = (torch.arange(w, device=device) + 0.5) * by
        y_px = (torch.arange(top // by, h, device=device) + 0.5) * by
        x = ((x_px - frame.x0_px) / frame.scale)[None].expand(len(y_px), w)
        y = ((frame.y0_px - y_px) / frame.scale)[:, None].expand(len(y_px), w)
        density = frame.scale * frame.texels / by
        self.tx = ((x + frame.x0_px / frame.scale + MARGIN) * density).contiguous()
        self.ty = ((frame.y0_px / frame.scale + MARGIN - y) * density).contiguous()

        def ramp(t: Tensor) -> Tensor:
            t = t.clamp(0.0, 1.0)
            return t * t * (3.0 - 2.0 * t)

        follow = ramp((y + 0.78) / 0.38) * ramp((0.85 - x.abs()) / 0.30)
        fade = ramp((_TOP - y) / 0.30)
        self.follow = (follow * fade * density).contiguous()
        self.lean = (fade * density * ramp((1.0 - x.abs()) / 0.35)).contiguous()
        self.follow_x = (self.follow * (x - 0.0)).contiguous()
        self.follow_y = (self.follow * (y + 0.6)).contiguous()
        self.breath = (ramp((-0.42 - y) / 0.36) * density).contiguous()
        self.limit_x = float(density * (frame.width_px / frame.scale + 2 * MARGIN)) // 1 - 1
        self.limit_y = float(density * (frame.height_px / frame.scale + 2 * MARGIN)) // 1 - 1

    def index(self, pose: Pose, stride: int) -> Tensor:
        """int32 texel indexes [rows * w] for this pose."""
        lean_x, lean_y = pose.shift_x * 0.30, pose.shift_y * 0.20
        dx = pose.shift_x * 0.70 + 0.06 * pose.yaw + 0.10 * pose.roll
        dy = pose.shift_y * 0.80 - 0.05 * abs(pose.pitch) * 0.5
        x = torch.add(self.tx, self.follow, alpha=-dx)
        x.add_(self.lean, alpha=-lean_x).add_(self.follow_y, alpha=-pose.roll * 0.7)
        y = torch.add(self.ty, self.follow, alpha=dy)
        y.add_(self.lean, alpha=lean_y).add_(self.follow_x, alpha=-pose.roll * 0.7)
        y.add_(self.breath, alpha=0.016 * pose.breath)
        x.clamp_(0.0, self.limit_x)
        y.clamp_(0.0, self.limit_y)
        return x.to(torch.int32).add_(y.to(torch.int32), alpha=stride).flatten()


def _still(sheet: Sheet, size: _Size) -> tuple[Tensor, Tensor, Tensor]:
    """The rows above `top`, which never move."""
    frame = size.frame
    rest = pose_of([0.0] * FACE_PARAMETERS)
    full = _BackGrid(frame, 1, 0, size.device).index(rest, sheet.canvas.width_px)
    half = _BackGrid(frame, 2, 0, size.device).index(rest, sheet.half.width_px)
    full = full[: size.top * frame.width_px]
    half = half[: size.top * frame.width_px // 4]
    return (
        sheet.luma.index_select(0, full),
        sheet.u.index_select(0, half),
        sheet.v.index_select(0, half),
    )


class HeadRenderer:
    """Draws heads on one device. Not thread-safe."""

    def __init__(self, device: str = "cpu") -> None:
        self._device = torch.device(device)
        self._people: dict[int, _Person] = {}
        self._sizes: dict[tuple[int, int], _Size] = {}
        self._inks = [(eye_inks(look), mouth_inks(look)) for look in LOOKS]

    def warm_up(self, width_px: int, height_px: int) -> None:
        """Prepare every look for this size, so that the first frame is not late."""
        check_size(width_px, height_px)
        with torch.inference_mode():
            for look in range(len(LOOKS)):
                self._prepare(look, width_px, height_px)

    def _prepare(self, look: int, width_px: int, height_px: int) -> _Size:
        size = self._sizes.get((width_px, height_px))
        if size is None:
            size = _Size(frame_of(width_px, height_px), self._device)
            self._sizes[width_px, height_px] = size
        if look not in size.heads:
            person = self._people.get(look)
            if person is None:
                baked = bake(LOOKS[look], self._device)
                depth = depth_grid(baked.depth, baked.head[3])
                person = _Person(baked, depth, fields(LOOKS[look], self._device))
                self._people[look] = person
            size.heads[look] = head_sheet(person.baked, size.frame)
            size.backs[look] = back_sheet(person.baked, LOOKS[look], size.frame)
        return size

    def render(
        self, parameters: Tensor, looks: Sequence[int], width_px: int, height_px: int
    ) -> Tensor:
        """Frames uint8 [B, height*3/2, width]: I420, BT.601 limited range.

        `parameters` is float32 [B, FACE_PARAMETERS], `looks` B indexes of LOOKS.
        """
        check_size(width_px, height_px)
        with torch.inference_mode():
            for look in set(looks):
                size = self._prepare(look, width_px, height_px)
            vectors = [clean(row) for row in parameters.tolist()]
            return self._draw(vectors, looks, size)

    def _draw(self, vectors: list[list[float]], looks: Sequence[int], size: _Size) -> Tensor:
        frame, box, n = size.frame, size.box, len(vectors)
        w, h = frame.width_px, frame.height_px
        poses = [pose_of(v) for v in vectors]
        places = [_place(pose, frame, box) for pose in poses]
        skull, skin = self._warp(vectors, poses, places, looks, size)
        out = torch.empty(n, h * w * 3 // 2, dtype=torch.uint8, device=self._device)
        lumas: list[Tensor] = []
        alphas: list[Tensor] = []
        chromas: list[Tensor] = []
        bares: list[Tensor] = []
        bw, bh = box.width, box.height
        full = interpolate(skin, (bh, bw), mode="bilinear", align_corners=False)
        rough = interpolate(skin, (bh // 2, bw // 2), mode="bilinear", align_corners=False)
        halves: list[Tensor] = []
        for i in range(n):
            sheet = size.heads[looks[i]]
            k = frame.scale * frame.texels
            at = full[i].mul_(k).to(torch.int32)
            idx = torch.add(at[0], at[1], alpha=sheet.canvas.width_px).flatten()
            lumas.append(sheet.luma.index_select(0, idx).view(bh, bw))
            alphas.append(sheet.alpha.index_select(0, idx).view(bh, bw))
            bares.append(sheet.bare.index_select(0, idx).view(bh, bw))
            at = rough[i].mul_(k / 2).to(torch.int32)
            idx = torch.add(at[0], at[1], alpha=sheet.half.width_px).flatten()
            chromas.append(
                torch.stack([sheet.u.index_select(0, idx), sheet.v.index_select(0, idx)]).view(
                    2, bh // 2, bw // 2
                )
            )
            halves.append(sheet.alpha_half.index_select(0, idx).view(bh // 2, bw // 2))
        self._features(vectors, poses, places, looks, size, skull, lumas, chromas, bares)
        for i in range(n):
            self._back(out[i], poses[i], size.backs[looks[i]], size)
            ox, oy = places[i]
            y_plane = out[i, : w * h].view(h, w)[oy : oy + bh, ox : ox + bw]
            _over(y_plane, lumas[i], alphas[i])
            uv = out[i, w * h :].view(2, h // 2, w // 2)
            uv = uv[:, oy // 2 : (oy + bh) // 2, ox // 2 : (ox + bw) // 2]
            _over(uv, chromas[i], halves[i])
        return out.view(n, h * 3 // 2, w)

    def _warp(
        self,
        vectors: list[list[float]],
        poses: list[Pose],
        places: list[tuple[int, int]],
        looks: Sequence[int],
        size: _Size,
    ) -> tuple[Tensor, Tensor]:
        """Model coordinates of the box's nodes: of the rigid skull, and of the skin's texture.

        Both [n, 2, nodes_h, nodes_w]; the second in units from the head canvas's left and top.
        """
        frame, box = size.frame, size.box
        rows: list[list[float]] = []
        for pose, (ox, oy) in zip(poses, places, strict=True):
            ax, bx, cx, zx, ay, by, cy, zy = pose.inverse()
            x0 = (ox - frame.x0_px) / frame.scale
            y0 = (frame.y0_px - oy) / frame.scale
            rows.append([ax, -bx, ax * x0 + bx * y0 + cx, zx, ay, -by, ay * x0 + by * y0 + cy, zy])
        s = torch.tensor(rows, device=self._device).t()[:, :, None, None]
        ax, bx, cx, zx, ay, by, cy, zy = s.unbind(0)
        flat_x = box.u * ax + (box.v * bx + cx)
        flat_y = box.u * ay + (box.v * by + cy)
        c = HEAD_CANVAS
        gain_x, gain_y = 2.0 * c.density / c.width_px, -2.0 * c.density / c.height_px
        off_x, off_y = -1.0 - c.left * gain_x, -1.0 - c.top * gain_y
        depth = torch.stack([self._people[look].depth for look in looks])[:, None]
        mx, my = flat_x + zx * 0.2, flat_y + zy * 0.2
        for _ in range(3):
            grid = torch.stack([mx * gain_x + off_x, my * gain_y + off_y], -1)
            z = grid_sample(depth, grid, padding_mode="border", align_corners=False)[:, 0]
            mx, my = flat_x + zx * z, flat_y + zy * z
        grid = torch.stack([mx * gain_x + off_x, my * gain_y + off_y], -1)
        moved: list[Tensor] = []
        for vector, look in zip(vectors, looks, strict=True):
            strengths = torch.tensor([expression_of(vector)], device=self._device)
            basis = self._people[look].fields
            moved.append(
                torch.matmul(strengths, basis.view(basis.shape[0], -1)).view(basis[0].shape)
            )
        move = grid_sample(torch.stack(moved), grid, padding_mode="border", align_corners=False)
        k = 1.5 / (frame.scale * frame.texels)
        tx = (mx - move[:, 0] - c.left).clamp_(k, c.width_px / c.density - k)
        ty = (c.top - my + move[:, 1]).clamp_(k, c.height_px / c.density - k)
        return torch.stack([mx, my], 1), torch.stack([tx, ty], 1)

    def _features(
        self,
        vectors: list[list[float]],
        poses: list[Pose],
        places: list[tuple[int, int]],
        looks: Sequence[int],
        size: _Size,
        skull: Tensor,
        lumas: list[Tensor],
        chromas: list[Tensor],
        bares: list[Tensor],
    ) -> None:
        frame, box, step = size.frame, size.box, size.frame.step
        todo: list[tuple[int, int, int, list[float]]] = []
        mouths: list[tuple[int, int, int, list[float]]] = []
        for i, (v, pose, look) in enumerate(zip(vectors, poses, looks, strict=True)):
            f = LOOKS[look].features
            eye, mouth = self._inks[look]
            middle = (f.eye_y + f.brow_y) / 2 + 0.01
            for right in (False, True):
                x = -f.eye_x if right else f.eye_x
                at = _patch_at(
                    pose, (x, middle, 0.34), places[i], frame, box, size.eye_w, size.eye_h
                )
                todo.append((i, *at, eye_scalars(v, LOOKS[look], right, eye)))
            at = _patch_at(
                pose,
                (0.0, f.mouth_y - 0.03, 0.38),
                places[i],
                frame,
                box,
                size.mouth_w,
                size.mouth_h,
            )
            mouths.append((i, *at, mouth_scalars(v, LOOKS[look], mouth)))
        for items, w, h, draw, layers in (
            (todo, size.eye_w, size.eye_h, draw_eyes, EYE_LAYERS),
            (mouths, size.mouth_w, size.mouth_h, draw_mouth, MOUTH_LAYERS),
        ):
            nodes = torch.stack(
                [
                    skull[i, :, y // step : (y + h) // step, x // step : (x + w) // step]
                    for i, x, y, _ in items
                ]
            )
            where = interpolate(nodes, (h, w), mode="bilinear", align_corners=False)
            scalars = torch.tensor([row for *_, row in items], device=self._device)
            luma = torch.stack([lumas[i][y : y + h, x : x + w] for i, x, y, _ in items]).float()
            chroma = torch.stack(
                [
                    chromas[i][:, y // 2 : (y + h) // 2, x // 2 : (x + w) // 2]
                    for i, x, y, _ in items
                ]
            ).float()
            patch = Patch(luma, chroma, frame.scale, layers)
            draw(where[:, 0], where[:, 1], scalars.t()[:, :, None, None], patch)
            patch.finish()
            done = patch.luma.add_(0.5).to(torch.uint8)
            done_c = patch.chroma.add_(0.5).to(torch.uint8)
            for n, (i, x, y, _) in enumerate(items):
                lumas[i][y : y + h, x : x + w] = done[n]
                chromas[i][:, y // 2 : (y + h) // 2, x // 2 : (x + w) // 2] = done_c[n]

    def _back(self, out: Tensor, pose: Pose, sheet: Sheet, size: _Size) -> None:
        w, h, top = size.frame.width_px, size.frame.height_px, size.top
        idx = size.back_full.index(pose, sheet.canvas.width_px)
        out[top * w : h * w] = sheet.luma.index_select(0, idx)
        idx = size.back_half.index(pose, sheet.half.width_px)
        chroma = out[w * h :].view(2, (h // 2) * (w // 2))
        still = (top // 2) * (w // 2)
        chroma[0, still:] = sheet.u.index_select(0, idx)
        chroma[1, still:] = sheet.v.index_select(0, idx)
        key = id(sheet)
        if key not in size.stills:
            size.stills[key] = _still(sheet, size)
        luma, u, v = size.stills[key]
        out[: top * w] = luma
        chroma[0, :still] = u
        chroma[1, :still] = v


def _place(pose: Pose, frame: Frame, box: _Box) -> tuple[int, int]:
    """The box's left and top pixel for this pose: even, inside the frame."""
    x, y = pose.project(0.0, HEAD_CANVAS.top - HEAD_CANVAS.height_px / HEAD_CANVAS.density / 2, 0.1)
    ox = round((frame.x0_px + x * frame.scale - box.width / 2) / 2) * 2
    oy = round((frame.y0_px - y * frame.scale - box.height / 2) / 2) * 2
    return (
        min(max(ox, 0), (frame.width_px - box.width) // 2 * 2),
        min(max(oy, 0), (frame.height_px - box.height) // 2 * 2),
    )


def _patch_at(
    pose: Pose,
    at: tuple[float, float, float],
    place: tuple[int, int],
    frame: Frame,
    box: _Box,
    width: int,
    height: int,
) -> tuple[int, int]:
    """Left and top, in the box, of a patch round the point `at`: on a node, inside the box."""
    x, y = pose.project(*at)
    px = frame.x0_px + x * frame.scale - place[0] - width / 2
    py = frame.y0_px - y * frame.scale - place[1] - height / 2
    step = frame.step
    return (
        min(max(round(px / step) * step, 0), box.width - width),
        min(max(round(py / step) * step, 0), box.height - height),
    )


def _over(below: Tensor, above: Tensor, alpha: Tensor) -> None:
    """Lay premultiplied `above` over `below`, in place; uint8, alpha 0..128."""
    rest = torch.sub(ALPHA_ONE, alpha.to(torch.int16))
    mixed = below.to(torch.int16).mul_(rest).add_(ALPHA_ONE // 2)
    mixed.bitwise_right_shift_(7).add_(above)
    below.copy_(mixed)
