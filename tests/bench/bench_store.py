"""Releases through the protocol beside the bare backend, and CreateLive by many callers at once.

The bare rival does the same reads and writes on the same backend in the same run, in turns with
ours, with its keys and values made beforehand: what it leaves out is the protocol, its encoding and
the way to the writer and back. One release reads generation and cursor, and writes cursor and
checkpoint. Commits are flushed to the disk, as in production.
"""

import asyncio
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import lmdb

from ownership import keys
from ownership.kv import Committed, Conflict, Database, Transaction, Unknown
from ownership.lives import create_live
from ownership.lmdb_store import open_lmdb
from ownership.memory import Faults, MemoryDatabase, MemoryStore
from ownership.model import Created, CreateLive, Generation, NoFreeSlot, Released, ReleaseItem
from ownership.open import open_database
from ownership.release import release
from ownership.workers import list_workers, register_worker
from schemas.options import LiveOptions
from schemas.store_values import (
    Checkpoint,
    Cursor,
    GenerationValue,
    SegmentBounds,
    WorkerState,
    WorkerValue,
)

LIVES = 256
ROUNDS = 15
SINGLES = 60
CALLERS = 64

T = TypeVar("T")
Row = dict[str, Any]


def row(
    name: str,
    value: float,
    unit: str,
    against: str | None = None,
    against_value: float | None = None,
) -> Row:
    ratio = None if against_value is None else value / against_value
    return {
        "name": name,
        "value": value,
        "unit": unit,
        "against": against,
        "against_value": against_value,
        "ratio": ratio,
    }


def live_id(i: int) -> str:
    return f"01JBENCH{i:018d}"


def checkpoint(offset: int, now_ms: int) -> Checkpoint:
    bounds = SegmentBounds(offset, 0, offset + 1, 0)
    return Checkpoint((bounds,), 4800, -1, 3, 1234 + offset, now_ms)


def batch(offset: int, lives: int = LIVES) -> list[ReleaseItem]:
    return [
        ReleaseItem(
            live_id(i),
            Generation("w0", 1),
            offset,
            offset + 1,
            f"release-{i}-{offset}",
            offset,
            checkpoint(offset, i),
        )
        for i in range(lives)
    ]


def bare_batch(offset: int, lives: int = LIVES) -> list[tuple[bytes, bytes, bytes, bytes, bytes]]:
    """(gen key, cursor key, cursor, progress key, checkpoint) of each release."""
    return [
        (
            keys.gen(live_id(i)),
            keys.cursor(live_id(i)),
            Cursor(offset + 1, offset, f"release-{i}-{offset}").encode(),
            keys.progress(live_id(i)),
            checkpoint(offset, i).encode(),
        )
        for i in range(lives)
    ]


async def filled(db: Database, lives: int = LIVES) -> None:
    """One worker that owns the lives; large enough that their slots are found at once."""
    worker = WorkerValue("w0", "n0", 2 * LIVES, "", WorkerState.READY, 0)
    await register_worker(db, worker)
    for i in range(lives):
        request = create_request(live_id(i), "w0", i)
        assert isinstance(await create_live(db, request), Created)


def create_request(name: str, target: str, draw: int) -> CreateLive:
    return CreateLive(name, LiveOptions(), draw % 24, target, f"c{name}", f"k{name}", 1, draw)


async def timed(call: Coroutine[Any, Any, Any]) -> float:
    begun_s = time.perf_counter()
    await call
    return time.perf_counter() - begun_s


async def released(db: Database, items: list[ReleaseItem]) -> None:
    results = await release(db, items)
    assert all(isinstance(result, Released) for result in results)


async def one_by_one(db: Database, items: list[ReleaseItem]) -> None:
    for item in items:
        await released(db, [item])


async def beside(
    ours: Callable[[int], Coroutine[Any, Any, None]],
    bare: Callable[[int], Coroutine[Any, Any, None]],
    rounds: int,
) -> tuple[float, float]:
    """Median seconds of both, measured in turns; the first round warms up."""
    pairs = [(await timed(ours(i)), await timed(bare(i))) for i in range(rounds + 1)]
    mine, its = zip(*pairs[1:], strict=True)
    return statistics.median(mine), statistics.median(its)


@contextmanager
def bare_lmdb(path: Path) -> Iterator[lmdb.Environment]:
    env = lmdb.open(str(path), map_size=1 << 30)
    with env.begin(write=True) as txn:
        for i in range(LIVES):
            txn.put(keys.gen(live_id(i)), GenerationValue("w0", 1, i, "c", 1).encode())
            txn.put(keys.cursor(live_id(i)), Cursor(0).encode())
    try:
        yield env
    finally:
        env.close()


def release_bare(env: lmdb.Environment, items: list[tuple[bytes, ...]]) -> None:
    with env.begin(write=True) as txn:
        for gen, cursor, moved, progress, where in items:
            txn.get(gen)
            txn.get(cursor)
            txn.put(cursor, moved)
            txn.put(progress, where)


