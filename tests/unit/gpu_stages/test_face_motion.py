"""The face: lips that really meet, a face that never jumps, blinks that look like blinks."""

import numpy as np
import pytest

from gpu_stages.face.coarticulation import (
    HOLD_S_MIN,
    LOOK_SAMPLES,
    Spans,
    held_interval,
    mouth_curve,
)
from gpu_stages.face.idle_life import idle_frames
from gpu_stages.face.noise import drift, uniform
from gpu_stages.face.parameters import FACE_PARAMETERS, Face
from gpu_stages.face.phonemes import OPEN_VOWELS, VOWELS, Viseme, visemes_of
from gpu_stages.face.visemes import INSISTENCE, MOUTH_PARAMETERS, TARGETS
from gpu_stages.face.voiced import SETTLE_TICKS, Settling, voiced_curve
from gpu_stages.speech.voice_parts import PHONEME_DTYPE
from schemas.media import SAMPLE_RATE_HZ, TICK_SAMPLES

HOUR = 25 * 3600


def table(*rows: tuple[str, float, float]) -> np.ndarray:
    """A phoneme table from (phoneme, start in s, end in s); a capital vowel mark stresses."""
    return np.array(
        [(int(start * 24_000), int(end * 24_000), ord(p), 2, 0) for p, start, end in rows],
        PHONEME_DTYPE,
    )


def spoken(*phonemes: str, each_s: float = 0.08, at_s: float = 0.1) -> np.ndarray:
    return table(*((p, at_s + i * each_s, at_s + (i + 1) * each_s) for i, p in enumerate(phonemes)))


def curve(phonemes: np.ndarray, ticks: int = 40) -> np.ndarray:
    look_s = (np.arange(ticks) * TICK_SAMPLES + LOOK_SAMPLES) / SAMPLE_RATE_HZ
    return mouth_curve(Spans(phonemes), np.ones(ticks), look_s)


def fine_curve(phonemes: np.ndarray, step_s: float = 0.005, length_s: float = 1.5) -> np.ndarray:
    look_s = np.arange(0, length_s, step_s)
    return mouth_curve(Spans(phonemes), np.ones(len(look_s)), look_s)


def test_every_phoneme_of_the_voice_has_a_viseme() -> None:
    import json
    from pathlib import Path

    from hibari.tts import ASSETS

    vocabulary = json.loads((Path(ASSETS) / "vocab.json").read_text(encoding="utf-8"))
    silent = {s for s in vocabulary if visemes_of(ord(s)) == (Viseme.REST,)}
    assert silent == set(';:,.!?—…"()“” ̃ᵝꭧˈˌːʰʲ↓→↗↘')
    assert TARGETS.shape == INSISTENCE.shape == (len(Viseme), MOUTH_PARAMETERS)
    assert ((TARGETS >= 0) & (TARGETS <= 1) & (INSISTENCE >= 0) & (INSISTENCE <= 1)).all()


@pytest.mark.parametrize("offset_ms", range(0, 40, 5))
@pytest.mark.parametrize("consonant", ["p", "b", "m"])
def test_lips_meet_in_a_frame_wherever_the_ticks_fall(consonant: str, offset_ms: int) -> None:
    at = 0.1 + offset_ms / 1000
    mouth = curve(spoken("ɑ", consonant, "ɑ", at_s=at))
    closed = mouth[:, Face.LIPS_CLOSED]
    assert closed.max() >= 0.999
    assert mouth[closed.argmax(), Face.JAW_OPEN] < 0.35
    assert mouth[closed.argmax(), Face.LIP_LOWER_DROP] < 0.01


@pytest.mark.parametrize(("short_s", "wide"), [(0.01, True), (0.2, False)])
def test_a_hold_is_never_shorter_than_a_tick(short_s: float, wide: bool) -> None:
    begin, end = held_interval(np.array([1.0]), np.array([1.0 + short_s]))
    assert end[0] - begin[0] == pytest.approx(HOLD_S_MIN if wide else short_s)
    assert HOLD_S_MIN > TICK_SAMPLES / SAMPLE_RATE_HZ


@pytest.mark.parametrize("vowel", [v for v in "ɑæʌɛɔ"])
def test_open_vowels_are_open_between_closures(vowel: str) -> None:
    assert visemes_of(ord(vowel))[0] in OPEN_VOWELS
    phonemes = table(("m", 0.1, 0.18), (vowel, 0.18, 0.30), ("m", 0.30, 0.38))
    mouth = fine_curve(phonemes)
    middle = int(0.24 / 0.005)
    assert mouth[middle, Face.LIPS_CLOSED] < 0.05
    assert mouth[middle, Face.JAW_OPEN] > 0.25
    assert mouth[int(0.14 / 0.005), Face.JAW_OPEN] < 0.5 * mouth[middle, Face.JAW_OPEN]


