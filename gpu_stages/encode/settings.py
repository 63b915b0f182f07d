"""The encode stage's settings, as they stand in the stages' TOML.

codec = "h264"                 # or "vp8"
encoder = "auto"               # the first that works, on a GPU of "pynvvideocodec" (NVENC, from
                               # device memory), "h264_nvenc" (NVENC by FFmpeg), "libx264"; or one
                               # of them, or "libvpx". What does not work gives way to the next,
                               # with a warning that says why
preset = "ultrafast"           # x264's; "superfast": half the rate for half as much time again
quality = 25                   # constant quality, lower is better
bits_per_pixel_s = 5.0         # ceiling of the rate
keyframe_interval_frames = 50  # at most 2 s: key frames that get lost are not asked for
opus_bitrate_bps = 32000
threads = 0                    # 0: as many as the worker gave this stage (OMP_NUM_THREADS)
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gpu_stages.encode.audio import BITRATE_BPS, AudioSettings
from gpu_stages.encode.choice import AUTO, ORDER
from gpu_stages.encode.video import KEYFRAME_INTERVAL_FRAMES, VideoCodec, VideoSettings

THREADS_MAX: Final = 64
X264_PRESETS: Final = ("ultrafast", "superfast", "veryfast", "faster", "fast", "medium")


@dataclass(frozen=True, slots=True)
class EncodeSettings:
    """`threads` 0 means: as many as OMP_NUM_THREADS says, 1 without it."""

    video: VideoSettings
    audio: AudioSettings
    threads: int


def read_settings(settings: Mapping[str, object]) -> EncodeSettings:
    """Raises `ValueError`, naming the setting that is unknown or wrong."""
    reader = _Reader(settings)
    codec = VideoCodec(reader.choice("codec", VideoCodec.H264, tuple(VideoCodec)))
    video = VideoSettings(
        codec=codec,
        encoder=reader.choice("encoder", AUTO, (AUTO, *ORDER[codec])),
        preset=reader.choice("preset", VideoSettings().preset, X264_PRESETS),
        quality=reader.whole("quality", VideoSettings().quality, 1, 51),
        bits_per_pixel_s=reader.number("bits_per_pixel_s", 5.0, 0.5, 100.0),
        keyframe_interval_frames=reader.whole(
            "keyframe_interval_frames", KEYFRAME_INTERVAL_FRAMES, 1, KEYFRAME_INTERVAL_FRAMES
        ),
    )
    audio = AudioSettings(reader.whole("opus_bitrate_bps", BITRATE_BPS, 6_000, 256_000))
    threads = reader.whole("threads", 0, 0, THREADS_MAX)
    reader.done()
    return EncodeSettings(video, audio, threads)


class _Reader:
    """Takes settings one by one; what nobody took is unknown."""

    def __init__(self, settings: Mapping[str, object]) -> None:
        self._left = dict(settings)

    def choice(self, name: str, default: str, choices: tuple[str, ...]) -> str:
        value = self._left.pop(name, default)
        if not isinstance(value, str) or value not in choices:
            raise ValueError(f"`{name}` is one of {', '.join(choices)}, not {value!r}")
        return value

    def whole(self, name: str, default: int, low: int, high: int) -> int:
        value = self._left.pop(name, default)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise ValueError(f"`{name}` is a whole number from {low} to {high}, not {value!r}")
        return value

    def number(self, name: str, default: float, low: float, high: float) -> float:
        value = self._left.pop(name, default)
        if not isinstance(value, int | float) or not low <= value <= high:
            raise ValueError(f"`{name}` is a number from {low} to {high}, not {value!r}")
        return float(value)

    def done(self) -> None:
        if self._left:
            raise ValueError(f"unknown settings of the encode stage: {', '.join(self._left)}")
