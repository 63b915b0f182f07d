"""The layer behind the head: it follows the head's pose softly, and breathes."""

import torch
from torch import Tensor

from gpu_stages.face.paint import floats
from gpu_stages.face.pose import Pose
from gpu_stages.face.textures import MARGIN, Frame, Sheet
from gpu_stages.face.warp import Nodes, Spread

_TOP_HAIR, _TOP_NECK = 0.40, -0.05  # model units: nothing of this layer that shows moves above
_LEAN_X, _LEAN_Y = 0.30, 0.20  # the share of the head's shift that the shoulders take part in


def _ramp(t: Tensor) -> Tensor:
    t = t.clamp(0.0, 1.0)
    return t * t * (3.0 - 2.0 * t)


class Backdrop:
    """The back layer of one frame size; draws the whole frame.

    `hair` says that hair hangs behind the neck, which then moves up to a greater height.
    """

    def __init__(self, frame: Frame, hair: bool, device: torch.device) -> None:
        self._frame = frame
        highest = _TOP_HAIR if hair else _TOP_NECK
        w, h = frame.width_px, frame.height_px
        self._top = max(0, int(frame.y0_px - highest * frame.scale)) // 4 * 4
        nodes = Nodes(w, h - self._top, frame.step, device)
        self._full, self._half = Spread(nodes, 1, device), Spread(nodes, 2, device)
        x = (nodes.x_px - frame.x0_px) / frame.scale
        y = (frame.y0_px - self._top - nodes.y_px) / frame.scale
        x, y = x.expand(y.shape[0], x.shape[1]), y.expand(y.shape[0], x.shape[1])
        density = frame.scale * frame.texels
        edge_x = frame.x0_px / frame.scale + MARGIN
        edge_y = frame.y0_px / frame.scale + MARGIN
        self._rest = torch.stack([(x + edge_x) * density, (edge_y - y) * density])
        fade = _ramp((highest - y) / 0.30)
        follow = fade * _ramp((y + 0.78) / 0.38) * _ramp((0.85 - x.abs()) / 0.30) * density
        lean = fade * _ramp((1.0 - x.abs()) / 0.35) * density
        breath = _ramp((-0.42 - y) / 0.36) * density
        none = torch.zeros_like(x)
        self._basis = torch.stack(
            [
                torch.stack([-follow, none]),
                torch.stack([none, follow]),
                torch.stack([-lean, none]),
                torch.stack([none, lean]),
                torch.stack([-follow * (y + 0.6), -follow * x]),
                torch.stack([none, breath]),
            ]
        ).view(6, -1)
        self._least = torch.zeros(2, 1, 1, device=device)
        most = [density * (side / frame.scale + 2 * MARGIN) // 1 - 2 for side in (w, h)]
        self._most = floats(most, (2, 1, 1), device)

    def _flow(self, pose: Pose) -> Tensor:
        """Texels [2, nodes_h + 2, nodes_w + 2] at the nodes, for this pose."""
        strengths = (
            pose.shift_x * (1.0 - _LEAN_X) + 0.06 * pose.yaw + 0.10 * pose.roll,
            pose.shift_y * (1.0 - _LEAN_Y) - 0.025 * abs(pose.pitch),
            pose.shift_x * _LEAN_X,
            pose.shift_y * _LEAN_Y,
            pose.roll * 0.7,
            pose.breath * 0.016,
        )
        given = floats(strengths, (1, -1), self._rest.device)
        flow = torch.addmm(self._rest.view(1, -1), given, self._basis)
        return torch.clamp(flow.view(self._rest.shape), self._least, self._most)

    def still(self, sheet: Sheet) -> Tensor:
        """A whole frame at rest, uint8 [height * width * 3/2]."""
        w, h = self._frame.width_px, self._frame.height_px
        device = sheet.luma.device
        out = torch.empty(w * h * 3 // 2, dtype=torch.uint8, device=device)
        density = self._frame.scale * self._frame.texels

        def index(by: int, stride: int) -> Tensor:
            x = (torch.arange(w // by, device=device) + 0.5) * self._frame.texels
            y = (torch.arange(h // by, device=device) + 0.5) * self._frame.texels
            x, y = (x + MARGIN * density / by).int(), (y + MARGIN * density / by).int()
            return (y[:, None] * stride + x[None]).flatten()

        out[: w * h] = sheet.luma.index_select(0, index(1, sheet.canvas.width_px))
        half = index(2, sheet.half.width_px)
        chroma = out[w * h :].view(2, -1)
        chroma[0] = sheet.u.index_select(0, half)
        chroma[1] = sheet.v.index_select(0, half)
        return out

    def draw(self, out: Tensor, pose: Pose, sheet: Sheet, still: Tensor) -> None:
        """Fill `out`, uint8 [height * width * 3/2]; `still` is `self.still(sheet)`."""
        w, h, top = self._frame.width_px, self._frame.height_px, self._top
        flow = self._flow(pose)
        split = top * w
        out[:split].copy_(still[:split])
        index = self._full.index(flow, sheet.canvas.width_px)
        torch.index_select(sheet.luma, 0, index, out=out[split : w * h])
        index = self._half.index(flow, sheet.half.width_px)
        chroma, still_chroma = out[w * h :].view(2, -1), still[w * h :].view(2, -1)
        chroma[:, : split // 4].copy_(still_chroma[:, : split // 4])
        torch.index_select(sheet.u, 0, index, out=chroma[0, split // 4 :])
        torch.index_select(sheet.v, 0, index, out=chroma[1, split // 4 :])