def test_f_tucks_th_shows_the_tongue_and_vowels_have_their_shape() -> None:
    middle = int(0.14 / 0.005)
    assert fine_curve(spoken("f"))[middle, Face.LIP_LOWER_TUCK] > 0.99
    assert fine_curve(spoken("θ"))[middle, Face.TONGUE_OUT] > 0.99
    assert fine_curve(spoken("u"))[middle, Face.LIPS_ROUND] > 0.7
    assert fine_curve(spoken("i"))[middle, Face.LIPS_WIDE] > 0.6
    assert fine_curve(spoken("l"))[middle, Face.TONGUE_UP] > 0.8
    assert fine_curve(spoken("ɑ"))[middle, Face.JAW_OPEN] > 0.7


def test_lips_round_before_a_rounded_vowel_is_heard() -> None:
    rounded = fine_curve(table(("k", 0.2, 0.3), ("u", 0.3, 0.4)))
    spread = fine_curve(table(("k", 0.2, 0.3), ("i", 0.3, 0.4)))
    early = int(0.22 / 0.005)
    assert rounded[early, Face.LIPS_ROUND] > 0.3
    assert spread[early, Face.LIPS_WIDE] > 0.3
    assert spread[early, Face.LIPS_ROUND] < 0.05


def test_the_mouth_leads_the_sound_a_little() -> None:
    """A vowel out of silence: the jaw is half open 20 to 120 ms before the vowel's middle."""
    jaw = fine_curve(table(("ɑ", 0.5, 0.7)))[:, Face.JAW_OPEN]
    half_s = np.argmax(jaw > jaw.max() / 2) * 0.005
    assert 0.38 < half_s < 0.5


def test_a_pause_relaxes_and_a_gap_between_words_does_not() -> None:
    pause = fine_curve(table(("ɑ", 0.1, 0.2), (",", 0.2, 0.6), ("ɑ", 0.6, 0.7)))
    gap = fine_curve(table(("ɑ", 0.1, 0.2), (" ", 0.2, 0.25), ("ɑ", 0.25, 0.35)))
    assert pause[int(0.4 / 0.005), Face.JAW_OPEN] < 0.1
    assert gap[int(0.22 / 0.005), Face.JAW_OPEN] > 0.5


def test_the_mouth_does_not_jump_but_to_touch() -> None:
    rng = np.random.default_rng(1)
    letters = [chr(c) for c in range(ord("a"), 0x2A0) if visemes_of(c) != (Viseme.REST,)]
    for _ in range(30):
        picked = rng.choice(letters, 12)
        mouth = fine_curve(spoken(*picked, each_s=0.07), step_s=0.04)
        steps = np.abs(np.diff(mouth, axis=0)).max(axis=0)
        assert steps[Face.JAW_OPEN] < 0.6
        for parameter in (Face.LIPS_ROUND, Face.LIPS_WIDE):
            assert steps[parameter] < 0.5
        assert ((mouth >= 0) & (mouth <= 1)).all()


def test_settling_lets_go_smoothly_and_only_at_a_break() -> None:
    settling = Settling()
    open_mouth = np.zeros(FACE_PARAMETERS, np.float32)
    open_mouth[Face.JAW_OPEN] = 0.9
    rest = np.zeros(FACE_PARAMETERS, np.float32)
    assert settling.step(1, open_mouth)[Face.JAW_OPEN] == np.float32(0.9)
    jaw = [float(settling.step(0, rest)[Face.JAW_OPEN]) for _ in range(SETTLE_TICKS + 1)]
    assert jaw == sorted(jaw, reverse=True)
    assert jaw[0] > 0.6
    assert jaw[SETTLE_TICKS - 1] == 0.0
    closed = np.zeros(FACE_PARAMETERS, np.float32)
    closed[Face.LIPS_CLOSED] = 1.0
    assert settling.step(2, closed)[Face.LIPS_CLOSED] == 1.0, "a first p closes at once"


def test_emphasis_is_the_segments_own() -> None:
    phonemes = spoken(*"ɑtɑtɑtɑtɑtɑtɑt", each_s=0.15)
    loud = np.ones(300, np.float32)

    def made(seed: int, sample_start: int = 0, ticks: int = 50) -> np.ndarray:
        return voiced_curve(
            phonemes,
            loud,
            loudness_hop=240,
            sample_start=sample_start,
            ticks=ticks,
            seed=seed,
        )

    assert np.array_equal(made(1), made(1))
    assert not np.array_equal(made(1)[:, Face.HEAD_PITCH], made(2)[:, Face.HEAD_PITCH])
    assert max(np.abs(made(seed)[:, Face.HEAD_PITCH]).max() for seed in range(5)) > 0.02
    later = made(1, sample_start=10 * TICK_SAMPLES, ticks=40)
    assert np.allclose(later, made(1)[10:], atol=1e-6)


