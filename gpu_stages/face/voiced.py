"""What a stretch of voice does to the face, tick by tick, and how it starts and stops.

PURE.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from gpu_stages.face.coarticulation import LOOK_SAMPLES, Spans, mouth_curve
from gpu_stages.face.emphasis import emphasis_curve
from gpu_stages.face.noise import smooth
from gpu_stages.face.parameters import FACE_PARAMETERS, Face
from gpu_stages.face.visemes import CONTACTS, MOUTH_PARAMETERS
from schemas.media import SAMPLE_RATE_HZ, TICK_SAMPLES

SETTLE_TICKS: Final = 3  # 120 ms: how long a break in the voice shows in the face

FaceVector = NDArray[np.float32]
_CONTACT_COLUMNS: Final = [int(parameter) for parameter in CONTACTS.values()]


def voiced_curve(
    phonemes: NDArray[np.void],
    loudness: NDArray[np.float32],
    *,
    loudness_hop: int,
    sample_start: int,
    ticks: int,
    seed: int,
) -> NDArray[np.float32]:
    """float32 [ticks, FACE_PARAMETERS] to add to the idle face.

    Tick k begins with segment sample `sample_start + k * TICK_SAMPLES`; `loudness[i]` is that of
    sample `sample_start + i * loudness_hop`; the phoneme table counts in segment samples.
    """
    offset = np.arange(ticks, dtype=np.float64) * TICK_SAMPLES + LOOK_SAMPLES
    look_s = (sample_start + offset) / SAMPLE_RATE_HZ
    heard = np.zeros(ticks)
    if len(loudness):
        heard = np.interp(offset, np.arange(len(loudness)) * loudness_hop, loudness)
    curve = emphasis_curve(phonemes, seed, look_s)
    curve[:, :MOUTH_PARAMETERS] = mouth_curve(Spans(phonemes), heard, look_s)
    return curve


class Settling:
    """Joins what the voice asks of the face at a break: the start of a piece, its end, a cut.

    The difference at the break is kept and let go over SETTLE_TICKS. Lips and tongue may close at
    once (a `p` can be the first sound), they only open gently. A face that nobody has drawn yet
    has no difference: a live taken up in the middle of a word goes on in the middle of it.
    """

    __slots__ = ("_left", "_shown", "_since", "_source")

    def __init__(self) -> None:
        self._shown: FaceVector | None = None
        self._left: FaceVector = np.zeros(FACE_PARAMETERS, np.float32)
        self._since = SETTLE_TICKS
        self._source = -1

    def step(self, source: int, wanted: FaceVector) -> FaceVector:
        """The next tick's vector. A new `source` (any number that names it) is a break."""
        if source != self._source and self._shown is not None:
            self._left = self._shown - wanted
            self._left[_CONTACT_COLUMNS] = np.maximum(self._left[_CONTACT_COLUMNS], 0.0)
            self._since = 0
        self._source = source
        if self._since >= SETTLE_TICKS:
            self._shown = wanted
            return wanted
        self._since += 1
        share = 1.0 - float(smooth(np.array([self._since / SETTLE_TICKS]))[0])
        shown = (wanted + share * self._left).astype(np.float32)
        self._shown = shown
        return shown


def face_of(idle: FaceVector, voiced: FaceVector) -> FaceVector:
    """The two together, each parameter kept in its range."""
    face = idle + voiced
    np.clip(face, -1.0, 1.0, out=face)
    np.clip(face[: Face.SMILE], 0.0, 1.0, out=face[: Face.SMILE])
    return face
