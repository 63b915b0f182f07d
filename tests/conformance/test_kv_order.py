"""Strict serializability, conflicts, cancellation and watches, on every backend."""

import asyncio
import random

import pytest

from ownership.kv import Committed, Conflict, Database, Reads, Transaction, int64
from tests.conformance.fdb_cluster import AVAILABLE, HELP
from tests.conformance.kv_backends import OPTIMISTIC, Backend, backend, db

__all__ = ["backend", "db"]


def get_int(tr: Reads, key: bytes) -> int:
    return int64(tr.get(key))


def put_int(tr: Transaction, key: bytes, number: int) -> None:
    tr.set(key, number.to_bytes(8, "little", signed=True))


def test_foundationdb_is_among_the_backends() -> None:
    if not AVAILABLE:
        pytest.skip(HELP)
    assert "foundationdb" in OPTIMISTIC


async def test_increments_are_never_lost(backend: Backend) -> None:
    clients = [await backend.open() for _ in range(3)]

    def increment(tr: Transaction) -> int:
        number = get_int(tr, b"n") + 1
        put_int(tr, b"n", number)
        return number

    async def some(db: Database) -> list[int]:
        return [await db.run(increment) for _ in range(20)]

    seen = await asyncio.gather(*(some(db) for db in clients for _ in range(3)))
    assert sorted(number for part in seen for number in part) == list(range(1, 181))


async def test_transfers_keep_the_sum_in_every_snapshot(backend: Backend) -> None:
    clients = [await backend.open() for _ in range(3)]
    accounts = [b"account%d" % i for i in range(6)]
    await clients[0].run(lambda tr: [put_int(tr, name, 100) for name in accounts])
    rng = random.Random(7)
    running = True

    async def transfer(db: Database) -> None:
        for _ in range(30):
            source, target = rng.sample(accounts, 2)
            amount = rng.randrange(50)

            def body(
                tr: Transaction,
                source: bytes = source,
                target: bytes = target,
                amount: int = amount,
            ) -> None:
                put_int(tr, source, get_int(tr, source) - amount)
                put_int(tr, target, get_int(tr, target) + amount)

            await db.run(body)

    async def audit(db: Database) -> int:
        audits = 0
        while running:
            pairs = await db.read(lambda tr: tr.get_range(b"account", b"accounu"))
            assert sum(int64(value) for _, value in pairs) == 600
            audits += 1
        return audits

    auditor = asyncio.create_task(audit(clients[2]))
    await asyncio.gather(*(transfer(db) for db in clients[:2] for _ in range(3)))
    running = False
    assert await auditor > 0


async def test_what_was_answered_is_seen_by_every_later_call(backend: Backend) -> None:
    writer, reader = await backend.open(), await backend.open()
    for number in range(50):
        await writer.run(lambda tr, number=number: put_int(tr, b"n", number))
        assert await reader.read(lambda tr: get_int(tr, b"n")) == number
        assert await reader.run(lambda tr: get_int(tr, b"n")) == number


async def test_two_that_read_both_and_write_one_each_do_not_both_pass(backend: Backend) -> None:
    """Write skew: at most one of two doctors may go off duty."""
    db = await backend.open()
    for attempt in range(10):
        names = [b"%d-a" % attempt, b"%d-b" % attempt]
        await db.run(lambda tr, names=names: [tr.set(name, b"on") for name in names])

        def leave(tr: Transaction, me: int, names: list[bytes] = names) -> bool:
            if all(tr.get(name) == b"on" for name in names):
                tr.set(names[me], b"off")
                return True
            return False

        done = await asyncio.gather(
            db.run(lambda tr: leave(tr, 0)), db.run(lambda tr: leave(tr, 1))
        )
        assert sorted(done) == [False, True]


async def test_no_phantoms(backend: Backend) -> None:
    """Each one counts a range and adds its own key to it: the counts are all different."""
    clients = [await backend.open() for _ in range(2)]

    def body(tr: Transaction, name: bytes) -> int:
        count = len(tr.get_range(b"row", b"rox"))
        tr.set(b"row" + name, b"")
        return count

    counts = await asyncio.gather(
        *(clients[i % 2].run(lambda tr, i=i: body(tr, b"%02d" % i)) for i in range(20))
    )
    assert sorted(counts) == list(range(20))


