"""Deleted records, bad records and sound heard twice, on histories that were written by hand."""

from dataclasses import replace

import pytest

from tests.sim import history as h
from tests.sim.checkers import Invariant, check
from tests.sim.test_checkers import broken, good, place

TEXT = "a long one. "
SAMPLES = 4_800


# -- what retention deleted --------------------------------------------------------------------


def lost(*told: h.Entry) -> h.History:
    """The second record was deleted before the second owner read it; its cursor passed it."""
    history = good()
    for kind, number in ((h.Heard, 1), (h.Fed, 1)):
        del history[place(history, kind, number)]
    history[place(history, h.ProgressWritten, 2)] = h.ProgressWritten(9, 8, "q", "live", (), 0, -1)
    at = place(history, h.ReleaseAsked, 2)
    history[at:at] = [h.Truncated(8, 0, 2), *told]
    return history


LETTER = h.Lettered(8, 0, 1, "before_log_start", "live")


def test_what_was_deleted_may_be_missing_when_the_live_was_told() -> None:
    assert broken(lost(LETTER)) == set()


@pytest.mark.parametrize(
    "told",
    [
        (),
        (replace(LETTER, live_id=""),),
        (replace(LETTER, live_id="other"),),
        (replace(LETTER, offset=0),),
        (h.ErrorTold(8, "q", "live", 2, "text_lost"),),
    ],
    ids=["nobody", "everybody without an owner", "another", "not so far", "as released text"],
)
def test_a_silent_skip_is_seen(told: tuple[h.Entry, ...]) -> None:
    assert broken(lost(*told)) == {Invariant.EXACTLY_ONCE}


def test_nothing_that_still_lies_in_the_log_is_excused() -> None:
    history = lost(LETTER)
    del history[place(history, h.Truncated)]
    assert broken(history) == {Invariant.EXACTLY_ONCE}


def test_text_that_was_released_and_is_gone_has_to_be_told() -> None:
    history = lost()
    at = place(history, h.ProgressWritten, 2)
    history[at] = replace(history[at], segments=((1, 0, 1, 5),))  # type: ignore[type-var]
    assert broken(history) == {Invariant.EXACTLY_ONCE}
    history.insert(-1, h.ErrorTold(9, "q", "live", 2, "text_lost"))
    assert broken(history) == set()


def test_a_bad_record_that_was_passed_needs_a_dead_letter() -> None:
    history = good()
    at = place(history, h.CursorWritten, 3)
    history[at] = replace(history[at], next_offset=3)  # type: ignore[type-var]
    history.insert(at - 1, h.Produced(8, 0, 2, "live", "bad", "", None))
    assert broken(history) == {Invariant.EXACTLY_ONCE}
    history.insert(at, h.Lettered(8, 0, 2, "bad_shape"))
    assert broken(history) == set()


# -- what is heard twice -----------------------------------------------------------------------


def spoken(*, ends: list[h.Entry], saved: int, asks_ms: int = 100) -> h.History:
    """One sentence: half of it is heard of the first owner, `saved` samples are in its checkpoint,
    which was asked for at `asks_ms`; then `ends` happens, and the second owner goes on."""
    bounds = (0, 0, 0, len(TEXT))
    return [
        h.Promised(0, 500, 50),
        h.WorkerWritten(0, 1, "p", "wa", "ready", 1),
        h.WorkerWritten(0, 2, "q", "wb", "ready", 1),
        h.Produced(1, 0, 0, "live", "text", TEXT, None),
        h.GenerationWritten(2, 3, "d", "live", "wa", 1, 0, "c1"),
        h.LiveWritten(2, 3, "d", "live", "open", 0, "made"),
        h.CursorWritten(2, 3, "d", "live", 0, "", None),
        h.Bound(3, "p", "live", 1, 1),
        h.ReleaseAsked(10, "p", "live", "wa", 1, "r1"),
        h.CursorWritten(12, 4, "p", "live", 1, "r1", None),
        h.ProgressWritten(12, 4, "p", "live", (bounds,), 0, -1),
        h.Fed(12, "p", "live", 1, 1, 1, TEXT),
        h.Heard(90, "p", "live", 1, 1, 0, 1_200, False, "live", 1, 1),
        h.ReleaseAsked(asks_ms, "p", "live", "wa", 1, "r2"),
        h.CursorWritten(102, 5, "p", "live", 1, "r2", None),
        h.ProgressWritten(102, 5, "p", "live", (bounds,), saved, -1),
        h.Heard(640, "p", "live", 1, 1, 1_200, 2_400, False, "live", 1, 1),
        *ends,
        h.Fed(700, "q", "live", 2, 1, 1, TEXT),
        h.Heard(710, "q", "live", 2, 1, saved, SAMPLES, True, "live", 2, 1),
        h.ReleaseAsked(720, "q", "live", "wb", 2, "r3"),
        h.CursorWritten(720, 8, "q", "live", 1, "r3", None),
        h.ProgressWritten(720, 8, "q", "live", (), 0, -1),
        h.Ended(800, True, (), True),
    ]


