"""A stand-in for PyNvVideoCodec 2.2 on a machine without NVENC: libx264 behind the same calls.

It keeps what the library is strict about (read off the module of 2.2.4 and its samples): options
are text by the time they reach the encoder, a picture in device memory has `.cuda()` and gives two
planes of exact shapes and strides that lie one after the other, flags are a number, packets are
dictionaries. It reads the planes at their addresses, here in host memory, so what comes out can be
decoded and compared. `kept` pictures stay in the encoder until later ones come or it is flushed.
"""

import ctypes
import sys
from collections.abc import Callable
from fractions import Fraction
from types import ModuleType
from typing import Any

import av
import numpy as np
import pytest

from gpu_stages.encode import device, pictures
from gpu_stages.encode.video import VideoSettings
from gpu_stages.stage import DevicePart
from schemas.media import FRAMES_PER_S


class PyNvVCException(Exception):
    """The library's own error: of no built-in kind, and several lines long."""


class Encoder:
    """What `CreateEncoder` gives."""

    def __init__(self, library: "FakeNvenc", width: int, height: int, options: dict[str, str]):
        self._library, self._width, self._height = library, width, height
        self.options = options
        self.calls: list[str] = []
        self._waiting: list[dict[str, Any]] = []
        self._flushed = False
        self._frames = 0
        self._codec = av.CodecContext.create("libx264", "w")
        self._codec.width, self._codec.height = width, height
        self._codec.pix_fmt = "nv12"
        self._codec.time_base = Fraction(1, FRAMES_PER_S)
        self._codec.gop_size = int(options["gop"])
        self._codec.options = {
            "preset": "ultrafast",
            "tune": "zerolatency",
            "profile": library.profile,
            "forced-idr": "1",
            "x264-params": "annexb=1:repeat-headers=1:scenecut=0"
            + (":cabac=1" if library.profile != "baseline" else ""),
        }
        self._codec.open()

    def Encode(self, frame: object, flags: int) -> Any:
        assert isinstance(flags, int)
        self.calls.append(f"Encode {flags}")
        self._library.fail_where("Encode")
        if not hasattr(frame, "cuda"):
            raise PyNvVCException("incorrect usage of CPU input buffer")
        luma, chroma = (self._plane(plane, n) for n, plane in enumerate(frame.cuda()))
        picture = av.VideoFrame.from_ndarray(np.vstack([luma, chroma]), format="nv12")
        picture.pts = self._frames
        after_flush = self._flushed and self._library.key_frame_after_flush
        forced = flags & 2 or after_flush
        picture.pict_type = av.video.frame.PictureType.I if forced else 0
        self._flushed = False
        self._frames += 1
        for packet in self._codec.encode(picture):
            self._waiting.append(
                {"data": bytes(packet), "timestamp": packet.pts, "picture_type": 0}
            )
        ready = max(0, len(self._waiting) - self._library.kept)
        out, self._waiting = self._waiting[:ready], self._waiting[ready:]
        return self._library.answer(out)

    def EndEncode(self) -> Any:
        self.calls.append("EndEncode")
        self._library.fail_where("EndEncode")
        out, self._waiting = self._waiting, []
        self._flushed = True
        return self._library.answer(out)

    def _plane(self, plane: Any, number: int) -> np.ndarray:
        about = plane.__cuda_array_interface__
        width, height = self._width, self._height
        shape = [(height, width, 1), (height // 2, width // 2, 2)][number]
        strides = [(width, 1, 1), (width, 2, 1)][number]
        if (about["shape"], about["strides"], about["typestr"]) != (shape, strides, "|u1"):
            raise RuntimeError(f"Invalid shape: {about}, expected: {shape} {strides}")
        if about.get("stream") == 0:
            raise RuntimeError("__cuda_array_interface__ specifies that stream must not be 0")
        address = about["data"][0]
        if number == 0:
            self._luma_address = address
        elif address != self._luma_address + width * height:
            raise PyNvVCException("Unsupported surface allocation. u plane must follow yplane.")
        size = width * height // (1 + number)
        raw = np.frombuffer((ctypes.c_uint8 * size).from_address(address), np.uint8)
        return raw.reshape(-1, width).copy()


class FakeNvenc(ModuleType):
    """The module. Its attributes steer it."""

    def __init__(self) -> None:
        super().__init__("PyNvVideoCodec")
        self.__version__ = "2.2.4"
        self.NV_ENC_PIC_FLAGS = type("NV_ENC_PIC_FLAGS", (), {"FORCEINTRA": 1, "FORCEIDR": 2})
        self.fail: dict[str, str] = {}
        self.sessions = 1000
        self.kept = 0
        self.profile = "baseline"
        self.key_frame_after_flush = False
        self.answer: Callable[[list[dict[str, Any]]], Any] = lambda packets: packets
        self.made: list[Encoder] = []

    def fail_where(self, call: str) -> None:
        if call in self.fail:
            raise PyNvVCException(self.fail[call])

    def CreateEncoder(
        self, width: int, height: int, fmt: str, usecpuinputbuffer: bool, **options: object
    ) -> Encoder:
        assert (fmt, usecpuinputbuffer) == ("NV12", False)
        known = {
            "gpu_id", "codec", "preset", "tuning_info", "fps", "gop", "idrperiod", "repeatspspps",
            "bf", "lookahead", "rc", "bitrate", "maxbitrate", "vbvbufsize", "qmin",
        }  # fmt: skip
        assert set(options) <= known, "the library would take no note of it"
        self.fail_where("CreateEncoder")
        if len(self.made) >= self.sessions:
            raise PyNvVCException(
                "OpenEncodeSessionEx : \nError code : 10\nError Type : out of memory\nat x.cpp:1\n"
            )
        texts = {name: str(value) for name, value in options.items()}
        self.made.append(Encoder(self, width, height, texts))
        return self.made[-1]


def install(monkeypatch: pytest.MonkeyPatch) -> FakeNvenc:
    """Put the stand-in in the library's place; the device's memory is this process' own."""
    made = FakeNvenc()
    monkeypatch.setitem(sys.modules, made.__name__, made)
    on_device, opened = pictures.on_device, device.DeviceEncoder.__init__

    def here(picture: pictures.Picture, _device: object) -> Any:
        if isinstance(picture, DevicePart):
            raw = (ctypes.c_uint8 * picture.size_bytes).from_address(picture.address)
            picture = memoryview(bytes(raw))
        return on_device(picture, "cpu")

    def open_here(
        self: device.DeviceEncoder, settings: VideoSettings, width_px: int, height_px: int
    ) -> None:
        opened(self, settings, width_px, height_px, "cpu")

    monkeypatch.setattr(pictures, "on_device", here)
    monkeypatch.setattr(device, "on_device", here)
    monkeypatch.setattr(device.DeviceEncoder, "__init__", open_here)
    return made
