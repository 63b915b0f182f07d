"""ULIDs and the names of lives."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.bad_record import BadRecord, DeadLetterReason
from schemas.ids import ulid
from schemas.live_id import BadLiveId, check_live_id, decode_key


def test_the_specifications_example() -> None:
    # github.com/ulid/spec: 01ARZ3NDEKTSV4RRFFQ69G5FAV, taken apart.
    number = 0
    for character in "01ARZ3NDEKTSV4RRFFQ69G5FAV":
        number = number * 32 + "0123456789ABCDEFGHJKMNPQRSTVWXYZ".index(character)
    now_ms, entropy = number >> 80, (number & (2**80 - 1)).to_bytes(10, "big")
    assert now_ms == 1_469_922_850_259
    assert ulid(now_ms, entropy) == "01ARZ3NDEKTSV4RRFFQ69G5FAV"
    assert ulid(0, bytes(10)) == "0" * 26
    assert ulid(2**48 - 1, b"\xff" * 10) == "7" + "Z" * 25


@given(*[st.tuples(st.integers(0, 2**48 - 1), st.binary(min_size=10, max_size=10))] * 2)
def test_they_sort_as_their_parts(one: tuple[int, bytes], two: tuple[int, bytes]) -> None:
    assert (ulid(*one) < ulid(*two)) == (one < two)
    assert len(ulid(*one)) == 26


@pytest.mark.parametrize(("now_ms", "size"), [(-1, 10), (2**48, 10), (0, 9), (0, 11)])
def test_what_does_not_fit_is_refused(now_ms: int, size: int) -> None:
    with pytest.raises(ValueError, match=r"48 bits|entropy"):
        ulid(now_ms, bytes(size))


@pytest.mark.parametrize("live_id", ["a", "Übung 7", "x" * 128, "日本" * 21, "a b", "\u200b"])
def test_names_of_lives(live_id: str) -> None:
    assert check_live_id(live_id) == live_id
    assert decode_key(live_id.encode()) == live_id


@pytest.mark.parametrize(
    "live_id", ["", "x" * 129, "日" * 43, "a\x00", "a\nb", "\x7f", "\x9f", "\ud800"]
)
def test_what_cannot_name_a_live(live_id: str) -> None:
    with pytest.raises(BadLiveId):
        check_live_id(live_id)


@pytest.mark.parametrize("key", [None, b"", b"\xff\xfe", b"a\x00b", b"x" * 129, b"\xed\xa0\x80"])
def test_a_bad_key_has_its_own_reason(key: bytes | None) -> None:
    with pytest.raises(BadRecord) as caught:
        decode_key(key)
    assert caught.value.reason is DeadLetterReason.BAD_KEY


@given(st.binary(max_size=200))
def test_any_key_is_a_live_or_a_bad_record(key: bytes) -> None:
    try:
        live_id = decode_key(key)
    except BadRecord:
        return
    assert live_id.encode() == key
