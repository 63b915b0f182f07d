"""Text into segments: where it is cut, and that nothing is lost whatever way it arrives."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.segmenter import Cut, Segmenter, SegmenterLimits, TextMissing, cut_text
from controller.sentence_ends import SegmenterLimits as Limits
from schemas.store_values import SegmentBounds

LIMITS = SegmenterLimits()


def cut_whole(text: str, *, first: bool = False) -> list[str]:
    segmenter = Segmenter(LIMITS, first_of_turn=first)
    return [cut.text for cut in (*segmenter.feed(0, text, 0), *segmenter.end_turn())]


@pytest.mark.parametrize(
    ("text", "segments"),
    [
        ("One. Two! Three? Four", ["One. ", "Two! ", "Three? ", "Four"]),
        ("Dr. Smith met Mr. J. R. Jones.", ["Dr. Smith met Mr. J. R. Jones."]),
        ("It was I. Then we left.", ["It was I. ", "Then we left."]),
        ("Pi is 3.14 and e is 2.71. Fine.", ["Pi is 3.14 and e is 2.71. ", "Fine."]),
        ("Well... maybe. Well... Maybe.", ["Well... maybe. ", "Well... ", "Maybe."]),
        ('"Yes!" he said.', ['"Yes!" ', "he said."]),
        ("What?! No. What?No", ["What?! ", "No. ", "What?", "No"]),
        ("e.g. this, i.e. that. Done.", ["e.g. this, i.e. that. ", "Done."]),
        ("See example.com now. Ok.", ["See example.com now. ", "Ok."]),
        ("你好。再见！好吗？", ["你好。", "再见！", "好吗？"]),
        ("彼は「はい。」と言った。", ["彼は「はい。」", "と言った。"]),
        ("1. First. 2. Second.", ["1. First. ", "2. Second."]),
        ("A title\n\nThe text", ["A title\n\n", "The text"]),
        ("Items:\n- one\n- two", ["Items:\n", "- one\n", "- two"]),
        ("A line\nthat was wrapped.", ["A line\nthat was wrapped."]),
        ("...", ["..."]),
        ("   ", ["   "]),
    ],
)
def test_sentences(text: str, segments: list[str]) -> None:
    assert cut_whole(text) == segments


def test_the_first_segment_of_a_turn_ends_at_a_clause_when_it_grows_long() -> None:
    text = "I would like to tell you, my dear friend, that the ship we waited for has come in."
    first, *rest = cut_whole(text, first=True)
    assert first == "I would like to tell you, my dear friend, "
    assert rest == ["that the ship we waited for has come in."]
    assert cut_whole(text) == [text], "later segments are whole sentences"


def test_a_sentence_without_end_is_cut_at_the_hard_maximum() -> None:
    for text in ("word " * 200, "x" * 1000, "clause one, " * 100):
        segments = cut_whole(text)
        assert "".join(segments) == text
        assert max(map(len, segments)) <= LIMITS.chars_max
        assert min(map(len, segments[:-1])) >= (LIMITS.chars_max - 48) // 2
    assert all(one.endswith(", ") for one in cut_whole("clause one, " * 100))
    assert all(one.endswith("word ") for one in cut_whole("word " * 200))


def test_a_cut_never_parts_what_is_drawn_as_one() -> None:
    for segment in cut_whole("e\u0301" * 600):
        assert not segment.startswith("\u0301")


def test_text_is_flushed_when_nothing_comes() -> None:
    segmenter = Segmenter(LIMITS)
    assert segmenter.feed(0, "Half a sent", 1000) == []
    assert segmenter.deadline_ms == 1000 + LIMITS.quiet_ms
    assert segmenter.due(1399) == []
    assert [cut.text for cut in segmenter.due(1400)] == ["Half a sent"]
    assert segmenter.deadline_ms is None


def test_a_finished_sentence_waits_only_for_what_may_belong_to_it() -> None:
    segmenter = Segmenter(LIMITS)
    assert segmenter.feed(0, "Hello.", 0) == []
    assert segmenter.deadline_ms == LIMITS.settled_ms
    segmenter.feed(1, " Mr.", 10)
    assert segmenter.deadline_ms == 10 + LIMITS.quiet_ms


def test_white_space_is_cut_but_not_spoken() -> None:
    segmenter = Segmenter(LIMITS)
    (cut,) = segmenter.feed(0, "Hello. ", 0)
    assert cut.whole
    segmenter.feed(1, "  ", 10)
    (blank,) = segmenter.due(1000)
    assert not blank.speak
    assert blank.whole
    assert blank.bounds == SegmentBounds(1, 0, 1, 2)


def test_the_end_of_a_turn_marks_its_last_segment() -> None:
    segmenter = Segmenter(LIMITS)
    cuts = [*segmenter.feed(0, "One. Two", 0), *segmenter.end_turn()]
    assert [cut.ends_turn for cut in cuts] == [False, True]


TEXTS = st.lists(
    st.text(st.sampled_from(list("ab .,!?\n\"'…。，1\u0301Z")), min_size=1, max_size=400)
    | st.text(min_size=1, max_size=60),
    min_size=1,
    max_size=30,
)


def tile(cuts: list[Cut], texts: list[str], offsets: list[int]) -> None:
    """The bounds tile the stream exactly, and each makes its text again."""
    stream = list(zip(offsets, texts, strict=True))
    place = {offset: sum(len(text) for text in texts[:at]) for at, offset in enumerate(offsets)}
    at = 0
    for cut in cuts:
        bounds = cut.bounds
        assert place[bounds.start_offset] + bounds.start_char == at
        at = place[bounds.end_offset] + bounds.end_char
        assert bounds.end_char > 0
        assert cut_text(stream, bounds) == cut.text
        whole = bounds.end_char == len(texts[offsets.index(bounds.end_offset)])
        assert cut.whole == whole
        assert 0 < len(cut.text) <= LIMITS.chars_max
    assert at == sum(map(len, texts))


@given(texts=TEXTS, first=st.booleans(), stops=st.sets(st.integers(0, 29)))
def test_segments_tile_the_stream(texts: list[str], first: bool, stops: set[int]) -> None:
    segmenter = Segmenter(LIMITS, first_of_turn=first)
    cuts: list[Cut] = []
    offsets = [3 * number + 7 for number in range(len(texts))]
    for number, (offset, text) in enumerate(zip(offsets, texts, strict=True)):
        cuts += segmenter.feed(offset, text, number)
        if number in stops:
            cuts += segmenter.flush()
    cuts += segmenter.end_turn()
    assert "".join(cut.text for cut in cuts) == "".join(texts)
    tile(cuts, texts, offsets)


@given(texts=TEXTS, sizes=st.lists(st.integers(1, 50), min_size=1, max_size=20))
def test_where_text_is_cut_does_not_depend_on_how_it_arrives(
    texts: list[str], sizes: list[int]
) -> None:
    text = "".join(texts)
    whole = cut_whole(text)
    segmenter = Segmenter(LIMITS, first_of_turn=False)
    cuts: list[Cut] = []
    at = number = 0
    while at < len(text):
        size = sizes[number % len(sizes)]
        cuts += segmenter.feed(number, text[at : at + size], 0)
        at, number = at + size, number + 1
    cuts += segmenter.end_turn()
    # White space behind a cut may go with it or lead the next one; what is said is the same.
    said = [cut.text.strip() for cut in cuts if cut.text.strip()]
    assert said == [one.strip() for one in whole if one.strip()]


@given(texts=TEXTS)
def test_the_same_records_give_the_same_segments(texts: list[str]) -> None:
    def run() -> list[Cut]:
        segmenter = Segmenter(LIMITS)
        fed = [cut for at, text in enumerate(texts) for cut in segmenter.feed(at, text, at)]
        return fed + segmenter.end_turn()

    assert run() == run()


def test_a_rest_goes_on_from_its_character() -> None:
    segmenter = Segmenter(LIMITS)
    (cut, *_) = [*segmenter.feed(5, "One. Two. ", 0, from_char=5), *segmenter.end_turn()]
    assert cut.text == "Two. "
    assert cut.bounds == SegmentBounds(5, 5, 5, 10)


def test_a_segment_whose_record_is_gone_is_missing() -> None:
    bounds = SegmentBounds(1, 0, 3, 2)
    with pytest.raises(TextMissing):
        cut_text([(2, "b"), (3, "cc")], bounds)
    with pytest.raises(TextMissing):
        cut_text([(1, "a"), (2, "b")], bounds)
    assert cut_text([(0, "z"), (1, "a"), (3, "cc!"), (4, "y")], bounds) == "acc"


def test_the_work_grows_with_the_text_and_not_faster() -> None:
    def cost(text: str) -> float:
        best = 1e9
        for _ in range(3):
            begin_s = time.process_time()
            segmenter = Segmenter(LIMITS)
            for at in range(0, len(text), 16_000):
                segmenter.feed(at, text[at : at + 16_000], 0)
            best = min(best, time.process_time() - begin_s)
        return best

    for unit in ("a", "a ", ", ", "...", '."', "\n", "a, "):
        small, large = unit * (8_000 // len(unit)), unit * (64_000 // len(unit))
        assert cost(large) < 30 * max(cost(small), 1e-4), unit


def test_limits_stand_in_one_place() -> None:
    assert SegmenterLimits is Limits


@given(texts=TEXTS, first=st.booleans(), sizes=st.lists(st.integers(1, 9), min_size=1))
def test_records_looked_at_together_are_cut_as_one_by_one(
    texts: list[str], first: bool, sizes: list[int]
) -> None:
    singly, together = (Segmenter(LIMITS, first_of_turn=first) for _ in range(2))
    records = [(offset, text, f"event-{offset}") for offset, text in enumerate(texts) if text]
    one = [cut for at, text, name in records for cut in singly.feed(at, text, 7, name)]
    many: list[Cut] = []
    left, turn = records, 0
    while left:
        size = sizes[turn % len(sizes)]
        many += together.feed_all(left[:size], 7)
        left, turn = left[size:], turn + 1
    assert many == one
    assert (together.open_chars, together.deadline_ms) == (singly.open_chars, singly.deadline_ms)
