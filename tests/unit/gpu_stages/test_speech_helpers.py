"""The pure parts of speech: pieces, table, levels, and text that nobody foresaw."""

import time

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpu_stages.speech import levels
from gpu_stages.speech.pieces import PIECE_PHONEMES_MAX, PauseMs, pause_after, pieces_of
from gpu_stages.speech.reading import plain, readable
from gpu_stages.speech.synthesis import LEAD_IN_SAMPLES, plan, speak_piece
from gpu_stages.speech.timeline import DURATIONS_LATE_SAMPLES, phoneme_table, until
from gpu_stages.speech.voice_model import VoiceModel, VoiceModelChanged, with_durations
from gpu_stages.speech.voices import find_voice


@pytest.fixture(scope="module")
def model() -> VoiceModel:
    return VoiceModel(find_voice("heart"))


@pytest.mark.parametrize(
    ("phonemes", "pause"),
    [
        ("həlˈO.", PauseMs.SENTENCE),
        ("həlˈO?”", PauseMs.SENTENCE),
        ("həlˈO,", PauseMs.CLAUSE),
        ("həlˈO — ", PauseMs.CLAUSE),
        ("həlˈO", PauseMs.NONE),
        ("", PauseMs.NONE),
    ],
)
def test_the_pause_is_told_by_the_punctuation(phonemes: str, pause: PauseMs) -> None:
    assert pause_after(phonemes) is pause


def test_pieces_are_cut_at_clauses_then_words_then_anywhere() -> None:
    clause = "a" * 150 + ", " + "b" * 250
    assert [len(piece.phonemes) for piece in pieces_of([clause])] == [151, 250]
    words = " ".join(["abcde"] * 100)
    cut = pieces_of([words])
    assert " ".join(piece.phonemes for piece in cut) == words
    endless = pieces_of(["a" * 1000])
    assert [len(piece.phonemes) for piece in endless] == [300, 300, 300, 100]
    assert all(len(p.phonemes) <= PIECE_PHONEMES_MAX for p in cut + endless)
    assert pieces_of(["...", "", " ! "]) == []


def test_the_table_joins_stress_and_length_marks_to_their_vowel() -> None:
    symbols = [" ", "t", "ˈ", "i", "ː", "n", ".", " "]
    table = phoneme_table(symbols, np.array([4, 2, 1, 2, 1, 2, 3, 1]), 16 * 600)
    assert [chr(code) for code in table["phoneme"]] == [" ", "t", "i", "n", ".", " "]
    assert table["stress"].tolist() == [0, 0, 2, 0, 0, 0]
    late = DURATIONS_LATE_SAMPLES
    assert table["start"].tolist() == [0, 2400 - late, 3600 - late, 6000 - late, 7200 - late, 7740]
    assert table["end"][2] == 6000 - late
    assert table["end"][-1] == 16 * 600
    assert until(table, 4000)["end"].max() == 4000
    with pytest.raises(ValueError, match="durations"):
        phoneme_table(symbols, np.array([4, 2, 1, 2, 1, 2, 3, 2]), 16 * 600)


def test_the_limiter_keeps_the_ceiling_without_tearing_the_wave() -> None:
    at = np.arange(24_000) / 24_000
    swell = np.sin(2 * np.pi * 150 * at) * (0.3 + 0.5 * np.exp(-(((at - 0.5) / 0.05) ** 2)))
    out = levels.limited(swell.astype(np.float32))
    assert np.abs(out).max() <= levels.CEILING + 1e-6
    assert np.abs(out).max() > 0.8
    assert np.allclose(out[:6000], swell[:6000] * levels.GAIN, atol=1e-6), "quiet parts untouched"
    spectrum = np.abs(np.fft.rfft(out * np.hanning(len(out)))) ** 2
    assert spectrum[1500:].sum() / spectrum.sum() < 1e-6, "no distortion far above the tone"
    assert np.array_equal(levels.limited(swell.astype("f4") * 0.1), swell.astype("f4") * 0.1 * 1.8)


