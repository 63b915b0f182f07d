"""The values of the store."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.bad_record import BadRecord, DeadLetterReason
from schemas.options import LiveOptions
from schemas.store_values import (
    Checkpoint,
    ClaimValue,
    Cursor,
    GenerationValue,
    IdempotencyValue,
    LiveState,
    LiveStatus,
    LoadView,
    Meta,
    OrphanValue,
    SegmentBounds,
    SlotState,
    SlotValue,
    StoreValue,
    WorkerState,
    WorkerValue,
)

LONG = st.integers(-(2**63), 2**63 - 1)
INT = st.integers(-(2**31), 2**31 - 1)
TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=40)
OPTIONS = st.builds(
    LiveOptions,
    look=TEXT, voice=TEXT, speed=st.floats(0.5, 2.0), width_px=INT, height_px=INT,
    seed=st.none() | LONG, idle_timeout_ms=LONG, length_ms_max=LONG, absent_viewer_ms=LONG,
)  # fmt: skip
BOUNDS = st.builds(SegmentBounds, LONG, INT, LONG, INT)
VALUES = st.one_of(
    st.builds(
        LiveState, st.sampled_from(LiveStatus), OPTIONS, INT, LONG, st.none() | LONG, TEXT, TEXT
    ),
    st.builds(GenerationValue, TEXT, LONG, INT, TEXT, LONG),
    st.builds(ClaimValue, TEXT, LONG, TEXT, LONG),
    st.builds(Cursor, LONG, st.none() | LONG, TEXT, st.none() | LONG, st.none() | LONG),
    st.builds(Checkpoint, st.lists(BOUNDS, max_size=3).map(tuple), LONG, INT, LONG, LONG, LONG),
    st.builds(WorkerValue, TEXT, TEXT, INT, TEXT, st.sampled_from(WorkerState), LONG),
    st.builds(SlotValue, TEXT, LONG, st.sampled_from(SlotState), LONG, TEXT),
    st.builds(LoadView, TEXT, INT, INT, INT, INT, st.lists(INT, max_size=8).map(tuple), LONG),
    st.builds(OrphanValue, TEXT, LONG, LONG),
    st.builds(IdempotencyValue, TEXT, TEXT, LONG),
    st.builds(Meta, INT, TEXT, INT),
)


@given(VALUES)
def test_a_value_is_read_as_it_was_written(value: StoreValue) -> None:
    encoded = value.encode()
    found = type(value).decode(encoded)
    assert found == value
    assert type(found) is type(value)
    assert found.encode() == encoded
    assert hash(found) == hash(value)


def test_every_value_is_drawn_here() -> None:
    drawn = {cls.__name__ for cls in StoreValue.__subclasses__()}
    assert drawn == {
        "LiveState", "GenerationValue", "ClaimValue", "Cursor", "Checkpoint", "WorkerValue",
        "SlotValue", "LoadView", "OrphanValue", "IdempotencyValue", "Meta",
    }  # fmt: skip


@given(VALUES, st.binary(max_size=60), st.integers(0, 1_000), st.integers(0, 7))
def test_damaged_values_are_bad_records(value: StoreValue, junk: bytes, at: int, bit: int) -> None:
    good = value.encode()
    flipped = bytearray(good)
    flipped[at % len(good)] ^= 1 << bit
    for damaged in (junk, good[:10] + junk, good[: at % len(good)], bytes(flipped)):
        try:
            type(value).decode(damaged)
        except BadRecord:
            continue
    with pytest.raises(BadRecord):
        type(value).decode(good + b"\x00")


def test_a_value_of_another_kind_is_refused() -> None:
    with pytest.raises(BadRecord) as caught:
        Cursor.decode(GenerationValue("w", 1).encode())
    assert caught.value.reason is DeadLetterReason.UNKNOWN_SCHEMA


def test_a_value_above_the_stores_limit_is_refused() -> None:
    with pytest.raises(BadRecord) as caught:
        Cursor.decode(Cursor(0, release_id="x" * 100_000).encode())
    assert caught.value.reason is DeadLetterReason.TOO_LARGE
