"""The store in memory: optimistic, deterministic, and as unreliable as it is told to be.

It serves the simulator, replay and tests. There is no thread and no wall clock in it: delays are
timers of the running loop, which may keep virtual time, and every random choice comes from the
generator that was handed in. So a seed replays a run exactly.

A body runs at one instant, on the store as it then is. Its commit comes later, at the earliest in
the loop's next turn, and conflicts when anything that it read was written meanwhile. The commit
is a callback of the loop, not part of the caller's task: cancelling the caller does not stop it.
"""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from ownership.closing import ClosesAtEnd
from ownership.kv import (
    Committed,
    Conflict,
    Reads,
    StoreAway,
    StoreClosed,
    Transaction,
    Unknown,
)
from ownership.memory_store import MemoryStore
from ownership.memory_transaction import MemoryReads, MemoryTransaction
from ownership.retry import Retry, run_attempts
from ownership.watching import HintWatch

T = TypeVar("T")
Span = tuple[float, float]


@dataclass(slots=True)
class Faults:
    """What goes wrong, as probabilities per attempt and as spans of seconds.

    `conflict`: refused for no reason. `unknown_*`: the outcome is not told, and the commit was
    applied, dropped, or comes `late_s` later (and then still conflicts if it must). `away`: the
    store cannot be reached, nothing is applied. `begin_s` passes before the body runs, `commit_s`
    between body and commit, `reply_s` between commit and answer; random spans reorder. All of it
    may be changed at any time.
    """

    conflict: float = 0.0
    unknown_applied: float = 0.0
    unknown_dropped: float = 0.0
    unknown_late: float = 0.0
    away: float = 0.0
    begin_s: Span = (0.0, 0.0)
    commit_s: Span = (0.0, 0.0)
    reply_s: Span = (0.0, 0.0)
    late_s: Span = (0.0, 0.0)


class MemoryDatabase(ClosesAtEnd):
    """One client of a `MemoryStore`, with faults of its own. See `ownership.kv.Database`."""

    def __init__(
        self,
        store: MemoryStore | None = None,
        rng: random.Random | None = None,
        faults: Faults | None = None,
        retry: Retry | None = None,
    ) -> None:
        self.store = MemoryStore() if store is None else store
        self.faults = faults
        self._rng = random.Random(0) if rng is None else rng
        self._retry = Retry() if retry is None else retry
        self._under_way = 0
        self._idle: asyncio.Future[None] | None = None
        self._closed = False
        self._watches: set[HintWatch] = set()

    async def attempt(self, body: Callable[[Transaction], T]) -> Committed[T] | Conflict | Unknown:
        """See `ownership.kv.Database.attempt`."""
        faults = self.faults
        if faults is not None:
            await self._begin(faults)
        if self._closed:
            raise StoreClosed("the database is closed")
        loop = asyncio.get_running_loop()
        tr = MemoryTransaction(self.store.contents, self.store.version)
        value = body(tr)
        told: asyncio.Future[bool | None] = loop.create_future()
        self._under_way += 1
        if faults is None:
            loop.call_soon(self._commit, tr, told, context=self.store.context)
        else:
            self._send(loop, faults, tr, told)
        applied = await told
        if applied is None:
            return Unknown("injected")
        return Committed(value) if applied else Conflict()

    async def run(
        self,
        body: Callable[[Transaction], T],
        probe: Callable[[Reads], T | None] | None = None,
    ) -> T:
        """See `ownership.kv.Database.run`."""
        return await run_attempts(self, body, probe, self._retry, self._rng)

    async def read(self, body: Callable[[Reads], T]) -> T:
        """See `ownership.kv.Database.read`."""
        faults = self.faults
        if faults is None:
            await asyncio.sleep(0)
        else:
            await self._begin(faults)
        if self._closed:
            raise StoreClosed("the database is closed")
        value = body(MemoryReads(self.store.contents))
        if faults is not None:
            await asyncio.sleep(self._draw(faults.reply_s))
        return value

    def watch(self, key: bytes) -> HintWatch:
        """See `ownership.kv.Database.watch`."""
        watch = HintWatch(key, self._forget)
        self.store.watches.setdefault(key, []).append(watch)
        self._watches.add(watch)
        return watch

    async def close(self) -> None:
        """See `ownership.kv.Database.close`. Waits for late commits too."""
        self._closed = True
        for watch in list(self._watches):
            watch.close()
        while self._under_way:
            self._idle = asyncio.get_running_loop().create_future()
            await self._idle

    def _forget(self, watch: HintWatch) -> None:
        self._watches.discard(watch)
        others = [other for other in self.store.watches.get(watch.key, []) if other is not watch]
        if others:
            self.store.watches[watch.key] = others
        else:
            self.store.watches.pop(watch.key, None)

    async def _begin(self, faults: Faults) -> None:
        away = bool(faults.away) and self._rng.random() < faults.away
        await asyncio.sleep(self._draw(faults.begin_s))
        if away:
            raise StoreAway("injected")

    def _draw(self, span: Span) -> float:
        low, high = span
        return low if low == high else low + (high - low) * self._rng.random()

    def _send(
        self,
        loop: asyncio.AbstractEventLoop,
        faults: Faults,
        tr: MemoryTransaction,
        told: "asyncio.Future[bool | None]",
    ) -> None:
        """Decide what becomes of this commit, and when."""
        context = self.store.context
        after_s = self._draw(faults.commit_s)
        reply_s = self._draw(faults.reply_s)
        chance = self._rng.random()
        for part, fate in (
            (faults.conflict, self._refuse),
            (faults.unknown_dropped, self._lose),
            (faults.unknown_applied, self._commit_untold),
            (faults.unknown_late, self._commit_late),
        ):
            if chance < part:
                loop.call_later(after_s, fate, tr, told, context=context)
                return
            chance -= part
        loop.call_later(after_s, self._commit, tr, told, reply_s, context=context)

    def _commit(
        self, tr: MemoryTransaction, told: "asyncio.Future[bool | None]", reply_s: float = 0.0
    ) -> None:
        applied = self.store.commit(tr)
        self._ended()
        if reply_s:
            told.get_loop().call_later(reply_s, _tell, told, applied)
        else:
            _tell(told, applied)

    def _refuse(self, _: MemoryTransaction, told: "asyncio.Future[bool | None]") -> None:
        self._ended()
        _tell(told, False)

    def _lose(self, _: MemoryTransaction, told: "asyncio.Future[bool | None]") -> None:
        self._ended()
        _tell(told, None)

    def _commit_untold(self, tr: MemoryTransaction, told: "asyncio.Future[bool | None]") -> None:
        self.store.commit(tr)
        self._ended()
        _tell(told, None)

    def _commit_late(self, tr: MemoryTransaction, told: "asyncio.Future[bool | None]") -> None:
        late_s = self._draw(self.faults.late_s) if self.faults is not None else 0.0
        told.get_loop().call_later(late_s, self._land, tr)
        _tell(told, None)

    def _land(self, tr: MemoryTransaction) -> None:
        self.store.commit(tr)
        self._ended()

    def _ended(self) -> None:
        self._under_way -= 1
        if not self._under_way and self._idle is not None and not self._idle.done():
            self._idle.set_result(None)


def _tell(told: "asyncio.Future[bool | None]", applied: bool | None) -> None:
    """The caller may have been cancelled; the commit was not."""
    if not told.done():
        told.set_result(applied)
