"""Head and brows go with the voice: nods and lifted brows on some stressed syllables.

Drawn by the segment's seed and the syllable's place in it, so a segment made again looks the same.

PURE.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from gpu_stages.face.noise import smooth, uniform
from gpu_stages.face.parameters import FACE_PARAMETERS, Face
from schemas.media import SAMPLE_RATE_HZ

Values = NDArray[np.float64]

NOD_CHANCE: Final = 0.55
BROW_CHANCE: Final = 0.3
APART_S: Final = 0.38
RISE_S: Final = 0.18
FALL_S: Final = 0.36
PRIMARY: Final = 2
_NOD, _NOD_SIZE, _BROW, _BROW_SIZE, _TILT = range(1, 6)


def emphasis_curve(phonemes: NDArray[np.void], seed: int, look_s: Values) -> NDArray[np.float32]:
    """float32 [ticks, FACE_PARAMETERS], to be added to the idle face at the times `look_s`.

    `phonemes` is a table with `start`, `end` (samples), `phoneme` and `stress`.
    """
    face = np.zeros((len(look_s), FACE_PARAMETERS), np.float64)
    stressed = phonemes["start"][phonemes["stress"] == PRIMARY].astype(np.int64)
    drawn = {
        channel: uniform(seed, channel, stressed)
        for channel in (_NOD, _NOD_SIZE, _BROW, _BROW_SIZE, _TILT)
    }
    last_s = -APART_S
    for index, sample in enumerate(stressed.tolist()):
        at_s = sample / SAMPLE_RATE_HZ
        if at_s - last_s < APART_S:
            continue
        bump = _bump(look_s - at_s)
        if drawn[_NOD][index] < NOD_CHANCE:
            last_s = at_s
            size = 0.5 + drawn[_NOD_SIZE][index]
            face[:, Face.HEAD_PITCH] += 0.040 * size * bump
            face[:, Face.HEAD_ROLL] += 0.030 * (drawn[_TILT][index] - 0.5) * bump
        if drawn[_BROW][index] < BROW_CHANCE:
            last_s = at_s
            _lift_brows(face, (0.25 + 0.3 * drawn[_BROW_SIZE][index]) * bump)
    for sample in phonemes["start"][phonemes["phoneme"] == ord("?")].tolist():
        at_s = sample / SAMPLE_RATE_HZ
        _lift_brows(face, 0.4 * smooth((look_s - at_s + 0.6) / 0.4))
    return np.clip(face, -1.0, 1.0).astype(np.float32)


def _lift_brows(face: Values, by: Values) -> None:
    face[:, Face.BROW_UP_LEFT] += by
    face[:, Face.BROW_UP_RIGHT] += by


def _bump(since_s: Values) -> Values:
    """0..1, highest 60 ms into the syllable."""
    late = since_s - 0.06
    return np.where(late < 0.0, smooth(1.0 + late / RISE_S), smooth(1.0 - late / FALL_S))