TAKEN = [
    h.MoveAsked(690, "d", "live", "wa", 1, "wb", "c2"),
    h.GenerationWritten(690, 7, "d", "live", "wb", 2, 0, "c2"),
    h.Bound(695, "q", "live", 2, 1),
]
CRASHED = [h.Gone(650, "p"), *TAKEN]


def test_one_interval_after_a_crash_is_right() -> None:
    verdict = check(spoken(ends=CRASHED, saved=1_200))
    assert verdict.violations == ()
    assert verdict.heard.crashed_mid_sentence == 1
    assert verdict.heard.again_ms_max == 540


def test_more_than_one_interval_after_a_crash_is_seen() -> None:
    assert broken(spoken(ends=CRASHED, saved=1_200, asks_ms=80)) == {Invariant.HEARD_AGAIN}


@pytest.mark.parametrize(
    "excuse",
    [
        h.ReleaseAsked(300, "p", "live", "wa", 1, "r2b"),
        h.ReleaseSlow(500, "p", 450),
        h.Fault(650, "resume", "p"),
    ],
    ids=["under way", "slow", "stood still"],
)
def test_what_the_owner_could_not_help_does_not_count(excuse: h.Entry) -> None:
    history = spoken(ends=CRASHED, saved=1_200, asks_ms=80)
    at = place(history, h.Heard, 1)
    history[at:at] = [h.Fault(600, "pause", "p"), excuse]
    assert broken(history) == set()


def test_nothing_is_claimed_of_an_owner_that_was_superseded_alive() -> None:
    assert broken(spoken(ends=[*TAKEN], saved=1_200, asks_ms=20)) == set()


def handed_over(samples: int) -> list[h.Entry]:
    bounds = (0, 0, 0, len(TEXT))
    return [
        h.MoveAsked(690, "p", "live", "wa", 1, "wb", "c2"),
        h.GenerationWritten(690, 7, "p", "live", "wb", 2, 0, "c2"),
        h.ProgressWritten(690, 7, "p", "live", (bounds,), samples, -1),
        h.Unbound(692, "p", "live", 1, 1),
        h.Bound(695, "q", "live", 2, 1),
    ]


def going_on(history: h.History, begin: int) -> h.History:
    at = place(history, h.Heard, 2)
    history[at] = replace(history[at], begin=begin)  # type: ignore[type-var]
    return history


def test_a_planned_move_with_an_exact_checkpoint_is_right() -> None:
    verdict = check(going_on(spoken(ends=handed_over(2_400), saved=1_200), 2_400))
    assert verdict.violations == ()
    assert verdict.heard.handed_over_mid_segment == 1


def test_a_planned_move_after_which_something_is_heard_again_is_seen() -> None:
    history = spoken(ends=handed_over(1_200), saved=1_200)
    assert broken(history) == {Invariant.HEARD_AGAIN}


def test_an_owner_that_says_again_what_the_checkpoint_says_was_heard_is_seen() -> None:
    history = going_on(spoken(ends=handed_over(2_400), saved=1_200), 1_200)
    assert broken(history) == {Invariant.HEARD_AGAIN}


def test_a_source_that_sounds_after_it_handed_over_is_seen() -> None:
    history = going_on(spoken(ends=handed_over(2_400), saved=1_200), 2_400)
    at = place(history, h.Unbound)
    history.insert(at, h.Heard(691, "p", "live", 1, 1, 2_400, 3_600, False, "live", 1, 1))
    assert broken(history) == {Invariant.HEARD_AGAIN}


def test_the_next_owners_first_checkpoint_hides_nothing() -> None:
    history = going_on(spoken(ends=handed_over(2_400), saved=1_200), 0)
    bounds = (0, 0, 0, len(TEXT))
    at = place(history, h.Fed, 1)
    history[at:at] = [
        h.ReleaseAsked(700, "q", "live", "wb", 2, "r2c"),
        h.CursorWritten(700, 8, "q", "live", 1, "r2c", None),
        h.ProgressWritten(700, 8, "q", "live", (bounds,), 0, -1),
    ]
    assert broken(history) == {Invariant.HEARD_AGAIN}