async def test_additions_all_count(backend: Backend) -> None:
    clients = [await backend.open() for _ in range(2)]
    await asyncio.gather(*(clients[i % 2].run(lambda tr: tr.add(b"c", 3)) for i in range(60)))
    assert int64(await clients[0].read(lambda tr: tr.get(b"c"))) == 180


overlapping = pytest.mark.parametrize("backend", OPTIMISTIC, indirect=True)
CONFLICTING = {
    "point": (lambda tr: tr.get(b"b"), lambda tr: tr.set(b"b", b"x")),
    "absent point": (lambda tr: tr.get(b"b9"), lambda tr: tr.set(b"b9", b"x")),
    "same value": (lambda tr: tr.get(b"b"), lambda tr: tr.set(b"b", b"b")),
    "cleared point": (lambda tr: tr.get(b"b"), lambda tr: tr.clear(b"b")),
    "cleared range": (lambda tr: tr.get(b"b"), lambda tr: tr.clear_range(b"a", b"c")),
    "many": (lambda tr: tr.get_many([b"a", b"c"]), lambda tr: tr.set(b"c", b"x")),
    "range": (lambda tr: tr.get_range(b"a", b"c"), lambda tr: tr.set(b"b", b"x")),
    "phantom": (lambda tr: tr.get_range(b"a", b"c"), lambda tr: tr.set(b"bb", b"x")),
    "ranges": (lambda tr: tr.get_range(b"b", b"d"), lambda tr: tr.clear_range(b"a", b"c")),
    "addition": (lambda tr: tr.get(b"n"), lambda tr: tr.add(b"n", 1)),
    "own addition read": (
        lambda tr: (tr.add(b"n", 1), tr.get(b"n")),
        lambda tr: tr.add(b"n", 1),
    ),
    "read key": (lambda tr: tr.add_read_conflict_key(b"b"), lambda tr: tr.set(b"b", b"x")),
    "write key": (lambda tr: tr.get(b"b"), lambda tr: tr.add_write_conflict_key(b"b")),
    "limit, before it": (
        lambda tr: tr.get_range(b"a", b"z", limit=2),
        lambda tr: tr.set(b"aa", b"x"),
    ),
    "limit, reversed": (
        lambda tr: tr.get_range(b"a", b"d", limit=2, reverse=True),
        lambda tr: tr.set(b"cc", b"x"),
    ),
}
HARMLESS = {
    "another point": (lambda tr: tr.get(b"b"), lambda tr: tr.set(b"c", b"x")),
    "snapshot point": (lambda tr: tr.snapshot.get(b"b"), lambda tr: tr.set(b"b", b"x")),
    "snapshot many": (lambda tr: tr.snapshot.get_many([b"b"]), lambda tr: tr.set(b"b", b"x")),
    "snapshot range": (
        lambda tr: tr.snapshot.get_range(b"a", b"z"),
        lambda tr: tr.set(b"b", b"x"),
    ),
    "end of a range": (lambda tr: tr.get_range(b"a", b"c"), lambda tr: tr.set(b"c", b"x")),
    "beyond the limit": (
        lambda tr: tr.get_range(b"a", b"z", limit=2),
        lambda tr: tr.set(b"bb", b"x"),
    ),
    "beyond the limit, reversed": (
        lambda tr: tr.get_range(b"a", b"d", limit=1, reverse=True),
        lambda tr: tr.set(b"b", b"x"),
    ),
    "both write": (lambda tr: tr.set(b"b", b"y"), lambda tr: tr.set(b"b", b"x")),
    "both add": (lambda tr: tr.add(b"n", 1), lambda tr: tr.add(b"n", 1)),
    "own write read back": (
        lambda tr: (tr.set(b"b", b"y"), tr.get(b"b")),
        lambda tr: tr.set(b"b", b"x"),
    ),
}


async def filled(backend: Backend) -> Database:
    db = await backend.open()
    await db.run(lambda tr: [tr.set(key, key) for key in (b"a", b"b", b"c")])
    return db


@overlapping
@pytest.mark.parametrize("name", CONFLICTING)
async def test_a_read_that_is_no_longer_true_conflicts(backend: Backend, name: str) -> None:
    read, write = CONFLICTING[name]
    db = await filled(backend)

    def late(tr: Transaction) -> None:
        read(tr)
        tr.set(b"late", b"")

    outcome, early = await backend.overlap(db, late, write)
    assert early == Committed(early.value if isinstance(early, Committed) else None)
    assert outcome == Conflict()
    assert await db.read(lambda tr: tr.get(b"late")) is None


