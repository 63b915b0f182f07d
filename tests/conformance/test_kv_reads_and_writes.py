"""What one transaction sees and leaves, on every backend: compared with a plain dictionary."""

import asyncio

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ownership.kv import (
    KEY_BYTES_MAX,
    VALUE_BYTES_MAX,
    Committed,
    Database,
    StoreClosed,
    StoreLimit,
    Transaction,
    add_int64,
    int64,
)
from tests.conformance.kv_backends import Backend, backend, db

__all__ = ["backend", "db"]

keys = st.binary(min_size=1, max_size=3).map(lambda raw: bytes(byte % 4 for byte in raw))
values = st.binary(max_size=10)
bounds = st.binary(max_size=3).map(lambda raw: bytes(byte % 5 for byte in raw))
steps = st.one_of(
    st.tuples(st.just("set"), keys, values),
    st.tuples(st.just("clear"), keys),
    st.tuples(st.just("clear_range"), bounds, bounds),
    st.tuples(st.just("add"), keys, st.integers(-(2**63), 2**63 - 1)),
    st.tuples(st.just("get"), keys),
    st.tuples(st.just("get_many"), st.lists(keys, max_size=4)),
    st.tuples(st.just("get_range"), bounds, bounds, st.integers(0, 3), st.booleans()),
)
transactions = st.lists(st.tuples(st.lists(steps, max_size=8), st.booleans()), max_size=5)


def on_dictionary(model: dict[bytes, bytes], step: tuple) -> object:
    match step:
        case ("set", key, value):
            model[key] = value
        case ("clear", key):
            model.pop(key, None)
        case ("clear_range", begin, end):
            for key in [key for key in model if begin <= key < end]:
                del model[key]
        case ("add", key, delta):
            model[key] = add_int64(model.get(key), delta)
        case ("get", key):
            return model.get(key)
        case ("get_many", wanted):
            return [model.get(key) for key in wanted]
        case ("get_range", begin, end, limit, reverse):
            pairs = [(key, model[key]) for key in sorted(model, reverse=reverse)]
            pairs = [pair for pair in pairs if begin <= pair[0] < end]
            return pairs[:limit] if limit else pairs
    return None


def on_transaction(tr: Transaction, step: tuple, snapshot: bool) -> object:
    reads = tr.snapshot if snapshot else tr
    match step:
        case ("set", key, value):
            return tr.set(key, value)
        case ("clear", key):
            return tr.clear(key)
        case ("clear_range", begin, end):
            return tr.clear_range(begin, end)
        case ("add", key, delta):
            return tr.add(key, delta)
        case ("get", key):
            return reads.get(key)
        case ("get_many", wanted):
            return reads.get_many(wanted)
        case ("get_range", begin, end, limit, reverse):
            return reads.get_range(begin, end, limit=limit, reverse=reverse)
    raise AssertionError(step)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(history=transactions, snapshot=st.booleans())
async def test_a_transaction_is_like_a_dictionary(
    db: Database, history: list, snapshot: bool
) -> None:
    await db.run(lambda tr: tr.clear_range(b"", b"\xff"))
    model: dict[bytes, bytes] = {}
    for taken, fails in history:
        inside = dict(model)
        expected = [on_dictionary(inside, step) for step in taken]

        def body(tr: Transaction, taken: list = taken, fails: bool = fails) -> list:
            seen = [on_transaction(tr, step, snapshot) for step in taken]
            if fails:
                raise KeyError("on purpose")
            return seen

        if fails:
            with pytest.raises(KeyError, match="on purpose"):
                await db.run(body)
        else:
            assert await db.run(body) == expected
            model = inside
    everything = await db.read(lambda tr: tr.get_range(b"", b"\xff"))
    assert everything == sorted(model.items())


async def test_reads_without_a_transaction(db: Database) -> None:
    await db.run(lambda tr: [tr.set(b"k%d" % i, b"v%d" % i) for i in range(10)])
    assert await db.read(lambda tr: tr.get(b"k3")) == b"v3"
    assert await db.read(lambda tr: tr.get_many([b"k3", b"no", b"k4"])) == [b"v3", None, b"v4"]
    first = await db.read(lambda tr: tr.get_range(b"k2", b"k9", limit=2))
    assert first == [(b"k2", b"v2"), (b"k3", b"v3")]
    last = await db.read(lambda tr: tr.get_range(b"k2", b"k9", limit=2, reverse=True))
    assert last == [(b"k8", b"v8"), (b"k7", b"v7")]


