"""What a survey says of a capture, and the steps it is played in."""

from dhsched.offline.entries import CapturedRecord
from dhsched.offline.schedule import (
    LEAD_IN_MS,
    CloseNow,
    Deliver,
    MoveOn,
    live_of,
    steps_of,
    survey,
)
from schemas.topics import TEXT_TOPIC
from tests.support.recordings import (
    BEGIN_MS,
    LIVE,
    SMALL,
    claimed,
    closed,
    in_order,
    moved,
    opened,
    record,
)

TEXTS = [
    opened(0),
    claimed(10, 1),
    record(4, 500, {"text": "One. "}),
    record(9, 3_000, {"text": "Two. "}),
]


def test_a_survey_counts_and_knows_the_options() -> None:
    found = survey([*TEXTS, record(3, 100, {"text": "Else."}, live="bert")])
    anna, bert = found.lives[LIVE], found.lives["bert"]
    assert (anna.records, anna.options, anna.moves) == (2, SMALL, 0)
    assert (anna.first_ms, anna.last_ms) == (BEGIN_MS + 500, BEGIN_MS + 3_000)
    assert (bert.records, bert.options) == (1, None)
    assert found.entries == 5


def test_only_one_live_is_looked_at_when_it_is_named() -> None:
    found = survey([*TEXTS, record(3, 100, {"text": "Else."}, live="bert")], only="bert")
    assert list(found.lives) == ["bert"]


def test_records_without_a_key_belong_to_nobody() -> None:
    keyless = CapturedRecord(TEXT_TOPIC, 0, 0, 0, None, b"{}")
    no_text = CapturedRecord(TEXT_TOPIC, 0, 1, 0, b"\xff", b"{}")
    assert live_of(keyless) is None
    assert live_of(no_text) is None
    assert survey([keyless, no_text]).foreign == 2


def test_the_film_begins_at_the_opening_or_shortly_before_the_first_word() -> None:
    assert survey(TEXTS).lives[LIVE].begins_ms == BEGIN_MS
    late = [opened(0), record(4, 60_000, {"text": "One. "})]
    assert survey(late).lives[LIVE].begins_ms == BEGIN_MS + 60_000 - LEAD_IN_MS
    unknown = survey([record(4, 60_000, {"text": "One. "})]).lives[LIVE]
    assert unknown.begins_ms == BEGIN_MS + 60_000 - LEAD_IN_MS


def test_a_record_that_comes_twice_is_taken_once() -> None:
    entries = [*TEXTS, record(9, 3_000, {"text": "Two. "})]
    live = survey(entries).lives[LIVE]
    assert (live.records, live.repeated, live.broken) == (2, 1, "")
    steps = list(steps_of(entries, live, ownership=False))
    assert [one.record.offset for one in steps if isinstance(one, Deliver)] == [4, 9]


def test_a_record_out_of_order_is_told() -> None:
    live = survey([*TEXTS, record(5, 3_500, {"text": "Late. "})]).lives[LIVE]
    assert "offset 5" in live.broken
    assert "after 9" in live.broken


def test_moves_are_steps_only_with_ownership() -> None:
    entries = in_order([*TEXTS, moved(900, 2), claimed(901, 2, 5), claimed(1_500, 3, 5)])
    live = survey(entries).lives[LIVE]
    assert live.moves == 2
    steps = list(steps_of(entries, live, ownership=True))
    moves = [one for one in steps if isinstance(one, MoveOn)]
    assert [(one.generation.epoch, one.handed_over) for one in moves] == [(2, True), (3, False)]
    assert [one.at_ms for one in moves] == [BEGIN_MS + 901, BEGIN_MS + 1_500]
    without = list(steps_of(entries, live, ownership=False))
    assert [type(one) for one in without] == [Deliver, Deliver]


def test_the_generation_that_had_the_live_at_the_beginning_is_no_move() -> None:
    entries = [claimed(-90_000, 6, 2), *TEXTS[2:], claimed(2_000, 6, 2)]
    live = survey(entries).lives[LIVE]
    assert live.moves == 0
    assert not [s for s in steps_of(entries, live, ownership=True) if isinstance(s, MoveOn)]


def test_time_never_goes_back() -> None:
    """Producers' clocks differ: a later offset may bear an earlier time."""
    entries = [record(1, 500, {"text": "a"}), record(2, 400, {"text": "b"})]
    live = survey(entries).lives[LIVE]
    assert [one.at_ms for one in steps_of(entries, live, ownership=True)] == [BEGIN_MS + 500] * 2


def test_a_live_that_was_closed_from_outside_is_closed_then() -> None:
    entries = [*TEXTS, closed(3_500, "requested")]
    steps = list(steps_of(entries, survey(entries).lives[LIVE], ownership=False))
    assert steps[-1] == CloseNow(BEGIN_MS + 3_500, "requested")
    by_record = [*TEXTS, closed(3_500, "close_record")]
    steps = list(steps_of(by_record, survey(by_record).lives[LIVE], ownership=False))
    assert not [one for one in steps if isinstance(one, CloseNow)]
