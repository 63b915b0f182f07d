"""A tick's picture as it comes in, in host memory or on the device, and as NVENC takes it.

A picture is RGB24 or I420 (BT.601, limited range), told apart by its length.
"""

from typing import Any, Final, TypeAlias, cast

from gpu_stages.stage import DevicePart

Picture: TypeAlias = memoryview | DevicePart

# Rows: Y, U, V of R, G, B in 0..255, as ITU-R BT.601 has them for 16..235 and 16..240.
_BT601: Final = (
    (65.481 / 255, 128.553 / 255, 24.966 / 255),
    (-37.797 / 255, -74.203 / 255, 112.0 / 255),
    (112.0 / 255, -93.786 / 255, -18.214 / 255),
)


class PictureMismatch(ValueError):
    """A picture's bytes are neither RGB24 nor I420 of the live's size."""


def on_device(picture: Picture, device: Any) -> Any:
    """The bytes as a torch tensor on `device` (a torch.device), uint8 [size]. A part that lies
    there already is looked at without a copy."""
    import torch

    if isinstance(picture, DevicePart):
        return torch.as_tensor(cast(Any, picture), device=device)
    return torch.frombuffer(bytearray(picture), dtype=torch.uint8).to(device)


def on_host(picture: Picture, gpu: int) -> memoryview:
    """The bytes in host memory; those that lie on device number `gpu` are copied down."""
    if not isinstance(picture, DevicePart):
        return picture
    return on_device(picture, f"cuda:{gpu}").cpu().numpy().data


def to_nv12(pixels: Any, width_px: int, height_px: int) -> Any:
    """A picture's bytes, uint8 [size], as NV12: uint8 [height * 3 / 2, width], on their device.

    Raises `PictureMismatch`.
    """
    import torch

    area = width_px * height_px
    if len(pixels) == area * 3 // 2:
        luma, chroma = pixels[:area], pixels[area:].view(2, area // 4)
    elif len(pixels) == area * 3:
        rgb = pixels.view(height_px, width_px, 3).float()
        matrix = torch.tensor(_BT601, device=pixels.device)
        luma = (rgb @ matrix[0] + 16.0).round_().clamp_(16, 235).to(torch.uint8).view(area)
        squares = rgb.view(height_px // 2, 2, width_px // 2, 2, 3).mean((1, 3))
        levels = matrix[1:] @ squares.view(-1, 3).t() + 128.0
        chroma = levels.round_().clamp_(16, 240).to(torch.uint8)
    else:
        raise PictureMismatch(f"{len(pixels)} bytes are no picture of {width_px} x {height_px}")
    out = torch.empty(area * 3 // 2, dtype=torch.uint8, device=pixels.device)
    out[:area] = luma
    out[area:].view(area // 4, 2).copy_(chroma.t())
    return out.view(height_px * 3 // 2, width_px)
