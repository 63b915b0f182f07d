"""The order of all commits, written by the commits themselves.

`JournaledDatabase` stands between a process and its store. Every transaction that touches what the
checkers look at writes one entry more, in the same transaction: who committed, when, and what each
key holds from now on. LMDB has one writer at a time over all processes, so a counter beside the
entries numbers them in commit order and costs nothing; on FoundationDB the entries bear its commit
versions, so that nobody conflicts over them.

The nemesis' levers act here as well: a store that cannot be reached, answers that do not come back,
and a process that stops itself between the commit of a release and its answer.
"""

import asyncio
import os
import pickle
import random
import signal
import time
from collections.abc import Callable
from typing import Any, TypeVar

from ownership import keys
from ownership.foundationdb_transaction import FdbTransaction
from ownership.kv import (
    Committed,
    Conflict,
    Reads,
    StoreAway,
    Transaction,
    Unknown,
    add_int64,
    int64,
)
from ownership.retry import Retry, run_attempts
from tests.chaos.diary import Diary
from tests.chaos.levers import Lever, Levers, StoreMode
from tests.sim import history as h

T = TypeVar("T")

WATCHED = (keys.GEN, keys.CURSOR, keys.PROGRESS, keys.SLOT, keys.WORKER, keys.LIVE)
ENTRIES = b"\xfachaos/entry/"
ENTRIES_END = b"\xfachaos/entry0"
COUNT = b"\xfachaos/count"
PROBE = b"\xfachaos/probe"
"""Above every key of the protocol, so that none of its ranges meets them."""

UNSURE = 0.3
_AWAY_S = 0.05

Change = tuple[bytes, bytes | None]
JournalEntry = tuple[str, int, list[Change]]
"""Process, CLOCK_MONOTONIC in ns while the transaction ran, changes."""


class _Recording:
    """A transaction that keeps what it writes under the watched keys."""

    def __init__(self, tr: Transaction) -> None:
        self._tr = tr
        self.changes: dict[bytes, bytes | None] = {}
        self.get = tr.get
        self.get_many = tr.get_many
        self.get_range = tr.get_range
        self.add_read_conflict_key = tr.add_read_conflict_key
        self.add_write_conflict_key = tr.add_write_conflict_key

    @property
    def snapshot(self) -> Reads:
        return self._tr.snapshot

    def set(self, key: bytes, value: bytes) -> None:
        self._tr.set(key, value)
        if key.startswith(WATCHED):
            self.changes[key] = value

    def clear(self, key: bytes) -> None:
        self._tr.clear(key)
        if key.startswith(WATCHED):
            self.changes[key] = None

    def clear_range(self, begin: bytes, end: bytes) -> None:
        if begin.startswith(WATCHED):
            for key, _ in self._tr.get_range(begin, end):
                self.changes[key] = None
        self._tr.clear_range(begin, end)

    def add(self, key: bytes, delta: int) -> None:
        if key.startswith(WATCHED):
            raise AssertionError("a watched key is added to: the journal would miss it")
        self._tr.add(key, delta)


class _Journaled:
    """A body and its entry; `is_release` is that of the run that committed."""

    def __init__(self, body: Callable[[Any], Any], process: str) -> None:
        self._body = body
        self._process = process
        self.is_release = False

    def __call__(self, tr: Transaction) -> Any:
        recording = _Recording(tr)
        value = self._body(recording)
        changes = recording.changes
        self.is_release = _moves_text(changes)
        if changes:
            entry: JournalEntry = (self._process, time.monotonic_ns(), list(changes.items()))
            _append(tr, pickle.dumps(entry))
        return value


def _append(tr: Transaction, entry: bytes) -> None:
    if isinstance(tr, FdbTransaction):
        place = len(tr._prefix) + len(ENTRIES)
        name = tr._prefix + ENTRIES + bytes(10) + place.to_bytes(4, "little")
        tr._tr.set_versionstamped_key(name, entry)
        tr.wrote = True
        return
    raw = tr.get(COUNT)
    tr.set(COUNT, add_int64(raw, 1))
    tr.set(ENTRIES + int64(raw).to_bytes(8, "big"), entry)


def _moves_text(changes: dict[bytes, bytes | None]) -> bool:
    """A release that lets something be fed: cursors and checkpoints, and nobody gets anything."""
    return any(key.startswith(keys.CURSOR) for key in changes) and not any(
        key.startswith((keys.GEN, keys.LIVE)) for key in changes
    )


class JournaledDatabase:
    """See `ownership.kv.Database`."""

    def __init__(self, db: Any, process: str, diary: Diary, levers: Levers) -> None:
        self._db = db
        self._process = process
        self._diary = diary
        self._levers = levers
        self._rng = random.Random()
        self._retry = Retry()

    async def attempt(self, body: Callable[[Any], T]) -> Committed[T] | Conflict | Unknown:
        """One attempt, with whatever the levers say about it."""
        mode = await self._reach()
        unsure = mode is StoreMode.UNSURE and self._rng.random() < UNSURE
        if unsure and self._rng.random() < 0.5:
            self._fault("unknown_dropped")
            return Unknown("the nemesis lost it on its way")
        self._diary.flush()
        journaled = _Journaled(body, self._process)
        outcome = await self._db.attempt(journaled)
        if isinstance(outcome, Conflict):
            self._fault("conflict_real")
        if journaled.is_release and isinstance(outcome, Committed):
            self._stop_here()
        if unsure and isinstance(outcome, Committed):
            self._fault("unknown_applied")
            return Unknown("the nemesis lost the answer")
        return outcome

    async def run(
        self, body: Callable[[Any], T], probe: Callable[[Reads], T | None] | None = None
    ) -> T:
        return await run_attempts(self, body, probe, self._retry, self._rng)

    async def read(self, body: Callable[[Reads], T]) -> T:
        await self._reach()
        return await self._db.read(body)

    def watch(self, key: bytes) -> "_LeverWatch":
        return _LeverWatch(self._db.watch(key), self._levers)

    async def close(self) -> None:
        await self._db.close()

    async def _reach(self) -> StoreMode:
        mode = StoreMode(self._levers.get(Lever.STORE))
        if mode is StoreMode.AWAY:
            await asyncio.sleep(_AWAY_S)
            raise StoreAway("the nemesis cut the store off")
        return mode

    def _fault(self, kind: str) -> None:
        self._diary.note(h.Fault(self._diary.now_ms, kind, self._process))

    def _stop_here(self) -> None:
        """The release is durable, and nothing was fed yet. The nemesis lets it go on."""
        if self._levers.get(Lever.STOP_AFTER_RELEASE):
            self._levers.set(Lever.STOP_AFTER_RELEASE, 0)
            self._fault("paused_between_commit_and_feed")
            self._fault("pause")
            self._diary.flush()
            os.kill(os.getpid(), signal.SIGSTOP)


class _LeverWatch:
    """A watch that hears nothing while the store is cut off."""

    def __init__(self, watch: Any, levers: Levers) -> None:
        self._watch = watch
        self._levers = levers

    async def changed(self, timeout_s: float) -> bool:
        if self._levers.get(Lever.STORE) == StoreMode.AWAY:
            await asyncio.sleep(timeout_s)
            return False
        return await self._watch.changed(timeout_s)

    def close(self) -> None:
        self._watch.close()
