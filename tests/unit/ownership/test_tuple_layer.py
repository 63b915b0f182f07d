"""The encoding is FoundationDB's own, byte for byte, and keeps the order of tuples."""

from itertools import pairwise

import pytest
from fdb import tuple as fdb_tuple
from hypothesis import given
from hypothesis import strategies as st

from ownership import keys
from ownership.tuple_layer import INT_MAX, BadTuple, pack, prefix_range, unpack

integers = st.integers(-INT_MAX, INT_MAX)
texts = st.text(max_size=20)
elements = st.one_of(integers, texts, st.binary(max_size=20))
tuples = st.lists(elements, max_size=5).map(tuple)


@given(tuples)
def test_the_bytes_are_those_of_the_official_bindings(items: tuple) -> None:
    assert pack(items) == fdb_tuple.pack(items)
    assert unpack(fdb_tuple.pack(items)) == items


@pytest.mark.parametrize(
    "number",
    [
        n
        for size in range(1, 9)
        for at in (2 ** (8 * size), 2 ** (8 * size - 1))
        for n in (at - 1, at)
    ]
    + [0, 1, 255, 256, 2**64 - 1],
)
@pytest.mark.parametrize("sign", [1, -1])
def test_the_edges_of_integers(number: int, sign: int) -> None:
    if number > INT_MAX:
        with pytest.raises(BadTuple):
            pack((sign * number,))
        return
    assert pack((sign * number,)) == fdb_tuple.pack((sign * number,))
    assert unpack(pack((sign * number,))) == (sign * number,)


@given(st.lists(integers, min_size=2, max_size=2))
def test_integers_keep_their_order(pair: list[int]) -> None:
    a, b = pair
    assert (pack((a,)) < pack((b,))) == (a < b)


@given(st.lists(st.tuples(texts, integers), min_size=2, max_size=2))
def test_tuples_keep_their_order(pair: list[tuple[str, int]]) -> None:
    first, second = ((text.encode(), number) for text, number in pair)
    assert (pack(pair[0]) < pack(pair[1])) == (first < second)


@given(st.binary(max_size=20))
def test_any_bytes_are_read_or_refused(raw: bytes) -> None:
    try:
        items = unpack(raw)
    except BadTuple:
        return
    # Only the one encoding of an integer is ever written, others may be read.
    assert unpack(pack(items)) == items


@pytest.mark.parametrize(
    "raw", [b"\x01abc", b"\x02abc\x00\xff", b"\x16\x01", b"\x02\xff\x00", b"\x33", b"\x00"]
)
def test_broken_keys_are_refused(raw: bytes) -> None:
    with pytest.raises(BadTuple):
        unpack(raw)


@given(texts, tuples)
def test_a_prefix_holds_what_continues_it_and_nothing_else(name: str, more: tuple) -> None:
    begin, end = prefix_range(pack((name,)))
    assert (begin <= pack((name, *more)) < end) == bool(more)
    assert not begin <= pack((name + "x", *more)) < end


@given(texts, texts, st.integers(0, 2**40))
def test_key_spaces_are_packed_tuples(a: str, b: str, number: int) -> None:
    assert keys.live(a) == fdb_tuple.pack(("live", a))
    assert keys.slot(a, number) == fdb_tuple.pack(("slot", a, number))
    assert keys.by_worker(a, b) == fdb_tuple.pack(("by_worker", a, b))
    assert keys.disposing(3, number) == fdb_tuple.pack(("disposing", 3, number))
    assert keys.last_text(keys.by_partition(1, a)) == a
    assert keys.last_int(keys.slot(a, number)) == number


def test_spaces_do_not_overlap() -> None:
    spaces = {
        name: prefix_range(value)
        for name, value in vars(keys).items()
        if name.isupper() and isinstance(value, bytes)
    }
    assert len(spaces) == 22
    ordered = sorted(spaces.values())
    assert all(first[1] <= second[0] for first, second in pairwise(ordered))


def test_the_longest_ids_fit_into_every_backend() -> None:
    from ownership.kv import KEY_BYTES_MAX

    longest = "\U0001f600" * 32
    assert len(longest.encode()) == 128
    for key in (
        keys.by_worker(longest, longest),
        keys.reservation(longest, longest),
        keys.slot(longest, 2**21),
        keys.idem("x" * 200),
        keys.idem("x" * 201),
        keys.idem("\x00" * 200),
    ):
        assert len(key) <= KEY_BYTES_MAX


def test_long_idempotency_keys_stay_different() -> None:
    assert keys.idem("x" * 300) != keys.idem("x" * 301)
    assert keys.idem("x" * 300) == keys.idem("x" * 300)


def test_a_key_that_ends_otherwise_is_refused() -> None:
    with pytest.raises(TypeError):
        keys.last_text(keys.slot("w", 1))
    with pytest.raises(TypeError):
        keys.last_int(keys.live("a"))