async def test_a_bound_may_be_longer_than_any_key(db: Database) -> None:
    longest = b"x" * KEY_BYTES_MAX
    await db.run(lambda tr: [tr.set(longest, b"1"), tr.set(b"y", b"2")])
    beyond = longest + b"\x00"
    assert await db.read(lambda tr: tr.get_range(beyond, b"z")) == [(b"y", b"2")]
    assert await db.read(lambda tr: tr.get_range(b"a", beyond)) == [(longest, b"1")]
    back = await db.read(lambda tr: tr.get_range(b"a", beyond, reverse=True))
    assert back == [(longest, b"1")]


@pytest.mark.parametrize(
    "body",
    [
        lambda tr: tr.set(b"", b"v"),
        lambda tr: tr.set(b"k" * (KEY_BYTES_MAX + 1), b"v"),
        lambda tr: tr.set(b"k", b"v" * (VALUE_BYTES_MAX + 1)),
        lambda tr: tr.get(b"k" * (KEY_BYTES_MAX + 1)),
        lambda tr: tr.get(b""),
        lambda tr: tr.get_many([b"a", b""]),
        lambda tr: tr.snapshot.get_many([b"k" * (KEY_BYTES_MAX + 1)]),
        lambda tr: tr.clear(b""),
        lambda tr: tr.add(b"", 1),
        lambda tr: tr.add_read_conflict_key(b""),
        lambda tr: tr.add_write_conflict_key(b"k" * (KEY_BYTES_MAX + 1)),
        lambda tr: [tr.set(b"k%d" % i, b"v" * VALUE_BYTES_MAX) for i in range(101)],
    ],
)
async def test_limits_are_those_of_every_backend(db: Database, body: object) -> None:
    with pytest.raises(StoreLimit):
        await db.run(body)  # type: ignore[arg-type]
    assert await db.read(lambda tr: tr.get_range(b"", b"\xff")) == []


async def test_the_largest_key_and_value_are_held(db: Database) -> None:
    key, value = b"k" * KEY_BYTES_MAX, b"v" * VALUE_BYTES_MAX
    await db.run(lambda tr: tr.set(key, value))
    assert await db.read(lambda tr: tr.get(key)) == value


async def test_an_attempt_says_that_it_committed(db: Database) -> None:
    assert await db.attempt(lambda tr: tr.set(b"k", b"v")) == Committed(None)
    assert await db.attempt(lambda tr: tr.get(b"k")) == Committed(b"v")


async def test_what_raises_beside_others_takes_back_only_its_own(db: Database) -> None:
    def good(name: bytes) -> object:
        return db.run(lambda tr: tr.set(name, b"good"))

    def bad(tr: Transaction) -> None:
        tr.set(b"bad", b"bad")
        tr.set(b"g0", b"bad")
        raise LookupError("on purpose")

    done = await asyncio.gather(
        good(b"g0"), db.run(bad), good(b"g1"), db.run(bad), good(b"g2"), return_exceptions=True
    )
    assert [type(result) for result in done] == [
        type(None),
        LookupError,
        type(None),
        LookupError,
        type(None),
    ]
    everything = await db.read(lambda tr: tr.get_range(b"", b"\xff"))
    assert everything == [(b"g0", b"good"), (b"g1", b"good"), (b"g2", b"good")]


async def test_a_counter_wraps_and_is_signed(db: Database) -> None:
    await db.run(lambda tr: tr.add(b"c", -5))
    assert int64(await db.read(lambda tr: tr.get(b"c"))) == -5
    await db.run(lambda tr: tr.add(b"c", 7))
    assert int64(await db.read(lambda tr: tr.get(b"c"))) == 2
    await db.run(lambda tr: tr.set(b"c", (2**63 - 1).to_bytes(8, "little")))
    await db.run(lambda tr: tr.add(b"c", 1))
    assert int64(await db.read(lambda tr: tr.get(b"c"))) == -(2**63)


async def test_a_closed_database_says_so(backend: Backend) -> None:
    db = await backend.open()
    await db.run(lambda tr: tr.set(b"k", b"v"))
    await db.close()
    await db.close()
    with pytest.raises(StoreClosed):
        await db.run(lambda tr: tr.get(b"k"))
    with pytest.raises(StoreClosed):
        await db.read(lambda tr: tr.get(b"k"))


async def test_what_was_committed_is_there_for_the_next_client(backend: Backend) -> None:
    first = await backend.open()
    await first.run(lambda tr: tr.set(b"k", b"v"))
    second = await backend.open()
    await first.close()
    assert await second.read(lambda tr: tr.get(b"k")) == b"v"
