"""Loudness, limits and edges of synthesised speech.

Everything is a function of the piece's own samples: no state runs from one piece to the next, so
a piece sounds the same wherever and whenever it is made again.

PURE.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from gpu_stages.speech.voice_parts import LOUDNESS_HOP

Wave = NDArray[np.float32]

GAIN: Final = 1.8  # brings the bundled voice to about -20 dBFS while it speaks
CEILING: Final = 0.89  # -1 dBFS
LIMITER_BLOCK: Final = 24  # 1 ms
LIMITER_REACH: Final = 10  # blocks before and after a peak
FADE_SAMPLES: Final = 120  # 5 ms
LOUDNESS_WINDOW: Final = 960  # 40 ms
LOUD_RMS: Final = 0.16  # a stressed vowel after GAIN: loudness 1
AUDIBLE_RMS: Final = 0.004  # before GAIN; the model's own floor lies below 0.001
AUDIBLE_FRAME: Final = 120


def limited(wave: Wave) -> Wave:
    """`wave` at constant gain, turned down smoothly around peaks above CEILING.

    Per millisecond, the gain is the lowest that any peak within 10 ms asks for, then smoothed over
    +-8 ms and interpolated: it has come down before the peak arrives, so nothing is clipped.
    """
    loud = wave * np.float32(GAIN)
    if not len(loud) or float(np.abs(loud).max()) <= CEILING:
        return loud
    blocks = -(-len(loud) // LIMITER_BLOCK)
    peaks = np.abs(np.pad(loud, (0, blocks * LIMITER_BLOCK - len(loud))))
    wanted = np.minimum(1.0, CEILING / np.maximum(peaks.reshape(blocks, -1).max(axis=1), 1e-9))
    held = np.lib.stride_tricks.sliding_window_view(
        np.pad(wanted, LIMITER_REACH, constant_values=1.0), 2 * LIMITER_REACH + 1
    ).min(axis=1)
    smooth = LIMITER_REACH - 2
    window = np.hanning(2 * smooth + 3)[1:-1]
    gain = np.convolve(np.pad(held, smooth, mode="edge"), window / window.sum(), mode="valid")
    centres = np.arange(blocks) * LIMITER_BLOCK + LIMITER_BLOCK / 2
    return (loud * np.interp(np.arange(len(loud)), centres, gain)).astype(np.float32)


def audible_span(wave: Wave) -> tuple[int, int]:
    """First and last-plus-one sample that can be heard, in steps of 5 ms; (0, 0) when none can."""
    frames = len(wave) // AUDIBLE_FRAME
    power = np.square(wave[: frames * AUDIBLE_FRAME].reshape(frames, AUDIBLE_FRAME)).mean(axis=1)
    heard = np.flatnonzero(power > AUDIBLE_RMS**2)
    if not len(heard):
        return (0, 0)
    return (int(heard[0]) * AUDIBLE_FRAME, (int(heard[-1]) + 1) * AUDIBLE_FRAME)


def faded(wave: Wave, *, front: bool = True, back: bool = True) -> Wave:
    """A copy with 5 ms raised-cosine edges."""
    out = wave.copy()
    length = min(FADE_SAMPLES, len(out))
    ramp = (0.5 - 0.5 * np.cos(np.pi * (np.arange(length) + 0.5) / max(length, 1))).astype("f4")
    if front:
        out[:length] *= ramp
    if back and length:
        out[-length:] *= ramp[::-1]
    return out


def loudness(wave: Wave) -> NDArray[np.float32]:
    """RMS in a 40 ms Hann window around every LOUDNESS_HOP-th sample, 1 in a stressed vowel."""
    if not len(wave):
        return np.zeros(0, np.float32)
    half = LOUDNESS_WINDOW // 2
    window = np.hanning(LOUDNESS_WINDOW)
    window /= window.sum()
    count = -(-len(wave) // LOUDNESS_HOP)
    power = np.pad(np.square(wave.astype(np.float64)), (half, half + LOUDNESS_HOP))
    frames = np.lib.stride_tricks.sliding_window_view(power, LOUDNESS_WINDOW)[::LOUDNESS_HOP]
    return (np.sqrt(frames[:count] @ window) / LOUD_RMS).astype(np.float32)


def to_int16(wave: Wave) -> NDArray[np.int16]:
    """Rounded to 16 bits; the ceiling keeps it from wrapping."""
    return np.rint(np.clip(wave, -1.0, 1.0) * 32767.0).astype(np.int16)
