"""The checkers on histories that were written by hand: what is right passes, each wrong is seen."""

from dataclasses import replace

import pytest

from tests.sim import history as h
from tests.sim.checkers import Invariant, check
from tests.sim.windows import count

TEXTS = ("one. ", "two. ")


def good() -> h.History:
    """A live on worker wa of process p; one record spoken, a move to wb of q, the other spoken."""
    return [
        h.WorkerWritten(0, 1, "p", "wa", "ready", 1),
        h.WorkerWritten(0, 2, "q", "wb", "ready", 1),
        h.Produced(1, 0, 0, "live", "text", TEXTS[0], None),
        h.GenerationWritten(2, 3, "d", "live", "wa", 1, 0, "c1"),
        h.SlotWritten(2, 3, "d", "wa", 0, "live", 1, "held"),
        h.LiveWritten(2, 3, "d", "live", "open", 0, "made"),
        h.CursorWritten(2, 3, "d", "live", 0, "", None),
        h.Bound(3, "p", "live", 1, 1),
        h.ReleaseAsked(3, "p", "live", "wa", 1, "r1"),
        h.CursorWritten(4, 4, "p", "live", 1, "r1", None),
        h.ProgressWritten(4, 4, "p", "live", ((0, 0, 0, 5),), 0, -1),
        h.Fed(4, "p", "live", 1, 1, 1, TEXTS[0]),
        h.Heard(5, "p", "live", 1, 1, 0, 500, True, "live", 1, 1),
        h.ReleaseAsked(5, "p", "live", "wa", 1, "r2"),
        h.CursorWritten(5, 5, "p", "live", 1, "r2", None),
        h.ProgressWritten(5, 5, "p", "live", (), 0, -1),
        h.Produced(6, 0, 1, "live", "text", TEXTS[1], None),
        h.MoveAsked(7, "d", "live", "wa", 1, "wb", "c2"),
        h.GenerationWritten(7, 6, "d", "live", "wb", 2, 0, "c2"),
        h.SlotWritten(7, 6, "d", "wb", 0, "live", 2, "held"),
        h.SlotWritten(7, 6, "d", "wa", 0, "live", 1, "leaving"),
        h.Unbound(8, "p", "live", 1, 1),
        h.SlotWritten(8, 7, "p", "wa", 0, "", 0, ""),
        h.Bound(8, "q", "live", 2, 1),
        h.ReleaseAsked(9, "q", "live", "wb", 2, "r3"),
        h.CursorWritten(9, 8, "q", "live", 2, "r3", None),
        h.ProgressWritten(9, 8, "q", "live", ((1, 0, 1, 5),), 0, -1),
        h.Fed(9, "q", "live", 2, 1, 2, TEXTS[1]),
        h.Heard(9, "q", "live", 2, 2, 0, 500, True, "live", 2, 1),
        h.Ended(10, True, (), True),
    ]


def place(history: h.History, kind: type[h.Entry], number: int = 0) -> int:
    """Where the so-manieth entry of a kind stands."""
    return [at for at, one in enumerate(history) if type(one) is kind][number]


def broken(history: h.History) -> set[Invariant]:
    return {one.invariant for one in check(history).violations}


def test_a_right_history_passes() -> None:
    verdict = check(good())
    assert verdict.violations == ()
    assert (verdict.releases, verdict.moves) == (3, 1)


def test_it_passes_after_json() -> None:
    assert h.from_plain(h.to_plain(good())) == good()


def test_a_stale_release_is_seen() -> None:
    history = good()
    at = place(history, h.ReleaseAsked, 2)
    history[at] = h.ReleaseAsked(9, "p", "live", "wa", 1, "r3")
    cursor = place(history, h.CursorWritten, 3)
    history[cursor] = replace(history[cursor], process="p")  # type: ignore[type-var]
    assert Invariant.ONE_OWNER in broken(history)


def test_the_right_worker_with_an_old_epoch_is_seen() -> None:
    history = good()
    at = place(history, h.ReleaseAsked, 2)
    history[at] = h.ReleaseAsked(9, "q", "live", "wb", 1, "r3")
    assert broken(history) == {Invariant.ONE_OWNER}


@pytest.mark.parametrize(("epoch", "commit_id"), [(1, "c2"), (3, "c2"), (2, "c1")])
def test_an_epoch_that_does_not_follow_or_a_commit_applied_twice(
    epoch: int, commit_id: str
) -> None:
    history = good()
    at = place(history, h.GenerationWritten, 1)
    history[at] = replace(history[at], epoch=epoch, commit_id=commit_id)  # type: ignore[type-var]
    assert Invariant.EPOCHS in broken(history)