async def against_lmdb(directory: Path) -> list[Row]:
    with bare_lmdb(directory / "bare") as env:
        async with open_lmdb(directory / "ours") as db:
            await filled(db)
            batches = [batch(offset) for offset in range(ROUNDS + 1)]
            bare_batches = [bare_batch(offset) for offset in range(ROUNDS + 1)]

            async def bare(i: int) -> None:
                release_bare(env, bare_batches[i])

            ours_s, bare_s = await beside(lambda i: released(db, batches[i]), bare, ROUNDS)
            singles = [batch(ROUNDS + 1 + offset, SINGLES) for offset in range(6)]
            bare_singles = [bare_batch(offset, SINGLES) for offset in range(6)]

            async def bare_single(i: int) -> None:
                for item in bare_singles[i]:
                    release_bare(env, [item])

            one_s, bare_one_s = await beside(lambda i: one_by_one(db, singles[i]), bare_single, 5)
    per_s, bare_per_s = LIVES / ours_s, LIVES / bare_s
    return [
        row("release_batched_vs_bare_lmdb", per_s, "releases/s", "bare lmdb", bare_per_s),
        row(
            "release_single_vs_bare_lmdb",
            SINGLES / one_s,
            "releases/s",
            "bare lmdb",
            SINGLES / bare_one_s,
        ),
    ]


async def against_foundationdb(file: str) -> list[Row]:
    """The bare rival: the bindings alone, reads pipelined, in the same kind of thread."""
    import fdb

    db = await open_database(f"fdb://{file}?prefix=bench-{os.getpid()}")
    async with db:
        await filled(db)
        handle = fdb.open(file)
        batches = [batch(offset) for offset in range(ROUNDS + 1)]
        bare_batches = [bare_batch(offset) for offset in range(ROUNDS + 1)]
        prefix = b"bench-bare-"

        def release_once(items: list[tuple[bytes, bytes, bytes, bytes, bytes]]) -> None:
            tr = handle.create_transaction()
            sent = [tr.get(prefix + key) for item in items for key in item[:2]]
            for lazy in sent:
                _ = lazy.value
            for _, cursor, moved, progress, where in items:
                tr.set(prefix + cursor, moved)
                tr.set(prefix + progress, where)
            tr.commit().wait()

        ours_s, bare_s = await beside(
            lambda i: released(db, batches[i]),
            lambda i: asyncio.to_thread(release_once, bare_batches[i]),
            ROUNDS,
        )
        await db.run(lambda tr: tr.clear_range(b"", b"\xff"))
        await asyncio.to_thread(lambda: handle.clear_range_startswith(prefix))
    return [row("release_batched_vs_bare_fdb", LIVES / ours_s, "releases/s", "fdb", LIVES / bare_s)]


async def create_by_many(
    clients: list[Database], workers: int, capacity: int, wanted: int
) -> tuple[list[float], int]:
    """(seconds of each successful creation, how many were refused for lack of a slot)."""
    rng = random.Random(1)
    names = iter(range(wanted))
    taken_s: list[float] = []
    refused = 0

    async def caller(db: Database) -> None:
        nonlocal refused
        for i in names:
            begun_s = time.perf_counter()
            # As dispatch does: the candidates in some order, until one admits.
            for target in rng.sample(range(workers), workers):
                request = create_request(f"live{i}", f"w{target}", rng.getrandbits(60))
                result = await create_live(db, request)
                if not isinstance(result, NoFreeSlot):
                    assert isinstance(result, Created)
                    taken_s.append(time.perf_counter() - begun_s)
                    break
            else:
                refused += 1

    for i in range(workers):
        value = WorkerValue(f"w{i}", f"n{i}", capacity, "", WorkerState.READY, 0)
        await register_worker(clients[0], value)
    await asyncio.gather(*(caller(db) for db in clients))
    return taken_s, refused


class CountingDatabase(MemoryDatabase):
    """Counts attempts and those that conflicted."""

    attempts = 0
    conflicts = 0

    async def attempt(self, body: Callable[[Transaction], T]) -> Committed[T] | Conflict | Unknown:
        outcome = await super().attempt(body)
        CountingDatabase.attempts += 1
        CountingDatabase.conflicts += isinstance(outcome, Conflict)
        return outcome


async def creations(directory: Path) -> list[Row]:
    async with open_lmdb(directory / "create") as db:
        taken_s, _ = await create_by_many([db] * CALLERS, 100, 500, 3000)
    slices = statistics.quantiles(taken_s, n=100)
    # The optimistic store, with commits that are under way for a while as in a cluster.
    faults = Faults(commit_s=(0.001, 0.004), reply_s=(0.0, 0.001))
    store = MemoryStore()
    clients: list[Database] = [
        CountingDatabase(store, random.Random(i), faults) for i in range(CALLERS)
    ]
    sparse_s, _ = await create_by_many(clients, 100, 500, 3000)
    retries = CountingDatabase.conflicts / len(sparse_s)
    # Filled to the last slot, with a hundred callers too many.
    store = MemoryStore()
    clients = [MemoryDatabase(store, random.Random(i), faults) for i in range(CALLERS)]
    full_s, refused = await create_by_many(clients, 10, 50, 600)
    held = [view.held for view in await list_workers(clients[0])]
    assert len(full_s) == 500
    assert refused == 100
    return [
        row("store_create_live_p50_ms", slices[49] * 1000, "ms"),
        row("store_create_live_p99_ms", slices[98] * 1000, "ms"),
        row("store_create_live_per_s", len(taken_s) / (sum(taken_s) / CALLERS), "lives/s"),
        row("store_create_live_retries_per_commit", retries, "retries"),
        row("store_create_live_overshoot", float(max(held) - 50), "slots"),
    ]


async def measure() -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="dhsched-bench-") as name:
        found = await against_lmdb(Path(name))
        found += await creations(Path(name))
    file = os.environ.get("FDB_CLUSTER_FILE")
    if file is not None:
        found += await against_foundationdb(file)
    return found


def rows() -> list[Row]:
    """The figures of this module, for `make bench`."""
    return asyncio.run(measure())


if __name__ == "__main__":
    for one in rows():
        print(one)
