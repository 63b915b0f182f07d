"""Against the sound itself: the phoneme table says when a sound is heard, to a few milliseconds."""

import numpy as np
import pytest

from gpu_stages.face.phonemes import VOWELS, visemes_of
from gpu_stages.speech.synthesis import plan, speak_all
from gpu_stages.speech.voice_model import VoiceModel
from gpu_stages.speech.voice_parts import VoiceParts
from gpu_stages.speech.voices import find_voice

SENTENCES = [
    "Peter Piper picked a peck of pickled peppers.",
    "Mama baked a big apple pie for my brother Bob.",
    "The museum opens at nine in the morning and closes at six.",
    "Please remember to bring your passport, because the system asks for it.",
    "Fish swim in the sea and birds sing in the trees.",
    "Could you pass me the map of the campus, please?",
]
HOP = 120  # 5 ms
LAGS = range(-30, 31)


@pytest.fixture(scope="module")
def voices() -> list[VoiceParts]:
    model = VoiceModel(find_voice("heart"))
    return [
        piece
        for text in SENTENCES
        for _, piece in speak_all(model, plan(model, text, speed=1.0, seed=2))
    ]


def spectrum(pcm: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Power per 5 ms, [frames, bins], and the bins' frequencies."""
    padded = np.pad(pcm.astype(float) / 32768, 240)
    frames = np.lib.stride_tricks.sliding_window_view(padded, 480)[::HOP][: len(pcm) // HOP]
    return np.abs(np.fft.rfft(frames * np.hanning(480))) ** 2, np.fft.rfftfreq(480, 1 / 24_000)


def said(voice: VoiceParts, phonemes: set[int]) -> np.ndarray:
    """1 for each 5 ms in which one of these phonemes is said, by the table."""
    out = np.zeros(len(voice.pcm) // HOP)
    for row in voice.phonemes:
        if int(row["phoneme"]) in phonemes:
            out[row["start"] // HOP : row["end"] // HOP] = 1.0
    return out


def best_lag_ms(voices: list[VoiceParts], signal: str, phonemes: set[int]) -> float:
    """How much later the sound is than the table, where the two fit best."""
    found = np.zeros(len(LAGS))
    for voice in voices:
        power, hz = spectrum(voice.pcm)
        band = {"voiced": (hz > 200) & (hz < 3000), "sibilant": hz > 4500, "closed": hz > 0}[signal]
        level = np.log10(power[:, band].sum(axis=1) + 1e-3)
        level = -level if signal == "closed" else level
        inside = slice(30, int(voice.phonemes["end"][-1]) // HOP - 30)
        level = level[inside] - level[inside].mean()
        mark = said(voice, phonemes)
        mark -= mark.mean()
        found += [np.dot(np.roll(mark, lag)[inside], level) for lag in LAGS]
    return 5.0 * LAGS[int(found.argmax())]


@pytest.mark.parametrize(
    ("signal", "phonemes"),
    [
        ("voiced", {c for c in range(0x41, 0x2A0) if visemes_of(c)[0] in VOWELS}),
        ("sibilant", set(map(ord, "szʃʒʧʤ"))),
        ("closed", set(map(ord, "pbtkdɡ"))),
    ],
)
def test_a_sound_is_heard_when_the_table_says(
    voices: list[VoiceParts], signal: str, phonemes: set[int]
) -> None:
    assert abs(best_lag_ms(voices, signal, phonemes)) <= 20, "milliseconds"


def test_lips_are_quiet_when_they_are_closed(voices: list[VoiceParts]) -> None:
    """In most p, b between vowels there is a moment at least 10 dB below the loudest around it."""
    depths: list[float] = []
    for voice in voices:
        power, _ = spectrum(voice.pcm)
        level = 10 * np.log10(power.sum(axis=1) + 1e-6)
        for row in voice.phonemes[3:-3]:
            if int(row["phoneme"]) in (ord("p"), ord("b")):
                first, last = row["start"] // HOP, row["end"] // HOP
                around = level[max(0, first - 20) : last + 20].max()
                depths.append(float(around - level[first - 4 : last].min()))
    assert len(depths) > 10
    assert np.median(depths) > 15
    assert np.mean(np.array(depths) > 10) > 0.8
