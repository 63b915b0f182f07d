"""What the store says this worker owns, followed by its signal key and by polling.

The signal is a hint and may be missed; the poll finds everything a little later. Each round reads
the truth and compares: new generations get a session, sessions whose generation ended are told, and
slots that wait for a runtime to be gone are confirmed when there is none.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import structlog

from controller.clock import Clock
from controller.limits import Limits
from controller.store_calls import StoreCalls
from ownership.generations import confirm_gone
from ownership.kv import Database
from ownership.model import Generation, Reservation
from ownership.reservations import free_reserved
from ownership.standing import standing
from ownership.workers import worker_signal_key

_log = structlog.get_logger(__name__)

Owned = tuple[str, Generation]


@dataclass(frozen=True, slots=True)
class MoveWanted:
    """Somebody reserved a slot at `target`, under `token`, for a live that may be ours."""

    live_id: str
    target: str
    token: str


class OwnershipWatch:
    """Runs until cancelled. `owned` gets the whole truth each time, `moves` what others wait for.

    `holds(live_id, generation)` says whether a runtime of that generation may still be here.
    """

    def __init__(
        self,
        db: Database,
        calls: StoreCalls,
        clock: Clock,
        limits: Limits,
        worker_id: str,
        *,
        owned: Callable[[list[Owned]], None],
        moves: Callable[[list[MoveWanted]], None],
        holds: Callable[[str, Generation], bool],
    ) -> None:
        self._db = db
        self._calls = calls
        self._clock = clock
        self._limits = limits
        self._worker_id = worker_id
        self._owned = owned
        self._moves = moves
        self._holds = holds
        self._reserved_ms: dict[str, int] = {}
        """When this process first saw each reservation, by token."""

    async def run(self) -> None:
        """Looks at once, then at every signal and at least every `ownership_poll_ms`."""
        watch = self._db.watch(worker_signal_key(self._worker_id))
        try:
            while True:
                await self.look()
                await watch.changed(self._limits.ownership_poll_ms / 1000)
        finally:
            watch.close()

    async def look(self) -> None:
        """One round."""
        now = await self._calls.insist(lambda: standing(self._db, self._worker_id), "standing")
        self._owned(now.owned)
        self._moves(
            [
                MoveWanted(one.live_id, target, one.token)
                for target, one in now.elsewhere
                if one.live_id
            ]
        )
        await self._confirm(now.leaving)
        await self._free_old(now.reserved)

    async def _confirm(self, leaving: Iterable[Owned]) -> None:
        """Generations that came and went unseen, or ended while this process was away."""
        for live_id, generation in leaving:
            if not self._holds(live_id, generation):
                await self._calls.insist(
                    lambda i=live_id, g=generation: confirm_gone(self._db, i, g), "confirm_gone"
                )

    async def _free_old(self, kept: list[Reservation]) -> None:
        """Slots kept for moves that did not come in time, by this worker's own clock."""
        now_ms = self._clock.now_ms()
        tokens = {one.token for one in kept}
        self._reserved_ms = {t: at for t, at in self._reserved_ms.items() if t in tokens}
        for one in kept:
            since_ms = self._reserved_ms.setdefault(one.token, now_ms)
            if now_ms - since_ms < self._limits.reservation_ms:
                continue
            await self._calls.insist(
                lambda t=one.token: free_reserved(self._db, self._worker_id, t), "free_reserved"
            )
            _log.info("reservation_freed", live_id=one.live_id, slot=one.slot)
