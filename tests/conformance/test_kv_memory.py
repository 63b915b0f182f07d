"""What is special about the store in memory: faults, determinism, and serializable histories."""

import asyncio
import random
from collections.abc import Coroutine, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ownership.kv import CommitUnknown, Conflict, StoreAway, Transaction, Unknown, int64
from ownership.memory import Faults, MemoryDatabase, MemoryStore
from ownership.memory_store import COMMITS_REMEMBERED
from ownership.retry import Retry


class VirtualLoop(asyncio.SelectorEventLoop):
    """Time jumps to the next timer, so that delays cost nothing and their order is exact."""

    def __init__(self) -> None:
        super().__init__()
        self._now_s = 0.0

    def time(self) -> float:
        return self._now_s

    def _run_once(self) -> None:  # type: ignore[override]
        if not self._ready and self._scheduled:  # type: ignore[attr-defined]
            self._now_s = max(self._now_s, self._scheduled[0].when())  # type: ignore[attr-defined]
        super()._run_once()  # type: ignore[misc]


def virtually(coroutine: Coroutine[Any, Any, Any]) -> Any:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(coroutine)


def append(tr: Transaction, me: str) -> int:
    """Put an id at the end of a list once, however often it runs. Self-conflicting."""
    log = (tr.get(b"log") or b"").split()
    if me.encode() not in log:
        log.append(me.encode())
        tr.set(b"log", b" ".join(log))
    return log.index(me.encode())


EVERYTHING = Faults(
    conflict=0.1,
    unknown_applied=0.1,
    unknown_dropped=0.1,
    unknown_late=0.15,
    begin_s=(0.0, 0.01),
    commit_s=(0.0, 0.01),
    reply_s=(0.0, 0.01),
    late_s=(0.0, 0.2),
)


async def busy(seed: int, clients: int = 4, times: int = 15) -> list[tuple[int, Mapping]]:
    history: list[tuple[int, Mapping]] = []
    store = MemoryStore(on_commit=lambda version, changes: history.append((version, changes)))
    rng = random.Random(seed)
    dbs = [
        MemoryDatabase(store, random.Random(rng.getrandbits(64)), EVERYTHING)
        for _ in range(clients)
    ]

    async def some(name: int) -> None:
        for i in range(times):
            await dbs[name].run(lambda tr, i=i: append(tr, f"{name}-{i}"))

    await asyncio.gather(*(some(name) for name in range(clients)))
    for db in dbs:
        await db.close()
    return history


def test_each_intent_is_applied_once_under_every_fault() -> None:
    for seed in range(10):
        history = virtually(busy(seed))
        log = history[-1][1][b"log"].split()
        assert len(log) == len(set(log)) == 60
        for client in range(4):
            mine = [entry for entry in log if entry.startswith(b"%d-" % client)]
            assert mine == [b"%d-%d" % (client, i) for i in range(15)]


def test_a_seed_replays_exactly() -> None:
    assert virtually(busy(3)) == virtually(busy(3))
    assert virtually(busy(3)) != virtually(busy(4))


@pytest.mark.parametrize(
    ("faults", "outcome", "applied"),
    [
        (Faults(conflict=1), Conflict, False),
        (Faults(unknown_applied=1), Unknown, True),
        (Faults(unknown_dropped=1), Unknown, False),
        (Faults(unknown_late=1, late_s=(5, 5)), Unknown, True),
    ],
)
def test_an_injected_outcome_means_what_it_says(
    faults: Faults, outcome: type, applied: bool
) -> None:
    async def main() -> None:
        db = MemoryDatabase(faults=faults)
        assert isinstance(await db.attempt(lambda tr: tr.set(b"k", b"v")), outcome)
        if faults.unknown_late:
            assert await db.read(lambda tr: tr.get(b"k")) is None
        await db.close()
        assert (db.store.contents.values.get(b"k") == b"v") is applied

    virtually(main())


def test_a_late_commit_still_conflicts() -> None:
    async def main() -> bytes | None:
        store = MemoryStore()
        slow = MemoryDatabase(store, faults=Faults(unknown_late=1, late_s=(1, 1)))
        quick = MemoryDatabase(store)
        await quick.run(lambda tr: tr.set(b"k", b"old"))
        outcome = await slow.attempt(lambda tr: (tr.get(b"k"), tr.set(b"k", b"late")))
        assert isinstance(outcome, Unknown)
        await quick.run(lambda tr: tr.set(b"k", b"new"))
        await slow.close()
        return await quick.read(lambda tr: tr.get(b"k"))

    assert virtually(main()) == b"new"


def test_a_store_that_is_away_applies_nothing() -> None:
    async def main() -> None:
        db = MemoryDatabase(faults=Faults(away=1))
        with pytest.raises(StoreAway):
            await db.run(lambda tr: tr.set(b"k", b"v"))
        with pytest.raises(StoreAway):
            await db.read(lambda tr: tr.get(b"k"))
        assert db.store.contents.values == {}

    virtually(main())


