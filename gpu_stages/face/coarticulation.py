"""Phonemes to mouth shapes: each sound pulls the mouth its way, before and after it is heard.

After Cohen and Massaro's dominance functions (Modeling Coarticulation in Synthetic Visual Speech,
1993): every viseme has a target and an insistence per parameter that falls off with the distance
in time, and the mouth is the weighted mean. Lips look ahead further than the jaw. Contacts (lips
pressed, lip tucked, tongue between the teeth) cannot be averages: they are held at 1 for as long
as the sound needs, at least HOLD_S_MIN, so that a frame of the 25 always shows them.

PURE.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from gpu_stages.face.noise import smooth
from gpu_stages.face.parameters import Face
from gpu_stages.face.phonemes import (
    DIPHTHONG_TURN,
    VOWELS,
    Viseme,
    visemes_of,
)
from gpu_stages.face.visemes import CONTACTS, INSISTENCE, MOUTH_PARAMETERS, TARGETS
from schemas.media import SAMPLE_RATE_HZ, TICK_SAMPLES

Values = NDArray[np.float64]

LOOK_SAMPLES: Final = TICK_SAMPLES
"""A tick's face is the one of this many samples after the tick's first: its picture is seen for
40 ms, so the mouth leads the sound by 20 ms at the middle of that time."""

HOLD_S_MIN: Final = 0.045  # more than a tick: a frame always falls into the hold
CONTACT_RAMP_S: Final = 0.045
PAUSE_S_MIN: Final = 0.075  # shorter gaps between words do not relax the mouth
REST_PULL: Final = 0.06

# How far a viseme reaches, in seconds, before and after its time.
_REACH: Final[dict[Face, tuple[float, float]]] = {
    Face.JAW_OPEN: (0.050, 0.048),
    Face.LIPS_ROUND: (0.100, 0.070),
    Face.LIPS_WIDE: (0.085, 0.065),
    Face.LIP_UPPER_RAISE: (0.060, 0.060),
    Face.LIP_LOWER_DROP: (0.060, 0.060),
    Face.TONGUE_UP: (0.045, 0.040),
}
_HELD_SHARE: Final[dict[int, float]] = {ord("p"): 0.7, ord("b"): 0.7}
_STRESS_JAW: Final = np.array([0.85, 1.0, 1.12])


class Spans:
    """Visemes in time: arrays of one length, `start` and `end` in seconds of the segment."""

    __slots__ = ("end", "hold_end", "start", "stress", "viseme")

    def __init__(self, phonemes: NDArray[np.void]) -> None:
        """`phonemes` is a table with `start`, `end` (samples), `phoneme` and `stress`."""
        rows: list[tuple[int, float, float, float, int]] = []
        for phoneme in phonemes:
            start = float(phoneme["start"]) / SAMPLE_RATE_HZ
            end = float(phoneme["end"]) / SAMPLE_RATE_HZ
            code, stress = int(phoneme["phoneme"]), int(phoneme["stress"])
            shapes = visemes_of(code)
            if shapes[0] is Viseme.REST and end - start < PAUSE_S_MIN:
                continue
            turn = start + DIPHTHONG_TURN * (end - start) if len(shapes) == 2 else end
            held = start + _HELD_SHARE.get(code, 1.0) * (end - start)
            rows.append((shapes[0], start, turn, held, stress))
            if len(shapes) == 2:
                rows.append((shapes[1], turn, end, end, stress))
        table = np.array(rows, np.float64).reshape(len(rows), 5)
        self.viseme = table[:, 0].astype(np.int64)
        self.start, self.end, self.hold_end = table[:, 1], table[:, 2], table[:, 3]
        self.stress = table[:, 4].astype(np.int64)


def mouth_curve(spans: Spans, loudness: Values, look_s: Values) -> NDArray[np.float32]:
    """float32 [ticks, MOUTH_PARAMETERS]: the mouth at the times `look_s` (float64 [ticks]).

    `loudness` float64 [ticks] is that of the same times, about 1 in a stressed vowel.
    """
    mouth = np.zeros((len(look_s), MOUTH_PARAMETERS), np.float64)
    if not len(spans.viseme):
        return mouth.astype(np.float32)
    targets = TARGETS[spans.viseme].astype(np.float64)
    vowel = np.isin(spans.viseme, [int(viseme) for viseme in VOWELS])
    targets[:, Face.JAW_OPEN] *= np.where(vowel, _STRESS_JAW[spans.stress], 1.0)
    insistence = INSISTENCE[spans.viseme].astype(np.float64)
    edge = 0.25 * (spans.end - spans.start)
    before = np.maximum(spans.start + edge - look_s[:, None], 0.0)
    after = np.maximum(look_s[:, None] - (spans.end - edge), 0.0)
    for parameter, (ahead_s, behind_s) in _REACH.items():
        pull = insistence[:, parameter] * np.exp(-(before / ahead_s + after / behind_s))
        mouth[:, parameter] = (pull @ targets[:, parameter]) / (pull.sum(axis=1) + REST_PULL)
    mouth[:, Face.JAW_OPEN] *= 0.6 + 0.45 * np.clip(loudness, 0.0, 1.0)
    _contacts(spans, look_s, mouth)
    return np.clip(mouth, 0.0, 1.0).astype(np.float32)


def _contacts(spans: Spans, look_s: Values, mouth: Values) -> None:
    for viseme, parameter in CONTACTS.items():
        mine = spans.viseme == viseme
        if not mine.any():
            continue
        begin, end = held_interval(spans.start[mine], spans.hold_end[mine])
        outside = np.maximum(begin - look_s[:, None], look_s[:, None] - end)
        mouth[:, parameter] = smooth(1.0 - outside / CONTACT_RAMP_S).max(axis=1)
    apart = 1.0 - mouth[:, Face.LIPS_CLOSED]
    for parameter in (Face.LIP_UPPER_RAISE, Face.LIP_LOWER_DROP, Face.LIP_LOWER_TUCK):
        mouth[:, parameter] *= apart
    mouth[:, Face.TONGUE_OUT] *= apart
    mouth[:, Face.LIP_LOWER_DROP] *= 1.0 - mouth[:, Face.LIP_LOWER_TUCK]
    tucked = np.maximum(mouth[:, Face.LIPS_CLOSED], mouth[:, Face.LIP_LOWER_TUCK])
    mouth[:, Face.JAW_OPEN] *= 1.0 - 0.5 * tucked


def held_interval(start: Values, end: Values) -> tuple[Values, Values]:
    """The time a contact is held, in seconds: its sound's, made HOLD_S_MIN long at least."""
    short = np.maximum(HOLD_S_MIN - (end - start), 0.0)
    return start - short / 2, end + short / 2
