"""Mouth and sound stay together: at most 40 ms apart, over minutes, by time stamps and by content.

The long run with pictures is `python -m tests.bench --only sync` (row `av_skew_ms`).
"""

from dataclasses import replace

import numpy as np
import pytest

from schemas.media import FRAMES_PER_S, TICK_SAMPLES
from tests.support.av_sync import Spoken, mouth_lag_ms, skew, speak

SKEW_MS_MAX = 40


@pytest.fixture(scope="module")
def half_a_minute() -> Spoken:
    return speak(30, size_px=96)


def test_in_what_a_viewer_gets_mouth_and_sound_are_together(half_a_minute: Spoken) -> None:
    seen = skew(half_a_minute, stretch_s=15)
    assert len(seen.mouth_ms) >= 2
    assert seen.pts_ms < 1, "a picture has the presentation time of its samples"
    assert max(map(abs, seen.sound_ms)) <= 7, "what Opus delays by"
    assert seen.worst_ms <= SKEW_MS_MAX


@pytest.mark.parametrize("ticks", [-2, 2])
def test_a_shift_would_be_seen(half_a_minute: Spoken, ticks: int) -> None:
    """The voice given as if it had been made two ticks earlier or later than it was."""
    shift = ticks * TICK_SAMPLES
    at = [(start + shift, end + shift) for start, end in half_a_minute.closed]
    assert skew(replace(half_a_minute, closed=at), stretch_s=30).worst_ms > SKEW_MS_MAX


def test_over_ten_minutes_nothing_drifts() -> None:
    """Every tick of ten minutes, without drawing them: no sample is lost or doubled, and the lips
    close where the voice does, in the last minute as in the first."""
    spoken = speak(600)
    assert spoken.seconds >= 600
    assert all(len(pcm) == TICK_SAMPLES for pcm in spoken.pcm)
    lags = [
        mouth_lag_ms(spoken.faces, spoken.closed, minute * 60.0, minute * 60.0 + 60)
        for minute in range(10)
    ]
    assert max(map(abs, lags)) <= SKEW_MS_MAX
    assert max(lags) - min(lags) <= 10
    voiced = np.concatenate(spoken.pcm).reshape(-1, TICK_SAMPLES).any(axis=1)
    assert voiced.sum() > 400 * FRAMES_PER_S, "it speaks most of the time"