def test_fades_reach_nothing_at_both_ends() -> None:
    ones = np.ones(2400, np.float32)
    both = levels.faded(ones)
    assert both[0] < 1e-3
    assert both[-1] < 1e-3
    assert (both[120:-120] == 1.0).all()
    assert (np.diff(both[:120]) > 0).all()
    assert levels.faded(ones, front=False)[0] == 1.0
    assert levels.faded(ones, back=False)[-1] == 1.0
    assert len(levels.faded(np.zeros(0, np.float32))) == 0
    assert len(levels.faded(np.ones(7, np.float32))) == 7


def test_what_can_be_heard_is_found() -> None:
    wave = np.zeros(9600, np.float32)
    assert levels.audible_span(wave) == (0, 0)
    wave[2400:4800] = 0.1
    assert levels.audible_span(wave) == (2400, 4800)


@pytest.mark.parametrize("text", ["Hello there.", "Five boats.", "Hush!", "Peter is here."])
def test_speech_begins_at_once(model: VoiceModel, text: str) -> None:
    """The first sound is the latency of the whole system: no silence may stand before it."""
    piece = speak_piece(model, plan(model, text, speed=1.0, seed=1), 0)
    heard = np.flatnonzero(np.abs(piece.pcm.astype(int)) > 300)
    assert heard[0] < LEAD_IN_SAMPLES + 24 * 40
    assert len(piece.pcm) - heard[-1] < 24 * (40 + 100 + PauseMs.SENTENCE + 40)


def test_another_model_is_refused() -> None:
    import onnx

    empty = onnx.helper.make_model(onnx.helper.make_graph([], "none", [], []))
    with pytest.raises(VoiceModelChanged, match="hibari-tts"):
        with_durations(empty.SerializeToString())


def test_a_text_full_of_everything_is_read_in_time(model: VoiceModel) -> None:
    awkward = [
        "x" * 4000,
        "1" * 400,
        "1" * 5000,
        "9,999,999,999,999,999,999,999,999.99",
        "$" + "7" * 60 + " or " + "8" * 30 + "th",
        "12" * 8 + "s and 1/" + "3" * 50,
        "a" * 50 + "1.2.3" * 50,
        "[a](/b/) [c](d) ((((((" * 40,
        "don't'''''''''" * 100,
        "Ünïcödé 你好 мир 🙂 ﷽ " * 50,
        "$9.99.99,000,000 -- %% @@ ### " * 30,
        "12İstanbul |İ$",
        "\u202e\u0301\ufffd\U000e0001 word",
    ]
    for text in awkward:
        began = time.process_time()
        made = plan(model, text, speed=1.0, seed=0)
        assert time.process_time() - began < 5.0, text[:20]
        assert all(len(piece.phonemes) <= PIECE_PHONEMES_MAX for piece in made.pieces)


def test_long_numbers_are_spelt_and_short_ones_are_not() -> None:
    assert readable("call 1234567890123456 now") == "call 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 now"
    assert readable("1,250,000.50 in 2024, 30 000") == "1,250,000.50 in 2024, 30 000"
    assert readable("wo\u200brd\x07") == "word"
    assert max(map(len, readable("a" * 100).split())) == 40
    assert plain("<b>5% of €12_3</b>") == "b 5 of 1 2 3 b"
    assert plain("İstanbul é") == "Istanbul e"


class Tripping:
    """A lexicon that cannot read figures."""

    def __call__(self, text: str) -> str:
        if "%" in text:
            raise IndexError("list index out of range")
        return text


def test_what_the_lexicon_cannot_read_is_read_plainly(model: VoiceModel) -> None:
    lexicon, model._lexicon = model._lexicon, Tripping()
    try:
        assert model.phonemes("ten % of it. And then.") == ["ten of it.", "And then."]
    finally:
        model._lexicon = lexicon


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(text=st.text(max_size=60))
def test_any_text_can_be_planned(model: VoiceModel, text: str) -> None:
    for piece in plan(model, text, speed=1.0, seed=0).pieces:
        assert 0 < len(piece.phonemes) <= PIECE_PHONEMES_MAX