def test_a_move_over_another_owner_is_seen() -> None:
    history = good()
    at = place(history, h.MoveAsked)
    history[at] = replace(history[at], epoch=7)  # type: ignore[type-var]
    assert broken(history) == {Invariant.ONE_OWNER}


@pytest.mark.parametrize("fed", [0, 1])
def test_a_record_that_nobody_spoke_is_seen(fed: int) -> None:
    history = good()
    del history[place(history, h.Heard, fed)], history[place(history, h.Fed, fed)]
    assert broken(history) == {Invariant.EXACTLY_ONCE}


def test_a_record_spoken_by_both_is_seen() -> None:
    history = good()
    at = place(history, h.Fed, 1)
    history.insert(at, h.Fed(9, "q", "live", 2, 1, 1, TEXTS[0]))
    assert broken(history) == {Invariant.EXACTLY_ONCE}


def test_a_segment_that_the_checkpoint_names_is_made_again_rightly() -> None:
    history = good()
    # The first owner's last checkpoint never came: the segment is still to be spoken.
    for kind, number in ((h.ProgressWritten, 1), (h.CursorWritten, 2), (h.ReleaseAsked, 1)):
        del history[place(history, kind, number)]
    history.insert(place(history, h.Fed, 1), h.Fed(9, "q", "live", 2, 1, 1, TEXTS[0]))
    assert broken(history) == set()


def test_a_record_both_spoken_and_dead_lettered_is_seen() -> None:
    history = good()
    history.insert(-1, h.Lettered(9, 0, 1, "live_closed"))
    assert broken(history) == {Invariant.EXACTLY_ONCE}


def test_text_fed_before_its_commit_is_seen() -> None:
    history = good()
    fed = history.pop(place(history, h.Fed, 1))
    history.insert(place(history, h.ReleaseAsked, 2), fed)
    assert broken(history) == {Invariant.EXACTLY_ONCE}


def test_sound_with_a_gap_is_seen() -> None:
    history = good()
    at = place(history, h.Heard)
    history[at] = replace(history[at], begin=100)  # type: ignore[type-var]
    assert broken(history) == {Invariant.EXACTLY_ONCE}


def test_a_slot_taken_twice_and_too_many_lives_are_seen() -> None:
    history = good()
    at = place(history, h.Bound)
    history.insert(at, h.GenerationWritten(3, 4, "d", "other", "wa", 1, 0, "c9"))
    history.insert(at, h.SlotWritten(3, 4, "d", "wa", 0, "other", 1, "held"))
    assert broken(history) == {Invariant.OVERSHOOT}


def test_a_slot_freed_before_its_runtime_is_gone_is_seen() -> None:
    history = good()
    unbound = history.pop(place(history, h.Unbound))
    history.insert(place(history, h.SlotWritten, 3) + 1, unbound)
    assert broken(history) == {Invariant.OVERSHOOT}


def test_sound_of_an_ended_binding_is_seen() -> None:
    history = good()
    at = place(history, h.Bound, 1)
    history.insert(at, h.Heard(8, "p", "live", 1, 1, 0, 500, True, "live", 1, 1))
    assert broken(history) == {Invariant.BELOW}


def test_an_owner_that_is_refused_is_seen() -> None:
    history = good()
    at = place(history, h.Heard)
    history.insert(at, h.ReleaseRefused(5, "p", "live", "wa", 1, "r9", "stale"))
    assert broken(history) == {Invariant.FALSE_REFUSAL}
    assert check(history).false_refusals == 1


@pytest.mark.parametrize(("capacity_left", "wrong"), [(True, True), (False, False)])
def test_an_orphan_waits_rightly_only_without_capacity(capacity_left: bool, wrong: bool) -> None:
    history = good()
    history[-1:] = [
        h.WorkerWritten(9, 9, "d", "wb", "dead", 1),
        h.Ended(10, False, ("live",), capacity_left),
    ]
    assert (Invariant.PROGRESS in broken(history)) is wrong


def test_windows_are_read_from_a_history() -> None:
    found = count(good())
    assert found["moves"] == found["superseded_owner_alive"] == found["superseded_owner_bound"] == 1
    assert found["there_and_back"] == 0
