"""H.264 by NVENC through NVIDIA's PyNvVideoCodec, from pictures that lie on the device.

The library is optional (`pip install dhsched[gpu]`); what is written here is written against 2.2:

- `CreateEncoder(width, height, "NV12", False, **options)`, the options as text. Of a picture on the
  device it asks for `.cuda()`, and takes from the answer two planes that lie one after the other.
  It copies them on a stream of its own: what made the picture must be done before.
- `Encode(picture, flags)` gives a list of {"data", "timestamp", "picture_type"}. The SDK's encoder
  below it keeps up to three pictures back, for which there is no option. `EndEncode()` gives what
  is kept; NVENC goes on after such a flush, which FFmpeg relies on, too. Here one picture in is one
  unit out, so `EndEncode()` follows where `Encode` gave nothing. Whether a driver then makes a key
  frame of the next picture, or does not go on, is found out by `choice`, which refuses it.
- As every picture's unit is there when `encode` returns, its memory was read and may be used again.
- `bf` and `lookahead` 0: nothing is reordered. `qmin` bounds the quality from above, as x264's crf
  does, so that a resting face costs little; `maxbitrate` bounds the rate.
- No `colorspace`: with it the library marks the stream as full range, which it is not.
"""

import importlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from gpu_stages.encode.annexb import is_key_frame
from gpu_stages.encode.audio import EncoderBroke
from gpu_stages.encode.pictures import Picture, on_device, to_nv12
from gpu_stages.encode.video import VideoSettings, rate_bps_of
from schemas.media import FRAMES_PER_S

LIBRARY: Final = "PyNvVideoCodec"
_REASON_CHARS_MAX: Final = 200


@dataclass(frozen=True, slots=True)
class Plane:
    """A part of a picture in device memory, with the interface that the library asks for."""

    address: int
    shape: tuple[int, int, int]
    strides: tuple[int, int, int]

    @property
    def __cuda_array_interface__(self) -> Mapping[str, Any]:
        return {
            "version": 3,
            "shape": self.shape,
            "strides": self.strides,
            "typestr": "|u1",
            "data": (self.address, False),
        }


@dataclass(frozen=True, slots=True)
class Nv12:
    """A picture as `Encode` takes it: the luma plane, and behind it the chroma plane."""

    address: int
    width_px: int
    height_px: int

    def cuda(self) -> list[Plane]:
        """The planes; the name is the library's."""
        width, height = self.width_px, self.height_px
        return [
            Plane(self.address, (height, width, 1), (width, 1, 1)),
            Plane(self.address + width * height, (height // 2, width // 2, 2), (width, 2, 1)),
        ]


def load_library() -> Any:
    """The module. Raises `EncoderBroke` where it is not installed or finds no driver."""
    try:
        return importlib.import_module(LIBRARY)
    except ImportError as error:
        raise EncoderBroke(f"{LIBRARY} is not installed or not whole: {_brief(error)}") from error
    except Exception as error:  # a driver that is missing, too old or without the encoder's library
        raise EncoderBroke(f"{LIBRARY} cannot be used: {_brief(error)}") from error


class DeviceEncoder:
    """One live's, for one size of picture; `video.PictureEncoder` is the contract.

    Every session takes a place of the few that some cards have: `close` gives it back.
    """

    def __init__(
        self, settings: VideoSettings, width_px: int, height_px: int, device: str = ""
    ) -> None:
        """Open a session. Raises `EncoderBroke` with the library's reason, and `ValueError` for odd
        sizes. `device` is for tests; it is the settings' GPU."""
        if width_px % 2 or height_px % 2:
            raise ValueError(f"{width_px} x {height_px}: video needs even sizes")
        self.width_px, self.height_px = width_px, height_px
        library = load_library()  # before torch, which a process without it does not need
        import torch

        self._device = torch.device(device or f"cuda:{settings.gpu}")
        try:
            self._force_idr = int(library.NV_ENC_PIC_FLAGS.FORCEIDR)
            self._encoder: Any = library.CreateEncoder(
                width_px, height_px, "NV12", False, **_options(settings, width_px, height_px)
            )
        except Exception as error:
            version = getattr(library, "__version__", "of unknown version")
            raise EncoderBroke(f"{LIBRARY} {version}: {_brief(error)}") from error

    def encode(self, picture: Picture, *, keyframe: bool) -> tuple[bytes, bool]:
        """See `video.PictureEncoder`."""
        import torch

        with torch.inference_mode():
            nv12 = to_nv12(on_device(picture, self._device), self.width_px, self.height_px)
            if self._device.type == "cuda":
                torch.cuda.current_stream(self._device).synchronize()
        given = Nv12(nv12.data_ptr(), self.width_px, self.height_px)
        try:
            packets = self._encoder.Encode(given, self._force_idr if keyframe else 0)
            packets = packets or self._encoder.EndEncode()
            units = [bytes(packet["data"]) for packet in packets]
        except Exception as error:  # also when another version's answer is no list of packets
            raise EncoderBroke(f"{LIBRARY}: {type(error).__name__}: {_brief(error)}") from error
        if len(units) != 1:
            raise EncoderBroke(f"{LIBRARY} gave {len(units)} units for one picture")
        return units[0], is_key_frame(units[0])

    def close(self) -> None:
        """Flush and give the session back. An encoder that broke may not be flushed any more."""
        encoder, self._encoder = self._encoder, None
        if encoder is not None:
            with suppress(Exception):  # it goes either way, and nobody waits for its rest
                encoder.EndEncode()


def _options(settings: VideoSettings, width_px: int, height_px: int) -> dict[str, object]:
    rate_bps = rate_bps_of(settings, width_px, height_px)
    return {
        "gpu_id": settings.gpu,
        "codec": "h264",
        "preset": "P3",
        "tuning_info": "ultra_low_latency",
        "fps": FRAMES_PER_S,
        "gop": settings.keyframe_interval_frames,
        "idrperiod": settings.keyframe_interval_frames,
        "repeatspspps": 1,
        "bf": 0,
        "lookahead": 0,
        "rc": "vbr",
        "bitrate": rate_bps,
        "maxbitrate": rate_bps,
        "vbvbufsize": rate_bps // 2,
        "qmin": settings.quality,
    }


def _brief(error: BaseException) -> str:
    """The library's errors are several lines, some with advice on how to start a container."""
    text = str(error).split("=== TROUBLESHOOTING")[0]
    return " ".join(text.split())[:_REASON_CHARS_MAX] or type(error).__name__
