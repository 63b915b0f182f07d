"""Beginning and ending sound in the middle, without a click.

PURE.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from schemas.media import SAMPLE_RATE_HZ, TICK_SAMPLES

FADE_SAMPLES: Final = SAMPLE_RATE_HZ // 100  # 10 ms

ABRUPT: Final = 100
"""A first sample above this was not faded in by whoever made the sound: -50 dBFS."""

_RAMP: Final = 0.5 + 0.5 * np.cos(np.pi * (np.arange(FADE_SAMPLES) + 0.5) / FADE_SAMPLES)
_SILENCE: Final = np.zeros(TICK_SAMPLES, np.int16)


class Muter:
    """One binding's: silences muted ticks, and fades out whatever sounded up to them.

    Speech that another owner began is taken up in the middle: behind silence such sound fades in.
    The samples themselves are the same on every owner; only here, where they are encoded for a
    viewer who heard nothing before, does their beginning matter.

    An interrupt meets a turn in one of two ways. Ticks of it may still be on their way: the first
    of them fades out. Or there are none, and the next tick is silent already: then the last 10 ms
    are played backwards and faded, which goes on from the last sample. Sound that would only begin
    with a muted tick does not begin.
    """

    __slots__ = ("_tail",)

    def __init__(self) -> None:
        self._tail = np.zeros(FADE_SAMPLES, np.int16)

    def step(self, pcm: NDArray[np.int16], *, muted: bool) -> NDArray[np.int16]:
        """What is to be heard of the tick's samples, int16 [TICK_SAMPLES]."""
        sounding = bool(self._tail.any())
        goes_on = bool(pcm[:FADE_SAMPLES].any())
        mirrored = self._tail[::-1]
        self._tail = _SILENCE[:FADE_SAMPLES] if muted else pcm[-FADE_SAMPLES:].copy()
        if not muted and not sounding and abs(int(pcm[0])) > ABRUPT:
            out = pcm.copy()
            out[:FADE_SAMPLES] = np.rint(pcm[:FADE_SAMPLES] * _RAMP[::-1])
            return out
        if not muted and (goes_on or not sounding):
            return pcm
        if not sounding:
            return _SILENCE
        out = np.zeros_like(pcm) if muted else pcm.copy()
        start = pcm[:FADE_SAMPLES] if goes_on else mirrored
        out[:FADE_SAMPLES] = np.rint(start * _RAMP)
        return out
