"""A value is what its fields are, and stays so."""

import pytest

from controller import events as ev
from controller import instructions as do
from schemas.events import EventKind
from schemas.text_record import RecordKind, TextRecord
from schemas.value import Value
from tests.support.values import RECORD, VALUES, changed


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_it_is_equal_to_one_of_the_same_fields_only(value: Value) -> None:
    again = changed(value)
    assert again is not value
    assert again == value
    assert repr(again) == repr(value)
    assert value != tuple(value.as_dict().values())
    for other in VALUES:
        assert (other == value) is (other is value)


def test_a_difference_in_any_field_is_seen() -> None:
    changes = {"offset": 6, "record": TextRecord(RecordKind.TEXT, "Hi", 8)}
    accepted = ev.Accepted(5, RECORD)
    for name, other in changes.items():
        assert changed(accepted, **{name: other}) != accepted


def test_it_is_hashed_by_its_fields() -> None:
    assert hash(ev.Accepted(5, RECORD)) == hash(
        ev.Accepted(5, TextRecord(RecordKind.TEXT, "Hi", 7))
    )
    assert len({ev.Accepted(5, RECORD), ev.Accepted(5, RECORD), ev.Accepted(6, RECORD)}) == 2


def test_it_is_written_as_it_is_made() -> None:
    assert repr(ev.TickSent(1, 2, last=True, muted=False)) == (
        "TickSent(segment_id=1, sample_end=2, last=True, muted=False)"
    )


def test_it_is_taken_apart_in_the_order_in_which_it_is_made() -> None:
    match ev.TickSent(1, 2, last=True, muted=False):
        case ev.TickSent(segment_id, sample_end, last, muted):
            assert (segment_id, sample_end, last, muted) == (1, 2, True, False)


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_it_has_no_room_for_anything_else(value: Value) -> None:
    assert not hasattr(value, "__dict__")
    with pytest.raises(AttributeError):
        value.more = 1  # type: ignore[attr-defined]


def test_what_is_not_named_is_not_shared() -> None:
    one, two = do.Publish(EventKind.MOVED), do.Publish(EventKind.MOVED)
    assert one.data is not two.data