def test_retries_end() -> None:
    async def main() -> None:
        retry = Retry(attempts_max=5)
        with pytest.raises(StoreAway, match="conflicts"):
            await MemoryDatabase(faults=Faults(conflict=1), retry=retry).run(lambda tr: None)
        with pytest.raises(CommitUnknown):
            await MemoryDatabase(faults=Faults(unknown_dropped=1), retry=retry).run(
                lambda tr: tr.set(b"k", b"v")
            )
        slow = Faults(conflict=1, begin_s=(3, 3))
        begun_s = asyncio.get_running_loop().time()
        with pytest.raises(StoreAway):
            await MemoryDatabase(faults=slow, retry=Retry(total_s_max=10)).run(lambda tr: None)
        assert asyncio.get_running_loop().time() - begun_s < 20

    virtually(main())


def test_away_after_unknown_is_unknown() -> None:
    async def main() -> None:
        faults = Faults(unknown_applied=1)
        db = MemoryDatabase(faults=faults, retry=Retry(pause_s=1, pause_s_max=1))
        task = asyncio.create_task(db.run(lambda tr: append(tr, "me")))
        await asyncio.sleep(0.1)
        faults.away = 1
        with pytest.raises(CommitUnknown, match="injected"):
            await task

    virtually(main())


def test_a_probe_answers_for_a_body_that_cannot_find_itself() -> None:
    async def main() -> None:
        faults = Faults(unknown_applied=1)
        db = MemoryDatabase(faults=faults)
        task = asyncio.create_task(
            db.run(lambda tr: tr.add(b"n", 1), lambda tr: True if tr.get(b"n") else None)
        )
        assert await task is True
        assert int64(db.store.contents.values[b"n"]) == 1

    virtually(main())


def test_a_commit_that_was_sent_outlives_its_caller() -> None:
    async def main() -> None:
        db = MemoryDatabase(faults=Faults(commit_s=(1, 1)))
        task = asyncio.create_task(db.run(lambda tr: tr.set(b"k", b"v")))
        await asyncio.sleep(0.5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await db.close()
        assert db.store.contents.values == {b"k": b"v"}

    virtually(main())


def test_reads_older_than_the_remembered_past_conflict() -> None:
    async def main() -> None:
        store = MemoryStore()
        slow = MemoryDatabase(store, faults=Faults(commit_s=(1, 1)))
        task = asyncio.create_task(slow.attempt(lambda tr: (tr.get(b"k"), tr.set(b"k", b"v"))))
        await asyncio.sleep(0)
        await asyncio.sleep(0.5)
        quick = MemoryDatabase(store)
        for _ in range(COMMITS_REMEMBERED + 1):
            await quick.run(lambda tr: tr.set(b"other", b""))
        assert await task == Conflict()

    virtually(main())


names = st.sampled_from([b"a", b"b", b"c", b"d"])
operations = st.one_of(
    st.tuples(st.just("get"), names),
    st.tuples(st.just("range"), names, names),
    st.tuples(st.just("set"), names),
    st.tuples(st.just("clear"), names),
    st.tuples(st.just("clear_range"), names, names),
    st.tuples(st.just("add"), names),
)


@settings(max_examples=150, deadline=None)
@given(
    programs=st.lists(st.lists(operations, min_size=1, max_size=5), min_size=2, max_size=12),
    seed=st.integers(0, 2**32),
)
def test_concurrent_histories_are_serializable(programs: list[list[tuple]], seed: int) -> None:
    """In the order of their commits, all transactions read what they would have read alone."""

    def execute(tr: Transaction, program: list[tuple], number: int) -> list:
        seen: list = []
        for step in program:
            match step:
                case ("get", key):
                    seen.append(tr.get(key))
                case ("range", begin, end):
                    seen.append(tr.get_range(begin, end + b"\xff", limit=3))
                case ("set", key):
                    tr.set(key, b"%d" % number)
                case ("clear", key):
                    tr.clear(key)
                case ("clear_range", begin, end):
                    tr.clear_range(begin, end)
                case ("add", key):
                    tr.add(key, number + 1)
        # Every program writes a key of its own, by which its place in the order is known.
        tr.set(b"mark%d" % number, b"")
        return seen

    async def concurrently() -> tuple[list[int], dict[int, list], dict[bytes, bytes]]:
        order: list[int] = []

        def note(_: int, changes: Mapping[bytes, bytes | None]) -> None:
            order.extend(int(key[4:]) for key in changes if key.startswith(b"mark"))

        store = MemoryStore(on_commit=note)
        faults = Faults(begin_s=(0, 0.003), commit_s=(0, 0.01), reply_s=(0, 0.01))
        rng = random.Random(seed)
        dbs = [MemoryDatabase(store, random.Random(rng.random()), faults) for _ in range(3)]
        seen = await asyncio.gather(
            *(
                dbs[i % 3].run(lambda tr, i=i: execute(tr, programs[i], i))
                for i in range(len(programs))
            )
        )
        return order, dict(enumerate(seen)), store.contents.values

    async def one_by_one(order: list[int]) -> tuple[dict[int, list], dict[bytes, bytes]]:
        db = MemoryDatabase()
        seen = {i: await db.run(lambda tr, i=i: execute(tr, programs[i], i)) for i in order}
        return seen, db.store.contents.values

    order, seen, left = virtually(concurrently())
    assert sorted(order) == list(range(len(programs)))
    alone, alone_left = virtually(one_by_one(order))
    assert seen == alone
    assert left == alone_left
