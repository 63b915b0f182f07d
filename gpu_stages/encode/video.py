"""H.264 or VP8, one access unit for each tick, with key frames on demand.

H.264 is constrained baseline (what every browser decodes), Annex B with parameter sets in front
of every key frame, no B-frames, no look-ahead: what goes in comes out at once. Constant quality
below a ceiling of the bit rate: a resting face costs little.

The encoders here are FFmpeg's, in software and NVENC; `device` has another way to NVENC, and
`choice` says which of them serves.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Final, Protocol

import av
import numpy as np
from av.video.codeccontext import VideoCodecContext
from av.video.frame import PictureType
from av.video.reformatter import ColorRange, Colorspace, Interpolation, VideoReformatter

from gpu_stages.encode.audio import EncoderBroke
from gpu_stages.encode.pictures import Picture, PictureMismatch, on_host
from schemas.media import FRAMES_PER_S

NVENC: Final = "h264_nvenc"
KEYFRAME_INTERVAL_FRAMES: Final = 2 * FRAMES_PER_S


class VideoCodec(StrEnum):
    """What viewers get."""

    H264 = "h264"
    VP8 = "vp8"


class PictureEncoder(Protocol):
    """One live's encoder, for one size of picture. Not for several threads at once."""

    width_px: int
    height_px: int

    def encode(self, picture: Picture, *, keyframe: bool) -> tuple[bytes, bool]:
        """One access unit, and whether decoding may start there.

        `picture` is RGB24 or I420 (BT.601, limited range), told apart by its length. `keyframe`
        forces a key frame. Raises `PictureMismatch` and `EncoderBroke`.
        """
        ...

    def close(self) -> None:
        """Give back what it holds. Nothing is encoded after it."""
        ...


@dataclass(frozen=True, slots=True)
class VideoSettings:
    """`encoder` is one of `choice.ORDER`. `quality` is its constant-quality figure: lower is
    better. `gpu` is the device number of an encoder in hardware.

    `bits_per_pixel_s` bounds the rate: 5 gives 330 kbit/s at 256 x 256, 1.3 Mbit/s at 512 x 512.
    """

    codec: VideoCodec = VideoCodec.H264
    encoder: str = "libx264"
    preset: str = "ultrafast"
    quality: int = 25
    bits_per_pixel_s: float = 5.0
    keyframe_interval_frames: int = KEYFRAME_INTERVAL_FRAMES
    gpu: int = 0


def _x264(settings: VideoSettings, rate_bps: int) -> dict[str, str]:
    params = (
        f"keyint={settings.keyframe_interval_frames}:min-keyint=1:scenecut=0:bframes=0:threads=1:"
        "sliced-threads=0:sync-lookahead=0:rc-lookahead=0:repeat-headers=1:annexb=1:aud=0:"
        "colorprim=smpte170m:transfer=smpte170m:colormatrix=smpte170m"
    )
    return {
        "preset": settings.preset,
        "tune": "zerolatency",
        "profile": "baseline",
        "level": "3.1",
        "crf": str(settings.quality),
        "maxrate": str(rate_bps),
        "bufsize": str(rate_bps // 2),
        "forced-idr": "1",
        "x264-params": params,
    }


def _nvenc(settings: VideoSettings, rate_bps: int) -> dict[str, str]:
    return {
        "preset": "p3",
        "tune": "ull",
        "profile": "baseline",
        "rc": "vbr",
        "cq": str(settings.quality),
        "maxrate": str(rate_bps),
        "bufsize": str(rate_bps // 2),
        "forced-idr": "1",
        "bf": "0",
        "delay": "0",
        "zerolatency": "1",
        "gpu": str(settings.gpu),
    }


def _vp8(settings: VideoSettings, rate_bps: int) -> dict[str, str]:
    return {
        "deadline": "realtime",
        "cpu-used": "8",
        "lag-in-frames": "0",
        "auto-alt-ref": "0",
        "error-resilient": "default",
        "crf": str(settings.quality),
        "maxrate": str(rate_bps),
        "bufsize": str(rate_bps // 2),
    }


_OPTIONS: Final[dict[str, Callable[[VideoSettings, int], dict[str, str]]]] = {
    "libx264": _x264,
    NVENC: _nvenc,
    "libvpx": _vp8,
}


def _create(encoder: str) -> VideoCodecContext:
    """A codec that is not open yet. Raises `ValueError` for one that this FFmpeg does not have."""
    context = av.CodecContext.create(encoder, "w")
    assert isinstance(context, VideoCodecContext)
    return context


def rate_bps_of(settings: VideoSettings, width_px: int, height_px: int) -> int:
    """The ceiling of the rate for this size."""
    return max(200_000, int(width_px * height_px * settings.bits_per_pixel_s))


class VideoEncoder:
    """One of FFmpeg's encoders; `PictureEncoder` is the contract."""

    def __init__(self, settings: VideoSettings, width_px: int, height_px: int) -> None:
        """Open the codec. Raises `ValueError` for odd sizes and FFmpeg's errors."""
        if width_px % 2 or height_px % 2:
            raise ValueError(f"{width_px} x {height_px}: video needs even sizes")
        self.width_px, self.height_px = width_px, height_px
        rate_bps = rate_bps_of(settings, width_px, height_px)
        context = _create(settings.encoder)
        context.width, context.height = width_px, height_px
        context.pix_fmt = "yuv420p"
        context.time_base = Fraction(1, FRAMES_PER_S)
        context.framerate = Fraction(FRAMES_PER_S)
        context.gop_size = settings.keyframe_interval_frames
        context.max_b_frames = 0
        context.thread_count = 1
        context.bit_rate = rate_bps if settings.encoder != "libx264" else 0
        context.colorspace = Colorspace.ITU601
        context.color_range = ColorRange.MPEG
        context.options = _OPTIONS[settings.encoder](settings, rate_bps)
        context.open()
        self._context = context
        self._gpu = settings.gpu
        self._reformatter = VideoReformatter()
        self._next_pts = 0

    def encode(self, picture: Picture, *, keyframe: bool) -> tuple[bytes, bool]:
        """See `PictureEncoder`."""
        frame = self._frame(on_host(picture, self._gpu))
        frame.pts = self._next_pts
        frame.time_base = Fraction(1, FRAMES_PER_S)
        frame.pict_type = PictureType.I if keyframe else PictureType.NONE
        self._next_pts += 1
        packets = list(self._context.encode(frame))
        if len(packets) != 1:
            raise EncoderBroke(f"{self._context.name} gave {len(packets)} packets for one frame")
        return bytes(packets[0]), packets[0].is_keyframe

    def close(self) -> None:
        """See `PictureEncoder`: the codec is closed with its object."""

    def _frame(self, picture: memoryview) -> av.VideoFrame:
        width, height = self.width_px, self.height_px
        pixels = np.frombuffer(picture, np.uint8)
        if len(pixels) == width * height * 3:
            rgb = pixels.reshape(height, width, 3)
            return self._reformatter.reformat(
                av.VideoFrame.from_ndarray(rgb, format="rgb24"),
                format="yuv420p",
                dst_colorspace=Colorspace.ITU601,
                dst_color_range=ColorRange.MPEG,
                interpolation=Interpolation.FAST_BILINEAR,
                threads=1,
            )
        if len(pixels) == width * height * 3 // 2:
            planes = pixels.reshape(height * 3 // 2, width)
            return av.VideoFrame.from_ndarray(planes, format="yuv420p")
        raise PictureMismatch(f"{len(pixels)} bytes are no picture of {width} x {height}")
