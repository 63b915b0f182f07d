"""Drain: every live is handed to a worker that has room, with its exact checkpoint.

It runs while an operator drains the worker, and when the worker ends. Where nobody has room a live
goes on here: until somebody has, or until the worker's time is over; then it leaves an exact
checkpoint behind and waits as an orphan, its text safe in the log.
"""

import asyncio
from collections.abc import Callable, Iterable
from random import Random

from controller.events import HandOverAsked
from controller.limits import Limits
from controller.session import Session
from controller.session_states import LIVE, State
from controller.store_calls import StoreCalls
from ownership.kv import Database
from ownership.workers import list_workers
from schemas.store_values import WorkerState


class Drain:
    """`sessions` are the worker's, read anew in each round."""

    def __init__(
        self,
        db: Database,
        calls: StoreCalls,
        rng: Random,
        limits: Limits,
        worker_id: str,
        sessions: Callable[[], Iterable[Session]],
    ) -> None:
        self._db = db
        self._calls = calls
        self._rng = rng
        self._limits = limits
        self._worker_id = worker_id
        self._sessions = sessions
        self.hopeless = False
        """The last round found no other worker that takes lives at all."""

    async def run(self) -> None:
        """Rounds until nothing is left."""
        while any(session.machine.active for session in self._sessions()):
            await self.round()
            await asyncio.sleep(self._limits.drain_retry_ms / 1000)

    async def round(self) -> None:
        """Ask for as many hand-overs as there is room elsewhere, a few at once."""
        under_way = sum(one.machine.state is State.DRAINING for one in self._sessions())
        movable = [one for one in self._sessions() if one.machine.state in LIVE]
        places = max(0, self._limits.hand_overs_at_once - under_way)
        if not movable or not places:
            return
        targets = await self._targets(min(places, len(movable)))
        for session, target in zip(movable, targets, strict=False):
            if session.machine.state in LIVE:
                session.post(HandOverAsked(target, None))

    async def _targets(self, count: int) -> list[str]:
        """Up to `count` places at other workers, the emptiest first, spread over them."""
        views = await self._calls.insist(lambda: list_workers(self._db), "list_workers")
        others = [
            view
            for view in views
            if view.value.state is WorkerState.READY and view.value.worker_id != self._worker_id
        ]
        self.hopeless = not others
        free = {view.value.worker_id: view.free_slots for view in others if view.free_slots > 0}
        targets: list[str] = []
        while free and len(targets) < count:
            most = max(free.values())
            best = self._rng.choice(sorted(one for one, n in free.items() if n == most))
            targets.append(best)
            free[best] -= 1
            if not free[best]:
                del free[best]
        return targets
