"""What a face does when nobody tells it to: blink, look about, breathe, keep almost still.

A pure function of (seed, frame index): whoever owns the live makes the same frame, without
history. Events (blinks, glances) lie one in each window of fixed length, at a drawn place.

PURE.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from gpu_stages.face.noise import drift, smooth, uniform
from gpu_stages.face.parameters import FACE_PARAMETERS, Face
from schemas.media import FRAMES_PER_S

Frames = NDArray[np.int64]
Values = NDArray[np.float64]

BLINK_WINDOW: Final = 110  # frames, 4.4 s: one blink in each; mostly 3.3 to 5.5 s apart
BLINK_PLACES: Final = 66  # drawn among the first so many frames of the window
BLINK_SHAPE: Final = (0.55, 1.0, 0.72, 0.22)  # the frame before the closed one and on: 160 ms
DOUBLE_BLINK_CHANCE: Final = 0.12
DOUBLE_BLINK_FRAMES: Final = 8

GLANCE_WINDOW: Final = 42  # 1.7 s
GLANCE_PLACES: Final = 36
GLANCE_S: Final = 0.07
GLANCE_AWAY_CHANCE: Final = 0.22

BREATH_S: Final = 3.9
YAW_PER_GAZE: Final = 0.436  # radians of eye turn at GAZE_X 1

_BLINK, _DOUBLE, _GLANCE, _AWAY, _GAZE_X, _GAZE_Y = range(1, 7)
_YAW, _PITCH, _ROLL, _X, _Y, _SMILE, _BROW, _BROW_SKEW, _BREATH, _TREMOR_X, _TREMOR_Y = range(7, 18)


def idle_frames(seed: int, first_frame: int, count: int) -> NDArray[np.float32]:
    """float32 [count, FACE_PARAMETERS], frames first_frame.. of the live with this seed."""
    frames = np.arange(first_frame, first_frame + count, dtype=np.int64)
    at_s = frames / FRAMES_PER_S
    face = np.zeros((count, FACE_PARAMETERS), np.float64)
    blink = blinks(seed, frames)
    face[:, Face.BLINK_LEFT] = blink
    face[:, Face.BLINK_RIGHT] = blink
    _head(seed, at_s, face)
    _gaze(seed, frames, face)
    breath = _breath(seed, at_s)
    face[:, Face.BREATH] = breath
    face[:, Face.HEAD_PITCH] -= 0.008 * (breath - 0.5)
    face[:, Face.HEAD_Y] += 0.006 * (breath - 0.5)
    smile = 0.14 + 0.08 * drift(seed, _SMILE, at_s, slowest_s=11.0, octaves=2)
    face[:, Face.SMILE] = smile
    face[:, Face.SQUINT] = np.clip(0.35 * smile, 0.0, 1.0)
    brow = 0.05 + 0.09 * drift(seed, _BROW, at_s, slowest_s=6.0, octaves=3)
    skew = 0.03 * drift(seed, _BROW_SKEW, at_s, slowest_s=9.0, octaves=2)
    face[:, Face.BROW_UP_LEFT] = brow + skew
    face[:, Face.BROW_UP_RIGHT] = brow - skew
    return face.astype(np.float32)


def blinks(seed: int, frames: Frames) -> Values:
    """0..1 for each frame. A closed eye always falls on a frame: 40 ms could step over it."""
    window = frames // BLINK_WINDOW
    lid = np.zeros(len(frames))
    for back in (-1, 0, 1):
        which = window + back
        place = np.floor(uniform(seed, _BLINK, which) * BLINK_PLACES).astype(np.int64)
        closed = which * BLINK_WINDOW + place
        lid = np.maximum(lid, _blink_at(frames - closed))
        twice = uniform(seed, _DOUBLE, which) < DOUBLE_BLINK_CHANCE
        lid = np.maximum(lid, twice * 0.9 * _blink_at(frames - closed - DOUBLE_BLINK_FRAMES))
    return lid


def _blink_at(since_closed: Frames) -> Values:
    shape = np.array((0.0, *BLINK_SHAPE, 0.0))
    return shape[np.clip(since_closed + 2, 0, len(shape) - 1)]


def _head(seed: int, at_s: Values, face: Values) -> None:
    face[:, Face.HEAD_YAW] = 0.055 * drift(seed, _YAW, at_s, slowest_s=7.3, octaves=4)
    face[:, Face.HEAD_PITCH] = 0.032 * drift(seed, _PITCH, at_s, slowest_s=6.1, octaves=4)
    face[:, Face.HEAD_ROLL] = 0.030 * drift(seed, _ROLL, at_s, slowest_s=8.9, octaves=4)
    face[:, Face.HEAD_X] = 0.020 * drift(seed, _X, at_s, slowest_s=9.7, octaves=3)
    face[:, Face.HEAD_Y] = 0.010 * drift(seed, _Y, at_s, slowest_s=8.1, octaves=3)


def _gaze(seed: int, frames: Frames, face: Values) -> None:
    """Glances between points near the viewer, some aside; the eyes make up for the head's turn."""
    window = frames // GLANCE_WINDOW
    start = window * GLANCE_WINDOW + uniform(seed, _GLANCE, window) * GLANCE_PLACES
    turned = smooth((frames - start) / (GLANCE_S * FRAMES_PER_S))
    for channel, parameter, near, far in (
        (_GAZE_X, Face.GAZE_X, 0.05, 0.45),
        (_GAZE_Y, Face.GAZE_Y, 0.04, 0.22),
    ):
        before = _target(seed, channel, window - 1, near, far)
        after = _target(seed, channel, window, near, far)
        face[:, parameter] = before + (after - before) * turned
    at_s = frames / FRAMES_PER_S
    face[:, Face.GAZE_X] += 0.010 * drift(seed, _TREMOR_X, at_s, slowest_s=0.7, octaves=2)
    face[:, Face.GAZE_Y] += 0.008 * drift(seed, _TREMOR_Y, at_s, slowest_s=0.6, octaves=2)
    face[:, Face.GAZE_X] -= 0.8 * face[:, Face.HEAD_YAW] / YAW_PER_GAZE
    face[:, Face.GAZE_Y] += 0.8 * face[:, Face.HEAD_PITCH] / YAW_PER_GAZE


def _target(seed: int, channel: int, window: Frames, near: float, far: float) -> Values:
    away = uniform(seed, _AWAY, window) < GLANCE_AWAY_CHANCE
    return np.where(away, far, near) * (2.0 * uniform(seed, channel, window) - 1.0)


def _breath(seed: int, at_s: Values) -> Values:
    """In quicker than out, its pace wandering by a fifth."""
    turns = at_s / BREATH_S + 0.35 * drift(seed, _BREATH, at_s, slowest_s=13.0, octaves=2)
    phase = turns - np.floor(turns)
    return np.where(phase < 0.42, smooth(phase / 0.42), 1.0 - smooth((phase - 0.42) / 0.58))
