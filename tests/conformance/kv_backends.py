"""The backends that the store's conformance suite runs on, behind one handle."""

import asyncio
import os
import random
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from ownership.foundationdb_store import open_foundationdb
from ownership.kv import Committed, Conflict, Database, Transaction, Unknown
from ownership.memory import MemoryDatabase, MemoryStore
from ownership.open import open_database
from tests.conformance.fdb_cluster import AVAILABLE, cluster_file
from tests.conformance.fdb_standin import StandIn

Outcome = Committed[Any] | Conflict | Unknown


class Backend:
    """One empty store, and as many clients of it as a test wants."""

    name: str
    optimistic: bool
    url: str | None = None

    def __init__(self) -> None:
        self._open: list[Database] = []

    async def _connect(self) -> Database:
        raise NotImplementedError

    async def open(self) -> Database:
        """Another client."""
        db = await self._connect()
        self._open.append(db)
        return db

    async def close(self) -> None:
        """Close every client; they may have been closed before."""
        for db in self._open:
            await db.close()

    async def overlap(
        self,
        db: Database,
        late: Callable[[Transaction], Any],
        early: Callable[[Transaction], Any],
    ) -> tuple[Outcome, Outcome]:
        """Commit `early` between the body of `late` and its commit; (late's, early's) outcome."""
        raise NotImplementedError


class MemoryBackend(Backend):
    name = "memory"
    optimistic = True

    def __init__(self) -> None:
        super().__init__()
        self.store = MemoryStore()

    async def _connect(self) -> Database:
        return MemoryDatabase(self.store, random.Random(len(self._open)))

    async def overlap(
        self,
        db: Database,
        late: Callable[[Transaction], Any],
        early: Callable[[Transaction], Any],
    ) -> tuple[Outcome, Outcome]:
        # Bodies run in turn, then commits in turn: the first to run commits first.
        done = await asyncio.gather(db.attempt(early), db.attempt(late))
        return done[1], done[0]


class LmdbBackend(Backend):
    name = "lmdb"
    optimistic = False

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.url = f"lmdb://{path}?sync=off"

    async def _connect(self) -> Database:
        assert self.url is not None
        return await open_database(self.url, random.Random(len(self._open)))


class FdbBackend(Backend):
    """A real cluster."""

    name = "foundationdb"
    optimistic = True

    def __init__(self, cluster_file: str, prefix: str) -> None:
        super().__init__()
        self.url = f"fdb://{cluster_file}?prefix={prefix}"

    async def _connect(self) -> Database:
        assert self.url is not None
        return await open_database(self.url, random.Random(len(self._open)))

    async def overlap(
        self,
        db: Database,
        late: Callable[[Transaction], Any],
        early: Callable[[Transaction], Any],
    ) -> tuple[Outcome, Outcome]:
        read, go_on = threading.Event(), threading.Event()

        def held(tr: Transaction) -> Any:
            value = late(tr)
            read.set()
            assert go_on.wait(10)
            return value

        task = asyncio.create_task(db.attempt(held))
        assert await asyncio.to_thread(read.wait, 10)
        try:
            early_outcome = await db.attempt(early)
        finally:
            go_on.set()
        return await task, early_outcome


class StandInBackend(FdbBackend):
    """Our FoundationDB backend on a stand-in for the bindings: no cluster is needed."""

    name = "stand-in"

    def __init__(self, path: Path) -> None:
        Backend.__init__(self)
        self.bindings = StandIn()
        self.cluster_file = path / "fdb.cluster"
        self.cluster_file.write_text("test:test@127.0.0.1:4500\n")

    async def _connect(self) -> Database:
        return await open_foundationdb(
            str(self.cluster_file),
            bindings=self.bindings,
            rng=random.Random(len(self._open)),
            watch_poll_s=0.2,
        )

    async def close(self) -> None:
        await super().close()
        self.bindings.cluster.stop()


OPTIMISTIC = ("memory", "stand-in", *(["foundationdb"] if AVAILABLE else []))
BACKENDS = (*OPTIMISTIC, "lmdb")


@pytest.fixture(params=BACKENDS)
async def backend(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Backend]:
    """An empty store of each kind."""
    made: Backend
    if request.param == "memory":
        made = MemoryBackend()
    elif request.param == "lmdb":
        made = LmdbBackend(tmp_path / "store")
    elif request.param == "stand-in":
        made = StandInBackend(tmp_path)
    else:
        made = FdbBackend(cluster_file(), f"test-{os.getpid()}-{random.getrandbits(48):x}")
        db = await made.open()
        await db.run(lambda tr: tr.clear_range(b"", b"\xff"))
    yield made
    await made.close()


@pytest.fixture
async def db(backend: Backend) -> Database:
    """One client of an empty store."""
    return await backend.open()
