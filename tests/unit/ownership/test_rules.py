"""Each rule of ownership for itself."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ownership import rules
from ownership.model import (
    AlreadyDead,
    AlreadyDisposed,
    BeatMoved,
    BelongsToOpenLive,
    CursorMoved,
    Generation,
    IdempotencyMismatch,
    LiveExists,
    LiveNotOpen,
    ReservationGone,
    SourceMoved,
    Stale,
    StaleGeneration,
    UnknownWorker,
    WorkerDead,
    WorkerNotReady,
)
from schemas.options import LiveOptions
from schemas.store_values import (
    Cursor,
    GenerationValue,
    IdempotencyValue,
    LiveState,
    LiveStatus,
    SlotState,
    SlotValue,
    WorkerState,
    WorkerValue,
)
from tests.unit.ownership.world import create, item

OWNER = Generation("w", 3)
VALUE = GenerationValue("w", 3, 1, "c", 0)
NOBODY = GenerationValue("", 3)
OPEN = LiveState(LiveStatus.OPEN, LiveOptions(), 0, 1)
CLOSED = LiveState(LiveStatus.CLOSED, LiveOptions(), 0, 1)


def in_state(state: WorkerState) -> WorkerValue:
    return WorkerValue("w", "n", 4, "", state, 0)


READY, DRAINING, DEAD = map(in_state, WorkerState)


def test_who_may_register() -> None:
    assert rules.register_refusal("w", None, False) is None
    assert rules.register_refusal("w", READY, False) is None
    assert rules.register_refusal("w", DEAD, False) == WorkerDead("w")
    assert rules.register_refusal("w", None, True) == WorkerDead("w")


def test_who_is_admitted_something() -> None:
    assert rules.admission_refusal("w", READY) is None
    for value in (None, DRAINING, DEAD):
        assert rules.admission_refusal("w", value) == WorkerNotReady("w")


def test_who_is_marked_dead() -> None:
    assert rules.mark_dead_refusal("w", None, 1, 1) == UnknownWorker("w")
    assert rules.mark_dead_refusal("w", DEAD, 1, 1) == AlreadyDead("w")
    assert rules.mark_dead_refusal("w", READY, 2, 1) == BeatMoved(2)
    assert rules.mark_dead_refusal("w", READY, 1, 1) is None
    assert rules.mark_dead_refusal("w", DRAINING, 1, 1) is None


def test_who_counts_as_alive() -> None:
    assert [rules.alive(value) for value in (READY, DRAINING, DEAD, None)] == [
        True,
        True,
        False,
        False,
    ]


@given(st.sets(st.integers(0, 30)), st.integers(0, 20), st.integers(0, 2**64))
def test_a_free_slot_is_free(taken: set[int], capacity: int, draw: int) -> None:
    free = set(range(capacity)) - taken
    index = rules.free_slot(taken, capacity, draw)
    assert (index in free) if free else index is None


def test_neighbouring_draws_spread() -> None:
    assert len({rules.free_slot([], 500, draw) for draw in range(100)}) > 80
    words = [(rules.word_to_try(500, draw), 0) for draw in range(100)]
    assert {number for number, _ in words} == set(range(rules.words_of(500)))
    assert len({rules.free_by_words([words[draw]], 500, draw) for draw in range(100)}) > 80


@given(st.sets(st.integers(0, 199)), st.integers(1, 200), st.integers(0, 2**64))
def test_the_words_are_the_slots_that_are_taken(taken: set[int], capacity: int, draw: int) -> None:
    words = dict.fromkeys(range(rules.words_of(capacity)), 0)
    for index in taken & set(range(capacity)):
        words[rules.word_of(index)] += rules.taken_change(None, SlotState.HELD, index)
    index = rules.free_by_words(words.items(), capacity, draw)
    free = set(range(capacity)) - taken
    assert (index in free) if free else index is None
    assert rules.word_to_try(capacity, draw) in words
    for state in SlotState:
        assert rules.taken_change(state, SlotState.HELD, 5) == 0
    for index in taken & set(range(capacity)):
        words[rules.word_of(index)] += rules.taken_change(SlotState.LEAVING, None, index)
    assert not any(words.values())


def test_a_slot_that_is_left() -> None:
    held = SlotValue("a", 3, SlotState.HELD, 1)
    assert rules.left_slot(held, READY, 9) == SlotValue("a", 3, SlotState.LEAVING, 9)
    assert rules.left_slot(held, DRAINING, 9) == SlotValue("a", 3, SlotState.LEAVING, 9)
    assert rules.left_slot(held, DEAD, 9) is None


def test_a_reservation_is_its_token() -> None:
    kept = SlotValue("", 0, SlotState.RESERVED, 1, "t")
    assert rules.reservation_refusal("t", kept) is None
    assert rules.reservation_refusal("u", kept) == ReservationGone("u")
    assert rules.reservation_refusal("t", None) == ReservationGone("t")
    held = SlotValue("a", 1, SlotState.HELD, 1, "t")
    assert rules.reservation_refusal("t", held) == ReservationGone("t")


@given(st.lists(st.sampled_from(SlotState), max_size=50))
def test_a_tally_counts_slots(states: list[SlotState]) -> None:
    tally = sum(rules.tally_change(None, state) for state in states)
    assert rules.tally_counts(tally) == tuple(map(states.count, SlotState))
    for state in states:
        tally += rules.tally_change(state, None)
    assert tally == 0


def test_a_full_tally_does_not_run_over() -> None:
    full = rules.CAPACITY_MAX
    tally = full * (
        rules.tally_change(None, SlotState.HELD)
        + rules.tally_change(None, SlotState.LEAVING)
        + rules.tally_change(None, SlotState.RESERVED)
    )
    assert rules.tally_counts(tally) == (full, full, full)
    assert tally < 2**63


def test_epochs_grow_by_one_over_everything() -> None:
    first = rules.next_generation(None, "w", 0, "c1", 5)
    assert first == GenerationValue("w", 1, 0, "c1", 5)
    second = rules.next_generation(first, "v", 2, "c2", 6)
    assert second.epoch == 2
    ended = rules.ended_generation(second, 7)
    assert (ended.worker_id, ended.epoch, ended.slot) == ("", 2, -1)
    assert rules.next_generation(ended, "w", 1, "c3", 8).epoch == 3


def test_the_source_epoch_guard() -> None:
    assert rules.commit_refusal("a", OPEN, VALUE, OWNER) is None
    assert rules.commit_refusal("a", None, VALUE, OWNER) == LiveNotOpen("a")
    assert rules.commit_refusal("a", CLOSED, VALUE, OWNER) == LiveNotOpen("a")
    for wrong in (Generation("w", 2), Generation("w", 4), Generation("v", 3), None):
        assert rules.commit_refusal("a", OPEN, VALUE, wrong) == SourceMoved(OWNER)
    assert rules.commit_refusal("a", OPEN, None, None) is None
    assert rules.commit_refusal("a", OPEN, NOBODY, None) is None
    assert rules.commit_refusal("a", OPEN, NOBODY, OWNER) == SourceMoved(None)


def test_stale_is_worker_or_epoch() -> None:
    assert rules.stale(VALUE, OWNER) is None
    assert rules.stale(VALUE, Generation("w", 4)) == StaleGeneration(OWNER)
    assert rules.stale(VALUE, Generation("v", 3)) == StaleGeneration(OWNER)
    assert rules.stale(NOBODY, OWNER) == StaleGeneration(None)
    assert rules.stale(None, OWNER) == StaleGeneration(None)


def test_idempotency() -> None:
    request = create("a", "w", idempotency_key="k", request_hash="h")
    same, other = IdempotencyValue("a", "h", 0), IdempotencyValue("b", "x", 0)
    assert rules.idempotency_refusal(request, None) is None
    assert rules.idempotency_refusal(request, same) is None
    assert rules.idempotency_refusal(request, other) == IdempotencyMismatch("b")
    assert rules.idempotency_current(same, rules.IDEMPOTENCY_MS) == same
    assert rules.idempotency_current(same, rules.IDEMPOTENCY_MS + 1) is None
    assert rules.idempotency_current(None, 0) is None


def test_a_live_id_is_taken_while_its_live_is_open() -> None:
    assert rules.create_refusal(None, None) is None
    assert rules.create_refusal(CLOSED, NOBODY) is None
    assert rules.create_refusal(OPEN, VALUE) == LiveExists(OWNER)


@pytest.mark.parametrize(
    ("left", "mark", "begins"), [(None, 0, 0), (None, 7, 7), (5, 7, 7), (9, 7, 9), (7, 7, 7)]
)
def test_where_a_live_begins(left: int | None, mark: int, begins: int) -> None:
    cursor = None if left is None else Cursor(left, 4, "old", 1, 2)
    assert rules.first_cursor(cursor, mark) == Cursor(begins)


def test_the_fence() -> None:
    asked = item("a", OWNER, 5, 6)
    assert rules.release_refusal(asked, VALUE, Cursor(5)) is None
    assert rules.release_refusal(asked, None, Cursor(5)) == Stale(asked, None)
    assert rules.release_refusal(asked, NOBODY, Cursor(5)) == Stale(asked, None)
    moved = GenerationValue("v", 4)
    assert rules.release_refusal(asked, moved, Cursor(5)) == Stale(asked, Generation("v", 4))
    back = GenerationValue("w", 5)
    assert rules.release_refusal(asked, back, Cursor(5)) == Stale(asked, Generation("w", 5))
    assert rules.release_refusal(asked, VALUE, Cursor(4)) == CursorMoved(asked, Cursor(4))
    assert rules.release_refusal(asked, VALUE, Cursor(6)) == CursorMoved(asked, Cursor(6))
    assert rules.release_refusal(asked, VALUE, None) == CursorMoved(asked, None)


def test_a_release_finds_itself() -> None:
    asked = item("a", OWNER, 5, 6, "mine")
    assert rules.released_before(asked, Cursor(6, None, "mine"))
    assert not rules.released_before(asked, Cursor(6, None, "other"))
    assert not rules.released_before(asked, Cursor(7, None, "mine"))
    assert not rules.released_before(asked, None)


def test_what_a_release_leaves() -> None:
    plain = item("a", OWNER, 5, 6, "r")
    assert rules.moved_cursor(plain, Cursor(5, 3, "q", 1, 2)) == Cursor(6, 3, "r")
    skipping = item("a", OWNER, 5, 9, "r", last_seq=8, skipped=(5, 8))
    assert rules.moved_cursor(skipping, Cursor(5, 3, "q")) == Cursor(9, 8, "r", 5, 8)


def test_what_a_custodian_may_take() -> None:
    assert rules.dispose_refusal(None, None, None, 0, 4) is None
    assert rules.dispose_refusal(CLOSED, NOBODY, Cursor(4), 0, 4) is None
    assert rules.dispose_refusal(OPEN, VALUE, Cursor(4), 0, 4) == BelongsToOpenLive(OWNER)
    assert rules.dispose_refusal(CLOSED, NOBODY, Cursor(5), 0, 4) == AlreadyDisposed(5)
    assert rules.dispose_refusal(None, None, None, 5, 4) == AlreadyDisposed(5)
    assert rules.disposed_cursor(None, 4) == Cursor(5)
    assert rules.disposed_cursor(Cursor(2, 9, "r", 1, 2), 4) == Cursor(5, 9)
