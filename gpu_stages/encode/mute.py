"""Ending sound that was cut off by an interrupt, without a click.

PURE.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from schemas.media import SAMPLE_RATE_HZ, TICK_SAMPLES

FADE_SAMPLES: Final = SAMPLE_RATE_HZ // 100  # 10 ms

_RAMP: Final = 0.5 + 0.5 * np.cos(np.pi * (np.arange(FADE_SAMPLES) + 0.5) / FADE_SAMPLES)
_SILENCE: Final = np.zeros(TICK_SAMPLES, np.int16)


class Muter:
    """One live's: silences muted ticks, and fades out whatever sounded up to them.

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
        if not muted and (goes_on or not sounding):
            return pcm
        if not sounding:
            return _SILENCE
        out = np.zeros_like(pcm) if muted else pcm.copy()
        start = pcm[:FADE_SAMPLES] if goes_on else mirrored
        out[:FADE_SAMPLES] = np.rint(start * _RAMP)
        return out
