"""A renderer of one's own, as an exported program: a drawn face of circles and curves.

    python examples/own_models/export_cartoon.py            # writes cartoon.pt2 beside this file
    DHSCHED_STAGES=examples/own_models/cartoon.toml dhsched demo

The module below is ordinary torch. Exported, it needs none of its code: the worker loads the file,
checks it against the signature in cartoon.toml, and runs it for a batch of many lives.
"""

import sys
from pathlib import Path

import torch
from torch import Tensor, nn

from gpu_stages.face.parameters import FACE_PARAMETERS, Face

SIZE_PX = 256
BATCH_MAX = 64
HERE = Path(__file__).parent


class Cartoon(nn.Module):
    """face: float32 [batch, 24] -> picture: uint8 [batch, 256, 256, 3], RGB."""

    def __init__(self) -> None:
        super().__init__()
        axis = (torch.arange(SIZE_PX) + 0.5) / SIZE_PX * 2 - 1
        self.register_buffer("x", axis[None, None, :])
        self.register_buffer("y", axis[None, :, None])
        colors = [[118, 160, 178], [240, 200, 164], [250, 250, 250], [44, 36, 40], [168, 66, 72]]
        self.register_buffer("colors", torch.tensor(colors, dtype=torch.float32)[:, :, None, None])

    def forward(self, face: Tensor) -> Tensor:
        """Layers from the back to the front, each with an edge of about two pixels."""
        given = face[:, :, None, None]
        x = self.x - 0.5 * given[:, Face.HEAD_X] - 0.4 * given[:, Face.HEAD_YAW]
        y = self.y - 0.3 * given[:, Face.HEAD_Y] - 0.4 * given[:, Face.HEAD_PITCH]
        roll = given[:, Face.HEAD_ROLL]
        x, y = x + roll * y, y - roll * x
        picture = self.colors[0].expand(face.shape[0], 3, SIZE_PX, SIZE_PX)
        picture = self.paint(picture, self.oval(x, y, 0.0, 0.0, 0.62, 0.78), 1)
        for side, blink in ((-1.0, Face.BLINK_RIGHT), (1.0, Face.BLINK_LEFT)):
            lid = 0.02 + 0.10 * (1 - given[:, blink])
            white = self.oval(x, y, 0.25 * side, -0.16, 0.13, lid)
            pupil = self.oval(
                x,
                y,
                0.25 * side + 0.06 * given[:, Face.GAZE_X],
                -0.16 - 0.05 * given[:, Face.GAZE_Y],
                0.055,
                0.055,
            )
            picture = self.paint(picture, white, 2)
            picture = self.paint(picture, torch.minimum(white, pupil), 3)
        opened = given[:, Face.JAW_OPEN] * (1 - given[:, Face.LIPS_CLOSED])
        wide = 0.22 + 0.06 * given[:, Face.LIPS_WIDE] - 0.09 * given[:, Face.LIPS_ROUND]
        smile = 0.25 * given[:, Face.SMILE] * x * x
        picture = self.paint(
            picture, self.oval(x, y + smile, 0.0, 0.36, wide, 0.03 + 0.22 * opened), 4
        )
        picture = self.paint(
            picture, self.oval(x, y + smile, 0.0, 0.36, wide - 0.04, 0.005 + 0.19 * opened), 3
        )
        return picture.permute(0, 2, 3, 1).round().clamp(0, 255).to(torch.uint8).contiguous()

    def oval(
        self,
        x: Tensor,
        y: Tensor,
        at_x: Tensor | float,
        at_y: Tensor | float,
        wide: Tensor | float,
        high: Tensor | float,
    ) -> Tensor:
        """How much of each pixel an oval covers, 0..1, [batch, height, width]."""
        away = torch.sqrt(((x - at_x) / wide) ** 2 + ((y - at_y) / high) ** 2 + 1e-9)
        return ((1 - away) * 0.5 * SIZE_PX * torch.as_tensor(high) / 2 + 0.5).clamp(0, 1)

    def paint(self, picture: Tensor, cover: Tensor, color: int) -> Tensor:
        """The colour over the picture where it covers."""
        return torch.lerp(picture, self.colors[color], cover[:, None])


def export(path: Path) -> None:
    """Export for any batch up to BATCH_MAX.

    The example's batch of 2 and `shape[0]` instead of `len` in the module keep the batch open: a
    plain number would be written into the program.
    """
    batch = torch.export.Dim("batch", min=1, max=BATCH_MAX)
    program = torch.export.export(
        Cartoon().eval(),
        (torch.zeros(2, FACE_PARAMETERS),),
        dynamic_shapes={"face": {0: batch}},
    )
    torch.export.save(program, path)


if __name__ == "__main__":
    export(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "cartoon.pt2")