# ---- idle life


def idle(seed: int = 5, first: int = 0, count: int = HOUR) -> np.ndarray:
    return idle_frames(seed, first, count)


def test_idle_life_is_a_function_of_seed_and_frame() -> None:
    whole = idle(count=500)
    for first in (0, 1, 63, 137, 400):
        assert np.array_equal(idle(first=first, count=60), whole[first : first + 60])
    far = 10**9
    assert np.array_equal(idle(first=far, count=8)[3:], idle(first=far + 3, count=5))
    assert not np.array_equal(idle(seed=6, count=500), whole)


def test_idle_life_stays_in_range_and_never_jumps() -> None:
    face = idle()
    assert np.isfinite(face).all()
    assert (face[:, Face.BLINK_LEFT] >= 0).all()
    assert face.max() <= 1.0
    assert face.min() >= -1.0
    steps = np.abs(np.diff(face, axis=0)).max(axis=0)
    for parameter in (Face.HEAD_YAW, Face.HEAD_PITCH, Face.HEAD_ROLL):
        assert steps[parameter] < 0.012, "radians in a frame"
        assert 0.02 < np.abs(face[:, parameter]).max() < 0.2
    for parameter in (Face.SMILE, Face.BROW_UP_LEFT, Face.HEAD_X, Face.HEAD_Y, Face.SQUINT):
        assert steps[parameter] < 0.02
    assert steps[Face.BREATH] < 0.15
    assert not face[:, : Face.SMILE].any(), "the mouth is the voice's"


def test_blinks_come_irregularly_and_are_over_quickly() -> None:
    lid = idle()[:, Face.BLINK_LEFT]
    closed = np.flatnonzero((lid[1:-1] >= 0.9) & (lid[1:-1] >= lid[:-2]) & (lid[1:-1] > lid[2:]))
    gaps_s = np.diff(closed) / 25
    single = gaps_s[gaps_s > 0.5]
    assert 3.0 < np.median(single) < 6.0
    assert ((single > 2.5) & (single < 6.5)).mean() > 0.85
    assert single.std() > 0.7
    assert single.max() < 8.0
    assert 0.05 < (gaps_s < 0.5).mean() < 0.2, "some come twice"
    assert lid.max() == 1.0
    shut = lid > 0.05
    starts = np.flatnonzero(np.diff(shut.astype(int)) == 1)
    ends = np.flatnonzero(np.diff(shut.astype(int)) == -1)
    lengths = ends[: len(starts)] - starts[: len(ends)]
    assert lengths.max() <= 5, "frames"


def test_the_eyes_move_in_glances_and_rest_near_the_viewer() -> None:
    face = idle()
    gaze = face[:, Face.GAZE_X]
    steps = np.abs(np.diff(gaze))
    assert np.median(steps) < 0.01
    glances = np.count_nonzero(steps > 0.1)
    assert 400 < glances < 6000, "in an hour"
    looking = gaze + face[:, Face.HEAD_YAW] * 0.8 / 0.436
    assert (np.abs(looking) < 0.12).mean() > 0.7


def test_the_head_wanders_like_pink_noise_and_does_not_come_back() -> None:
    yaw = idle()[:, Face.HEAD_YAW].astype(float)
    spectrum = np.abs(np.fft.rfft((yaw - yaw.mean()) * np.hanning(len(yaw)))) ** 2
    hz = np.fft.rfftfreq(len(yaw), 0.04)
    bands = [spectrum[(hz >= low) & (hz < 2 * low)].sum() for low in (0.1, 0.2, 0.4, 0.8)]
    assert bands == sorted(bands, reverse=True)
    moved = yaw - yaw.mean()
    repeats = np.fft.irfft(np.abs(np.fft.rfft(moved, 2 * len(moved))) ** 2)
    repeats /= repeats[0]
    assert np.abs(repeats[25 * 30 : len(yaw) // 2]).max() < 0.2, "after half a minute it is new"


def test_noise_is_even_and_its_channels_are_strangers() -> None:
    index = np.arange(-20_000, 20_000)
    values = uniform(3, 4, index)
    assert values.min() >= 0.0
    assert values.max() < 1.0
    counts = np.histogram(values, 20, (0, 1))[0]
    assert np.abs(counts - 2000).max() < 250
    for other in (uniform(3, 5, index), uniform(4, 4, index), np.roll(values, 1)):
        assert abs(np.corrcoef(values, other)[0, 1]) < 0.03
    wander = drift(1, 2, np.arange(0, 4000, 0.04), slowest_s=6.0, octaves=4)
    assert abs(wander.mean()) < 0.1
    assert 0.2 < wander.std() < 0.9
    assert {viseme for viseme in VOWELS} >= OPEN_VOWELS
