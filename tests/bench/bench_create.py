"""CreateLive by many callers at once, until the last slot of the fleet is taken.

Production's service (the views of a replica, the ranking, the admission) without HTTP and Kafka:
several replicas on one store, each with views of its own that are up to a second old. More lives
are asked for than there are slots; those must be refused, and no worker may hold one too many,
which is counted in the slot keys themselves.
"""

import asyncio
import os
import random
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast

from dispatch.activity import ActivityBook
from dispatch.clock import SystemClock
from dispatch.fleet import Fleet
from dispatch.ids import IdMint
from dispatch.limits import Limits
from dispatch.lives import LiveService, NoCapacity, Opened, Opening
from dispatch.publish import Publisher
from ownership import keys
from ownership.kv import Database, Reads, Transaction
from ownership.lmdb_store import open_lmdb
from ownership.memory import Faults, MemoryDatabase, MemoryStore
from ownership.open import open_database
from ownership.tuple_layer import prefix_range
from ownership.workers import register_worker
from schemas.options import LiveOptions
from schemas.store_values import WorkerState, WorkerValue
from tests.bench.figures import Row, load, percentile, row

WORKERS = 100
SLOTS = 500
CALLERS = 64
REPLICAS = 4
TOO_MANY = 64
PARTITIONS = 24
P99_MS_MAX = 98.3

T = TypeVar("T")


@dataclass(slots=True)
class Counting:
    """A database that counts how often a body ran again."""

    db: Database
    calls: int = 0
    runs: int = 0

    async def run(
        self,
        body: Callable[[Transaction], T],
        probe: Callable[[Reads], T | None] | None = None,
    ) -> T:
        def counted(tr: Transaction) -> T:
            self.runs += 1
            return body(tr)

        self.calls += 1
        return await self.db.run(counted, probe)

    async def read(self, body: Callable[[Reads], T]) -> T:
        return await self.db.read(body)


class Unheard:
    """Takes the service's reports of what happened."""

    def report(self, *_: object) -> None: ...


@dataclass(slots=True)
class Result:
    """What the callers saw."""

    took_ms: list[float] = field(default_factory=list)
    refused: int = 0
    seconds: float = 0.0


def replica(db: Counting, seed: int) -> tuple[LiveService, Fleet]:
    """One Dispatch replica's service and its views."""
    clock, limits = SystemClock(), Limits()
    store = cast(Database, db)
    fleet = Fleet(store, clock, refresh_ms=limits.refresh_ms)
    mint = IdMint(clock, random.Random(seed))
    unheard = cast(Publisher, Unheard())
    book = ActivityBook(store)
    return LiveService(store, fleet, unheard, book, mint, clock, limits, PARTITIONS), fleet


async def create_all(services: list[LiveService], wanted: int) -> Result:
    """`CALLERS` callers, each with one request under way, until all were asked for."""
    result = Result()
    left = iter(range(wanted))

    async def caller(service: LiveService) -> None:
        for _ in left:
            begun_s = time.perf_counter()
            outcome = await service.create(Opening(LiveOptions()))
            if isinstance(outcome, Opened):
                result.took_ms.append((time.perf_counter() - begun_s) * 1000)
            else:
                assert isinstance(outcome, NoCapacity), outcome
                result.refused += 1

    begun_s = time.perf_counter()
    await asyncio.gather(*(caller(services[i % REPLICAS]) for i in range(CALLERS)))
    result.seconds = time.perf_counter() - begun_s
    return result


async def look_again(fleet: Fleet) -> None:
    """What a replica does beside its requests."""
    while True:
        await asyncio.sleep(1)
        await fleet.refresh()


async def slots_held(db: Database) -> list[int]:
    """The slot keys of each worker, counted one by one."""

    async def of(worker_id: str) -> int:
        begin, end = prefix_range(keys.slots_of(worker_id))
        return len(await db.read(lambda tr: tr.get_range(begin, end)))

    return [await of(f"w{i}") for i in range(WORKERS)]


async def fill(backend: str, databases: list[Database]) -> list[Row]:
    """The rows of one backend; `databases` are one for each replica."""
    for i in range(WORKERS):
        value = WorkerValue(f"w{i}", f"n{i}", SLOTS, "", WorkerState.READY, 0)
        await register_worker(databases[0], value)
    counting = [Counting(db) for db in databases]
    replicas = [replica(db, seed) for seed, db in enumerate(counting)]
    looking = [asyncio.create_task(look_again(fleet)) for _, fleet in replicas]
    try:
        services = [service for service, _ in replicas]
        result = await create_all(services, WORKERS * SLOTS + TOO_MANY)
    finally:
        for task in looking:
            task.cancel()
        await asyncio.gather(*looking, return_exceptions=True)
    held = await slots_held(databases[0])
    again = sum(db.runs - db.calls for db in counting)
    refused = sum(service.placements_refused for service in services)
    created = len(result.took_ms)
    of: dict[str, Any] = {"callers": CALLERS, "workers": WORKERS, "slots": SLOTS, "load": load()}

    def named(what: str) -> str:
        return f"store_create_live_{what}" + ("" if backend == "lmdb" else f"_{backend}")

    tenth = created // 10
    at_first = percentile(result.took_ms[:tenth], 0.5)
    at_last = percentile(result.took_ms[-tenth:], 0.5)
    over = max(0, *(count - SLOTS for count in held))
    filled = "required: every slot taken"
    return [
        row(named("p50_ms"), percentile(result.took_ms, 0.5), "ms", **of),
        row(named("p99_ms"), percentile(result.took_ms, 0.99), "ms", "required", P99_MS_MAX, **of),
        row(named("last_tenth_p50_ms"), at_last, "ms", "the first tenth", at_first, **of),
        row(named("per_s"), created / result.seconds, "lives/s", **of),
        row(named("retries_per_commit"), again / created, "retries", **of),
        row(named("refused_per_commit"), refused / created, "placements tried in vain", **of),
        row(named("slots_taken"), sum(held), "slots", filled, WORKERS * SLOTS, **of),
        row(named("refused"), result.refused, "lives", "required: those too many", TOO_MANY, **of),
        row(named("overshoot"), over, "slots beyond a worker's", "required: none", 0, **of),
    ]


async def measure() -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="dhsched-bench-") as name:
        async with open_lmdb(Path(name)) as db:
            found = await fill("lmdb", [db] * REPLICAS)
    # The optimistic store, with commits that are under way for a while as in a cluster.
    store, faults = MemoryStore(), Faults(commit_s=(0.001, 0.004), reply_s=(0.0, 0.001))
    clients = [MemoryDatabase(store, random.Random(i), faults) for i in range(REPLICAS)]
    found += await fill("memory", list(clients))
    file = os.environ.get("FDB_CLUSTER_FILE")
    if file is not None:
        async with await open_database(f"fdb://{file}?prefix=bench-create-{os.getpid()}") as db:
            found += await fill("fdb", [db] * REPLICAS)
            await db.run(lambda tr: tr.clear_range(b"", b"\xff"))
    return found


def rows() -> list[Row]:
    """The figures of this module, for `make bench`."""
    return asyncio.run(measure())


if __name__ == "__main__":
    for one in rows():
        print(one)
