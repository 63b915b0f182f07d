"""The values of the events topic and of the dead-letter topic."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.bad_record import BadRecord, DeadLetterReason
from schemas.dead_letter import DEAD_LETTER_BYTES_MAX, DeadLetter
from schemas.events import EVENT_BYTES_MAX, EventKind, LiveEvent
from tests.support.values import changed

EVENT = LiveEvent(
    EventKind.INTERRUPTED, "e1", "s1", "live-1", "w1", 3, 1_700_000_000_000, 12,
    {"position_ms": 480, "share": 0.5, "reason": "barge-in", "final": True, "note": None},
)  # fmt: skip
LETTER = DeadLetter(
    DeadLetterReason.BAD_UTF8, "why", "dhsched.text", 3, 99, b"k\xff", None, 1_700_000_000_000
)


def test_an_event_is_read_as_it_was_written() -> None:
    assert LiveEvent.decode(EVENT.encode()) == EVENT
    bare = changed(EVENT, offset=None, data={})
    assert LiveEvent.decode(bare.encode()) == bare


@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=("Cs",)), max_size=8),
        st.none() | st.booleans() | st.integers(-(2**60), 2**60)
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(st.characters(exclude_categories=("Cs",)), max_size=20),
        max_size=6,
    )
)  # fmt: skip
def test_flat_data_survives(data: dict[str, str | int | float | bool | None]) -> None:
    event = changed(EVENT, data=data)
    assert LiveEvent.decode(event.encode()) == event


@pytest.mark.parametrize("data", [{"a": [1]}, {"a": {}}, {"a": float("nan")}, {"a": b"x"}])
def test_what_is_not_flat_is_not_written(data: dict[str, object]) -> None:
    with pytest.raises(BadRecord):
        changed(EVENT, data=data).encode()


def test_an_event_above_the_limit_is_not_written() -> None:
    with pytest.raises(BadRecord) as caught:
        changed(EVENT, data={"text": "x" * EVENT_BYTES_MAX}).encode()
    assert caught.value.reason is DeadLetterReason.TOO_LARGE


@given(st.binary(max_size=200), st.integers(0, 10_000), st.integers(0, 7))
def test_hostile_bytes_are_bad_records(junk: bytes, at: int, bit: int) -> None:
    for good, decode in ((EVENT.encode(), LiveEvent.decode), (LETTER.encode(), DeadLetter.decode)):
        flipped = bytearray(good)
        flipped[at % len(good)] ^= 1 << bit
        for value in (junk, good[:10] + junk, good + junk, good[: at % len(good)], bytes(flipped)):
            try:
                found = decode(value)
            except BadRecord:
                continue
            assert decode(found.encode()) == found


@pytest.mark.parametrize("value", [None, b""])
def test_no_value_at_all(value: bytes | None) -> None:
    with pytest.raises(BadRecord):
        LiveEvent.decode(value)
    with pytest.raises(BadRecord):
        DeadLetter.decode(value)


def test_a_dead_letter_keeps_the_original_bytes() -> None:
    assert DeadLetter.decode(LETTER.encode()) == LETTER
    whole = replace(LETTER, key=None, value=bytes(range(256)) * 40)
    assert DeadLetter.decode(whole.encode()) == whole


@pytest.mark.parametrize("reason", DeadLetterReason)
def test_every_reason_survives(reason: DeadLetterReason) -> None:
    assert DeadLetter.decode(replace(LETTER, reason=reason).encode()).reason is reason


def test_a_dead_letter_always_fits() -> None:
    huge = replace(LETTER, key=b"k" * 1_000_000, value=b"v" * 5_000_000, detail="d\ud800" * 100_000)
    value = huge.encode()
    assert len(value) <= DEAD_LETTER_BYTES_MAX
    found = DeadLetter.decode(value)
    assert "value cut from 5000000 bytes" in found.detail
    assert "key cut from 1000000 bytes" in found.detail
    assert found.value == b"v" * len(found.value or b"")
