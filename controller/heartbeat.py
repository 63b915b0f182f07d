"""The sign of life: one counter in the store, and beside it what placement wants to know."""

import asyncio
from collections.abc import Callable

from controller.store_calls import StoreCalls
from ownership.kv import Database
from ownership.model import WorkerDead
from ownership.workers import beat
from schemas.store_values import LoadView


class Superseded(Exception):
    """The store says that this incarnation is dead: it has no authority left, over any live."""

    def __init__(self, worker_id: str) -> None:
        super().__init__(f"{worker_id} was marked dead")
        self.worker_id = worker_id


class Heartbeat:
    """Beats until cancelled. `draining` is told what the operator wants, after each beat."""

    def __init__(
        self,
        db: Database,
        calls: StoreCalls,
        worker_id: str,
        beat_ms: int,
        *,
        load: Callable[[], LoadView],
        draining: Callable[[bool], None],
    ) -> None:
        self._db = db
        self._calls = calls
        self._worker_id = worker_id
        self._beat_ms = beat_ms
        self._load = load
        self._draining = draining

    async def run(self) -> None:
        """Raises Superseded."""
        while True:
            load = self._load()
            answer = await self._calls.insist(
                lambda view=load: beat(self._db, self._worker_id, view), "beat"
            )
            if isinstance(answer, WorkerDead):
                raise Superseded(self._worker_id)
            self._draining(answer.draining)
            await asyncio.sleep(self._beat_ms / 1000)
