"""Silencing sound of a turn that was interrupted, without a click.

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
    """One live's: fades its first muted tick out, silences the following ones.

    Sound only fades if there was some at the end of the tick before: one that would begin with the
    muted tick does not begin.
    """

    __slots__ = ("_sounding",)

    def __init__(self) -> None:
        self._sounding = False

    def step(self, pcm: NDArray[np.int16], *, muted: bool) -> NDArray[np.int16]:
        """What is to be heard of the tick's samples, int16 [TICK_SAMPLES]."""
        if not muted:
            self._sounding = bool(pcm[-1] or pcm[-FADE_SAMPLES:].any())
            return pcm
        if not self._sounding:
            return _SILENCE
        self._sounding = False
        out = np.zeros_like(pcm)
        out[:FADE_SAMPLES] = np.rint(pcm[:FADE_SAMPLES] * _RAMP)
        return out
