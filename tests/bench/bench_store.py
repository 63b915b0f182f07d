"""Releases through the protocol beside the bare backend, one by one and batched, per backend.

The bare rival does the same reads and writes on the same backend in the same run, in turns with
ours, with its keys and values made beforehand: what it leaves out is the protocol, its encoding and
the way to the writer and back. One release reads generation and cursor, and writes cursor and
checkpoint. Commits are flushed to the disk, as in production. What is bare of the memory store is a
dictionary.
"""

import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import lmdb

from ownership import keys
from ownership.kv import Database
from ownership.lives import create_live
from ownership.lmdb_store import open_lmdb
from ownership.memory import MemoryDatabase
from ownership.model import Created, CreateLive, Generation, Released, ReleaseItem
from ownership.open import open_database
from ownership.release import release
from ownership.workers import register_worker
from schemas.options import LiveOptions
from schemas.store_values import (
    Checkpoint,
    Cursor,
    GenerationValue,
    SegmentBounds,
    WorkerState,
    WorkerValue,
)
from tests.bench.figures import Row, load, percentile, row

LIVES = 256
BATCHES = 100
SINGLES = 400

Bare = tuple[bytes, bytes, bytes, bytes, bytes]
"""(gen key, cursor key, cursor, progress key, checkpoint) of one release."""


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


def bare_batch(offset: int, lives: int = LIVES) -> list[Bare]:
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


async def timed_ms(call: Awaitable[object]) -> float:
    begun_s = time.perf_counter()
    await call
    return (time.perf_counter() - begun_s) * 1000


async def released(db: Database, items: list[ReleaseItem]) -> None:
    results = await release(db, items)
    assert all(isinstance(result, Released) for result in results)


async def beside(
    ours: Callable[[int], Awaitable[object]], bare: Callable[[int], Awaitable[object]], rounds: int
) -> tuple[list[float], list[float]]:
    """Milliseconds of both, measured in turns; the first round warms up."""
    pairs = [(await timed_ms(ours(i)), await timed_ms(bare(i))) for i in range(rounds + 1)]
    mine, its = zip(*pairs[1:], strict=True)
    return list(mine), list(its)


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


def release_bare(env: lmdb.Environment, items: list[Bare]) -> None:
    with env.begin(write=True) as txn:
        for gen, cursor, moved, progress, where in items:
            txn.get(gen)
            txn.get(cursor)
            txn.put(cursor, moved)
            txn.put(progress, where)


async def both_ways(
    backend: str, db: Database, bare_release: Callable[[list[Bare]], Awaitable[object]]
) -> list[Row]:
    """The rows of one backend: batches of `LIVES`, then one at a time."""
    found: list[Row] = []
    offset = 0
    for way, lives, rounds in (("batched", LIVES, BATCHES), ("single", 1, SINGLES)):
        ours = [batch(at, lives) for at in range(offset, offset + rounds + 1)]
        bare = [bare_batch(at, lives) for at in range(offset, offset + rounds + 1)]
        offset += rounds + 1

        async def our_turn(i: int, items: list[list[ReleaseItem]] = ours) -> None:
            await released(db, items[i])

        async def bare_turn(i: int, items: list[list[Bare]] = bare) -> None:
            await bare_release(items[i])

        ours_ms, bare_ms = await beside(our_turn, bare_turn, rounds)
        found.append(
            row(
                f"release_{way}_vs_bare_{backend}",
                lives * 1000 / statistics.median(ours_ms),
                "releases/s",
                f"bare {backend}, the same reads and writes",
                lives * 1000 / statistics.median(bare_ms),
                lives=lives,
                commit_p50_ms=round(percentile(ours_ms, 0.5), 3),
                commit_p99_ms=round(percentile(ours_ms, 0.99), 3),
                bare_commit_p50_ms=round(percentile(bare_ms, 0.5), 3),
                bare_commit_p99_ms=round(percentile(bare_ms, 0.99), 3),
                load=load(),
            )
        )
    return found


async def against_lmdb(directory: Path) -> list[Row]:
    with bare_lmdb(directory / "bare") as env:
        async with open_lmdb(directory / "ours") as db:
            await filled(db)

            async def bare(items: list[Bare]) -> None:
                release_bare(env, items)

            return await both_ways("lmdb", db, bare)


async def against_memory() -> list[Row]:
    values: dict[bytes, bytes] = {}
    for i in range(LIVES):
        values[keys.gen(live_id(i))] = GenerationValue("w0", 1, i, "c", 1).encode()
        values[keys.cursor(live_id(i))] = Cursor(0).encode()

    async def bare(items: list[Bare]) -> None:
        for gen, cursor, moved, progress, where in items:
            values.get(gen)
            values.get(cursor)
            values[cursor] = moved
            values[progress] = where

    async with MemoryDatabase() as db:
        await filled(db)
        return await both_ways("memory", db, bare)


async def against_foundationdb(file: str) -> list[Row]:
    """The bare rival: the bindings alone, reads pipelined, in the same kind of thread."""
    import fdb

    db = await open_database(f"fdb://{file}?prefix=bench-{os.getpid()}")
    async with db:
        await filled(db)
        handle = fdb.open(file)
        prefix = b"bench-bare-"

        def release_once(items: list[Bare]) -> None:
            tr = handle.create_transaction()
            sent = [tr.get(prefix + key) for item in items for key in item[:2]]
            for lazy in sent:
                _ = lazy.value
            for _, cursor, moved, progress, where in items:
                tr.set(prefix + cursor, moved)
                tr.set(prefix + progress, where)
            tr.commit().wait()

        found = await both_ways("fdb", db, lambda items: asyncio.to_thread(release_once, items))
        await db.run(lambda tr: tr.clear_range(b"", b"\xff"))
        await asyncio.to_thread(lambda: handle.clear_range_startswith(prefix))
    return found


async def measure() -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="dhsched-bench-") as name:
        found = await against_lmdb(Path(name))
    found += await against_memory()
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
