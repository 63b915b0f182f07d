"""Who is heard when: the model's durations turned into a phoneme table.

The network gives every symbol that it reads a duration in units of 25 ms: phonemes, stress marks,
punctuation, spaces and the pad at both ends. A stress mark is part of the vowel behind it, a
length mark of the one before. Against the sound itself the durations are late by a constant:
measured over sentences rich in sibilants, stops and open vowels, the best lag is 50 ms for vowels
and 60 ms for stops (`tests/unit/gpu_stages/test_speech_alignment.py` measures it again).

PURE.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gpu_stages.speech.voice_parts import PHONEME_DTYPE

SAMPLES_PER_DURATION: Final = 600  # 25 ms at 24 kHz
DURATIONS_LATE_SAMPLES: Final = 1_260  # 52.5 ms

PRIMARY_STRESS: Final = "ˈ"
SECONDARY_STRESS: Final = "ˌ"
_MARKS_BEFORE: Final = {SECONDARY_STRESS: 1, PRIMARY_STRESS: 2}
_MARKS_AFTER: Final = frozenset("ː̃ʰʲᵝ")
_TONES: Final = frozenset("↓→↗↘")


def phoneme_table(
    symbols: Sequence[str], durations: NDArray[np.int64], samples: int
) -> NDArray[np.void]:
    """The table of one piece, positions relative to the piece's first sample.

    `symbols` are what the network read, a space for each pad; `durations` int64 [len(symbols)],
    in units of 25 ms; `samples` is the piece's length, which is their sum. Raises `ValueError`
    when they do not belong together.
    """
    if len(symbols) != len(durations) or int(durations.sum()) * SAMPLES_PER_DURATION != samples:
        raise ValueError(
            f"{len(symbols)} symbols, {len(durations)} durations of "
            f"{int(durations.sum())} units, {samples} samples"
        )
    ends = np.cumsum(durations) * SAMPLES_PER_DURATION
    rows: list[tuple[int, int, int, int, int]] = []
    begin, stress, mark_start = 0, 0, -1
    for symbol, end in zip(symbols, ends.tolist(), strict=True):
        start, begin = begin, end
        if symbol in _MARKS_BEFORE:
            stress = _MARKS_BEFORE[symbol]
            mark_start = start if mark_start < 0 else mark_start
            continue
        if symbol in _TONES or (symbol in _MARKS_AFTER and not rows):
            continue
        if symbol in _MARKS_AFTER:
            first, _, phoneme, kept, _ = rows[-1]
            rows[-1] = (first, end, phoneme, kept, 0)
            continue
        first = mark_start if mark_start >= 0 else start
        rows.append((first, end, ord(symbol), stress, 0))
        stress, mark_start = 0, -1
    table = np.array(rows, PHONEME_DTYPE)
    table["start"] = np.clip(table["start"] - DURATIONS_LATE_SAMPLES, 0, samples)
    table["end"] = np.clip(table["end"] - DURATIONS_LATE_SAMPLES, 0, samples)
    if len(table):
        table["end"][-1] = samples
    return table


def shifted(table: NDArray[np.void], by_samples: int) -> NDArray[np.void]:
    """The same table, later by `by_samples`; what comes to lie before 0 starts and ends there."""
    moved = table.copy()
    moved["start"] = np.maximum(table["start"] + by_samples, 0)
    moved["end"] = np.maximum(table["end"] + by_samples, 0)
    return moved


def until(table: NDArray[np.void], sample: int) -> NDArray[np.void]:
    """The table cut off at `sample`: by its numbers a last phoneme goes on into the silence."""
    kept = table[table["start"] < sample].copy()
    kept["end"] = np.minimum(kept["end"], sample)
    return kept