@overlapping
@pytest.mark.parametrize("name", HARMLESS)
async def test_a_read_that_is_still_true_does_not(backend: Backend, name: str) -> None:
    read, write = HARMLESS[name]
    db = await filled(backend)

    def late(tr: Transaction) -> None:
        read(tr)
        tr.set(b"late", b"")

    outcome, early = await backend.overlap(db, late, write)
    assert isinstance(early, Committed)
    assert isinstance(outcome, Committed)
    assert await db.read(lambda tr: tr.get(b"late")) == b""


@overlapping
async def test_a_snapshot_read_sees_own_writes_and_the_same_version(backend: Backend) -> None:
    db = await filled(backend)

    def late(tr: Transaction) -> list:
        tr.set(b"mine", b"1")
        return [tr.snapshot.get(b"mine"), tr.snapshot.get(b"b"), tr.get(b"a")]

    outcome, _ = await backend.overlap(db, late, lambda tr: tr.set(b"b", b"x"))
    assert outcome == Committed([b"1", b"b", b"a"])


@overlapping
async def test_what_only_read_commits_beside_writers(backend: Backend) -> None:
    db = await filled(backend)
    outcome, _ = await backend.overlap(db, lambda tr: tr.get(b"b"), lambda tr: tr.set(b"b", b"x"))
    assert outcome == Committed(b"b")


async def test_a_cancelled_caller_leaves_all_or_nothing(backend: Backend) -> None:
    """Wherever the cancellation falls, the pair of keys is written together or not at all."""
    db = await backend.open()
    applied = 0
    for turns in range(12):

        def body(tr: Transaction, turns: int = turns) -> None:
            tr.set(b"left%d" % turns, b"")
            tr.set(b"right%d" % turns, b"")

        task = asyncio.create_task(db.run(body))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        # A later commit of the same client is behind the one that was under way.
        await db.run(lambda tr: tr.set(b"after", b""))
        left, right = await db.read(
            lambda tr, turns=turns: tr.get_many([b"left%d" % turns, b"right%d" % turns])
        )
        assert left == right
        applied += left is not None
    assert applied > 0


async def test_closing_waits_for_what_is_under_way(backend: Backend) -> None:
    db, other = await backend.open(), await backend.open()
    tasks = [asyncio.create_task(db.run(lambda tr: tr.add(b"c", 1))) for _ in range(5)]
    await asyncio.sleep(0)
    for task in tasks[:2]:
        task.cancel()
    await db.close()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert int64(await other.read(lambda tr: tr.get(b"c"))) == 5


async def test_a_watch_fires_for_another_client(backend: Backend) -> None:
    db, other = await backend.open(), await backend.open()
    watch, still = db.watch(b"k"), db.watch(b"other")
    waiting = asyncio.create_task(watch.changed(10))
    await asyncio.sleep(0.05)
    await other.run(lambda tr: tr.set(b"k", b"1"))
    assert await waiting
    await other.run(lambda tr: tr.set(b"k", b"2"))
    assert await watch.changed(10)
    await other.run(lambda tr: tr.clear(b"k"))
    assert await watch.changed(10)
    assert not await still.changed(0.05)
    watch.close()
    still.close()


async def test_many_watches_of_one_key_and_one_that_is_closed(backend: Backend) -> None:
    db = await backend.open()
    watches = [db.watch(b"k") for _ in range(3)]
    waiting = [asyncio.create_task(watch.changed(10)) for watch in watches]
    await asyncio.sleep(0.05)
    watches[0].close()
    assert await waiting[0] is False
    await db.run(lambda tr: tr.add(b"k", 1))
    assert await asyncio.gather(*waiting[1:]) == [True, True]
    assert await watches[0].changed(10) is False
    for watch in watches:
        watch.close()


async def test_closing_ends_the_waiting_of_watches(backend: Backend) -> None:
    db = await backend.open()
    waiting = asyncio.create_task(db.watch(b"k").changed(60))
    await asyncio.sleep(0)
    await db.close()
    assert await asyncio.wait_for(waiting, 10) is False
