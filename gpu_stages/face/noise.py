"""Randomness that is a function of where it is asked for: no state, no history, no loop.

A value depends on (seed, channel, index) only, so any owner of a live can continue its face at
any frame. The hash is SplitMix64's finaliser over uint64 arrays, the same on every machine.

PURE.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)
_MIX_1: Final = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2: Final = np.uint64(0x94D049BB133111EB)
_MASK: Final = (1 << 64) - 1


def uniform(seed: int, channel: int, index: NDArray[np.int64]) -> NDArray[np.float64]:
    """Values in [0, 1), one for each `index`, independent over seed, channel and index."""
    start = np.uint64((seed * 0xD1342543DE82EF95 + channel * 0xA0761D6478BD642F + 1) & _MASK)
    with np.errstate(over="ignore"):
        x = (index.astype(np.uint64) + np.uint64(1)) * _GOLDEN + start
        x = (x ^ (x >> np.uint64(30))) * _MIX_1
        x = (x ^ (x >> np.uint64(27))) * _MIX_2
        x ^= x >> np.uint64(31)
        x = x * _GOLDEN + start
        x = (x ^ (x >> np.uint64(29))) * _MIX_1
        x ^= x >> np.uint64(32)
    return (x >> np.uint64(11)).astype(np.float64) * 2.0**-53


def smooth(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """0 to 1 with level ends, for `x` clipped to 0..1 (quintic: no jump in acceleration)."""
    t = np.clip(x, 0.0, 1.0)
    return t * t * t * (t * (t * 6.0 - 15.0) + 10.0)


def drift(
    seed: int, channel: int, at_s: NDArray[np.float64], *, slowest_s: float, octaves: int
) -> NDArray[np.float64]:
    """A wandering value, about -1..1, with a spectrum that falls like 1/f.

    Each octave is twice as quick and 0.6 as strong as the one before; the steps of the octaves
    have no common period, and every step is drawn anew, so nothing comes back.
    """
    total = np.zeros_like(at_s)
    strength, step_s = 1.0, slowest_s
    power = 0.0
    for octave in range(octaves):
        position = at_s / step_s
        cell = np.floor(position).astype(np.int64)
        blend = smooth(position - cell)
        before = uniform(seed, channel * 64 + octave, cell)
        after = uniform(seed, channel * 64 + octave, cell + 1)
        total += strength * (before + (after - before) * blend - 0.5)
        power += strength * strength
        strength *= 0.6
        step_s /= 2.07
    return total * (2.0 / np.sqrt(power))
