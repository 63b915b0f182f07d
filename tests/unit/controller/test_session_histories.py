"""Random lives of a live: every record and every character has exactly one end."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.text_record import RecordKind, TextRecord
from tests.unit.controller.history import History

WORDS = st.sampled_from(
    [
        "One. ",
        "two ",
        "three, ",
        "Four! Five? ",
        "six.",
        "a very long word indeed ",
        "七。",
        "… ",
        "Eight. And nine ",
    ]
)

ACTIONS = st.one_of(
    st.tuples(st.just("push"), WORDS, st.booleans()),
    st.tuples(st.just("again"), WORDS),
    st.tuples(st.sampled_from(["end_turn", "bad", "interrupt"])),
    st.tuples(st.sampled_from(["read", "reread"]), st.integers(1, 8)),
    st.tuples(st.sampled_from(["turn", "answer", "acknowledge", "tick", "last", "lose_stage"])),
    st.tuples(st.just("time"), st.integers(1, 700)),
    st.tuples(st.just("ring"), st.booleans()),
    st.tuples(st.sampled_from(["crash", "move"]), st.booleans()),
    # What usually happens, so that the rare things happen in the middle of something.
    st.tuples(st.just("go on"), st.integers(1, 6)),
)


def step(history: History, action: tuple[object, ...]) -> None:
    match action:
        case ("push", str(text), bool(numbered)):
            history.push(text, numbered)
        case ("again", str(text)):
            history.push_again(text)
        case ("end_turn",):
            history.put("end_turn", TextRecord(RecordKind.END_TURN))
        case ("bad",):
            history.put("bad", None)
        case ("interrupt",):
            history.put("interrupt", TextRecord(RecordKind.INTERRUPT))
        case ("read", int(count)):
            history.read(count)
        case ("reread", int(count)):
            history.read_again(count)
        case ("turn",):
            history.turn()
        case ("answer",):
            history.answer()
        case ("acknowledge",):
            history.acknowledge()
        case ("tick",):
            history.tick(last=False)
        case ("last",):
            history.tick(last=True)
        case ("lose_stage",):
            history.lose_stage()
        case ("time", int(by_ms)):
            history.pass_time(by_ms)
        case ("ring", bool(full)):
            history.ring_full = full
        case ("go on", int(times)):
            for _ in range(times):
                history.read(4)
                history.read_again(4)
                history.answer()
                history.acknowledge()
                history.tick(last=False)
                history.pass_time(170)
        case ("crash", bool(applied)):
            history.crash(applied)
        case ("move", bool(taken)):
            history.move(taken)
        case _:
            raise AssertionError(action)


@settings(max_examples=300, deadline=None)
@given(st.lists(ACTIONS, min_size=1, max_size=80))
def test_every_record_and_every_character_has_one_end(actions: list[tuple[object, ...]]) -> None:
    history = History()
    for action in actions:
        step(history, action)
    history.settle()
    history.check()


def test_the_account_sees_a_character_said_twice() -> None:
    """The check itself can fail: a segment fed under other bounds is noticed."""
    history = History()
    history.push("One. Two. ", numbered=False)
    history.settle()
    history.check()
    bounds = next(iter(history.store.bounds))
    with pytest.raises(AssertionError, match="no character twice"):
        history._speak(bounds)


def run(*actions: tuple[object, ...]) -> History:
    history = History()
    for action in actions:
        step(history, action)
    history.settle()
    history.check()
    return history


def test_a_duplicate_among_unnumbered_records_is_one_for_the_next_owner_too() -> None:
    history = run(
        ("push", "One. ", True),
        ("go on", 2),
        ("last",),
        ("push", "two ", False),
        ("again", "three, "),
        ("push", "six. ", False),
        ("go on", 6),
        ("crash", False),
    )
    assert not any("three" in text for text in history.texts.values())


def test_a_refused_record_behind_half_a_sentence_does_not_lose_its_rest() -> None:
    history = run(
        ("push", "Eight. And nine ", False),
        ("bad",),
        ("read", 8),
        ("answer",),
        ("acknowledge",),
        ("answer",),
        ("crash", False),
    )
    assert "And nine " in history.texts.values()
