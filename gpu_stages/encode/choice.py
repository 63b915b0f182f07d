"""Which video encoder serves: the first of a codec's order that works on this machine.

Many GPUs of data centres have no encoder, and many builds of FFmpeg none for those that do. So
the hardware is asked by encoding pictures with it, on a stage whose device is a GPU: a driver may
open a session and then not encode. Every refusal keeps its reason, for the log.

Viewers are promised H.264 of constrained baseline (`rtc_output.whep`). An encoder in hardware that
makes a higher profile, and has no option for it, is taken only where the settings name it: browsers
decode what was not promised, and nobody promised it to other viewers.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from av.error import FFmpegError

from gpu_stages.encode.annexb import BASELINE, profile_of
from gpu_stages.encode.audio import EncoderBroke
from gpu_stages.encode.video import (
    NVENC,
    PictureEncoder,
    VideoCodec,
    VideoEncoder,
    VideoSettings,
)

AUTO: Final = "auto"
PYNVVIDEOCODEC: Final = "pynvvideocodec"
ORDER: Final[dict[VideoCodec, tuple[str, ...]]] = {
    VideoCodec.H264: (PYNVVIDEOCODEC, NVENC, "libx264"),
    VideoCodec.VP8: ("libvpx",),
}
_TRY_PX: Final = 256
_TROUBLE: Final = (FFmpegError, ValueError, EncoderBroke)


@dataclass(frozen=True, slots=True)
class Choice:
    """Settings whose `encoder` works, and why those before it in the order do not."""

    settings: VideoSettings
    refused: tuple[str, ...] = ()


def takes_device_pictures(settings: VideoSettings) -> bool:
    """Whether this encoder reads pictures where the renderer on a GPU leaves them."""
    return settings.encoder == PYNVVIDEOCODEC


def open_encoder(settings: VideoSettings, width_px: int, height_px: int) -> PictureEncoder:
    """The encoder that the settings name. Raises `EncoderBroke`, `ValueError`, FFmpeg's errors."""
    if settings.encoder == PYNVVIDEOCODEC:
        from gpu_stages.encode.device import DeviceEncoder

        return DeviceEncoder(settings, width_px, height_px)
    return VideoEncoder(settings, width_px, height_px)


def open_or_next(
    settings: VideoSettings, width_px: int, height_px: int
) -> tuple[PictureEncoder, tuple[str, ...]]:
    """One live's encoder: the one named, or, as when a card has no session left, the next in the
    order that opens; and why those before it did not. Raises what the last one raised."""
    refused: list[str] = []
    *hardware, last = _from_there_on(settings)
    for candidate in hardware:
        try:
            return open_encoder(candidate, width_px, height_px), tuple(refused)
        except _TROUBLE as trouble:
            refused.append(f"{candidate.encoder} does not open: {trouble}")
    return open_encoder(last, width_px, height_px), tuple(refused)


def choose(settings: VideoSettings, device: str = "cpu") -> Choice:
    """Settings that work on this machine.

    `AUTO` begins with hardware where `device` is a GPU, else with software. What does not work
    gives way to the next in the order. Raises `ValueError` for an encoder that does not make the
    codec, and the software's own error where not even that works.
    """
    order = ORDER[settings.codec]
    kind, _, number = device.partition(":")
    if kind == "cuda":
        settings = replace(settings, gpu=int(number or 0))
    any_profile = settings.encoder != AUTO
    if settings.encoder == AUTO:
        settings = replace(settings, encoder=order[0] if kind == "cuda" else order[-1])
    if settings.encoder not in order:
        raise ValueError(f"{settings.encoder!r} makes no {settings.codec}: {', '.join(order)}")
    refused: list[str] = []
    *hardware, last = _from_there_on(settings)
    for candidate in hardware:
        try:
            _try_out(candidate, any_profile=any_profile and candidate == settings)
        except _TROUBLE as trouble:
            refused.append(f"{candidate.encoder} does not work here: {trouble}")
        else:
            return Choice(candidate, tuple(refused))
    _try_out(last, any_profile=False)
    return Choice(last, tuple(refused))


def _from_there_on(settings: VideoSettings) -> Iterator[VideoSettings]:
    order = ORDER[settings.codec]
    for encoder in order[order.index(settings.encoder) :]:
        yield replace(settings, encoder=encoder)


def _try_out(settings: VideoSettings, *, any_profile: bool) -> None:
    """Encode a few pictures: one unit each, key frames where they are asked for and nowhere else,
    and of the profile that viewers were promised."""
    encoder = open_encoder(settings, _TRY_PX, _TRY_PX)
    grey = memoryview(bytes([128]) * (_TRY_PX * _TRY_PX * 3 // 2))
    try:
        asked = (True, False, True)
        made = [encoder.encode(grey, keyframe=keyframe) for keyframe in asked]
    finally:
        encoder.close()
    keyframes = tuple(keyframe for _unit, keyframe in made)
    if keyframes != asked:
        raise EncoderBroke(f"asked for key frames {asked} it made {keyframes}")
    profile = profile_of(made[0][0]) if settings.codec is VideoCodec.H264 else None
    if profile not in (None, BASELINE) and not any_profile:
        raise EncoderBroke(f"its H.264 is of profile {profile}, viewers are promised {BASELINE}")
