"""Words, their times, and the subtitles that are made of them."""

import numpy as np
import pytest

from dhsched.offline.subtitles import Spoken, cues_of
from dhsched.offline.word_times import Word, spoken_words, words_of
from gpu_stages.speech.voice_parts import PHONEME_DTYPE


def table(sounds: str, each: int = 2_400) -> np.ndarray:
    """One sound of 100 ms for each sign."""
    rows = [(at * each, (at + 1) * each, ord(sign), 0, 0) for at, sign in enumerate(sounds)]
    return np.array(rows, PHONEME_DTYPE)


def test_words_are_what_lies_between_spaces_and_marks_are_silent() -> None:
    assert spoken_words(table("həlˈoʊ, ðˈɛr")) == [(0, 14_400), (19_200, 28_800)]


def test_as_many_words_as_sounds_are_the_same_words() -> None:
    assert words_of("Hello, there", table("hElo, DEr")) == [
        Word("Hello,", 0, 9_600),
        Word("there", 14_400, 21_600),
    ]


def test_a_dash_takes_no_time() -> None:
    words = words_of("one - two", table("wan tu"))
    assert [word.text for word in words] == ["one", "-", "two"]
    assert (words[1].start, words[1].end) == (7_200, 7_200)
    assert words[2].start == 9_600


@pytest.mark.parametrize("text", ["42 apples", "apples 42", "In 1999, e.g., it rained."])
def test_figures_keep_all_words_in_order(text: str) -> None:
    words = words_of(text, table("foti tu apolz an ten"))
    assert [word.text for word in words] == text.split()
    starts = [word.start for word in words]
    assert starts == sorted(starts)
    assert all(word.start <= word.end for word in words)


def test_a_figure_covers_the_words_it_is_read_as() -> None:
    first, second = words_of("42 apples", table("foti tu apols"))
    assert (first.start, first.end) == (0, 7 * 2_400)
    assert (second.start, second.end) == (8 * 2_400, 13 * 2_400)


def test_nothing_spoken_has_no_times() -> None:
    assert words_of("...", table("")) == [Word("...", 0, 0)]
    assert words_of("", table("a")) == []


def test_a_cue_has_a_time_for_each_word() -> None:
    words = [Word("Hello", 0, 12_000), Word("there.", 12_000, 24_000)]
    assert cues_of(Spoken(61_000, 24_000, words)) == (
        "\n00:01:01.000 --> 00:01:02.000\nHello <00:01:01.500>there.\n"
    )


def test_what_was_cut_off_is_not_written() -> None:
    words = [Word("Hello", 0, 12_000), Word("there.", 12_000, 24_000), Word("You", 24_000, 36_000)]
    cue = cues_of(Spoken(0, 18_000, words))
    assert "You" not in cue
    assert "--> 00:00:00.750" in cue


def test_long_segments_are_cut_into_screens_of_two_lines() -> None:
    words = [Word(f"word{at:02}", at * 2_400, (at + 1) * 2_400) for at in range(20)]
    cues = cues_of(Spoken(0, 48_000, words)).strip().split("\n\n")
    assert len(cues) == 2
    assert all(cue.count("\n") <= 2 for cue in cues)


def test_signs_of_the_format_are_escaped() -> None:
    assert "&lt;b&gt; &amp;" in cues_of(Spoken(0, 100, [Word("<b> &", 0, 100)]))
