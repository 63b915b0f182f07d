"""Lives of workers that died: found, moved on, or kept as orphans until there is room.

Every replica runs this each second, and several at once do no harm: a death is declared only for
the beat that was looked at, a live advances only past the dead generation (the source guard), so
of two replicas one commits and the other is told that the source moved. Nothing here asks the dead
worker anything: its cursor and checkpoint are in the store, and what it still does is refused.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

import structlog

from dispatch.clock import Clock
from dispatch.fleet import Fleet
from dispatch.ids import IdMint
from dispatch.limits import Limits
from dispatch.placement import rank
from dispatch.publish import Publisher
from ownership.generations import commit_generation
from ownership.kv import Database
from ownership.model import (
    AlreadyDead,
    BeatMoved,
    CommitGeneration,
    CommittedGeneration,
    Generation,
    LiveNotOpen,
    MarkedDead,
    NoFreeSlot,
    OrphanMarked,
    OwnerAlive,
    ReservationGone,
    SourceMoved,
    UnknownWorker,
    WorkerNotReady,
    WorkerView,
)
from ownership.recovery import clear_orphan, dead_workers_lives, list_orphans, mark_orphan
from ownership.workers import bury_worker, mark_dead
from schemas.events import EventKind
from schemas.partition import partition_of
from schemas.store_values import WorkerState

_Guard = TypeVar("_Guard", Generation, Generation | None)

_log = structlog.get_logger(__name__)


def _ignore(_: float) -> None:
    """Nobody asked."""


class Recovery:
    """One replica's part. `step` is called each second, after the fleet was read."""

    def __init__(
        self,
        db: Database,
        fleet: Fleet,
        publisher: Publisher,
        mint: IdMint,
        clock: Clock,
        limits: Limits,
        partition_count: int,
    ) -> None:
        self._db = db
        self._fleet = fleet
        self._publisher = publisher
        self._mint = mint
        self._clock = clock
        self._limits = limits
        self._partition_count = partition_count
        self._waiting: set[tuple[str, Generation]] = set()
        """Lives that this replica listed as orphans, by the generation that guards them."""
        self._still_waiting: set[tuple[str, Generation]] = set()
        self._empty_since_ms: dict[str, int] = {}
        self._silent_since_ms: dict[str, int] = {}
        """Of dead workers: when this replica saw the last beat, or saw that they were dead."""
        self.on_recovered: Callable[[float], None] = _ignore
        """Told of each live that was moved on: seconds since its owner fell silent."""
        self.marked_dead = 0
        self.recovered = 0
        self.orphans = 0

    async def step(self) -> None:
        """One round. Raises StoreError; whatever it had not done comes again in the next."""
        self._still_waiting = set()
        for view in self._fleet.views:
            if view.value.state is not WorkerState.DEAD:
                await self._mark_if_still(view)
        dead = [view for view in self._fleet.views if view.value.state is WorkerState.DEAD]
        now_ms = self._clock.now_ms()
        for view in dead:
            self._silent_since_ms.setdefault(view.value.worker_id, now_ms)
            await self._empty(view.value.worker_id)
        self._waiting &= self._still_waiting
        self._empty_since_ms = self._not_buried(self._empty_since_ms)
        self._silent_since_ms = self._not_buried(self._silent_since_ms)
        await self._retry_orphans()

    def _not_buried(self, times_ms: dict[str, int]) -> dict[str, int]:
        return {name: at for name, at in times_ms.items() if self._fleet.get(name) is not None}

    async def _mark_if_still(self, view: WorkerView) -> None:
        worker_id = view.value.worker_id
        still_ms = self._fleet.still_ms(worker_id)
        if still_ms < self._limits.lease_ms:
            return
        match await mark_dead(self._db, worker_id, view.beat):
            case MarkedDead():
                self.marked_dead += 1
                self._silent_since_ms[worker_id] = self._clock.now_ms() - still_ms
                _log.warning("worker_marked_dead", worker_id=worker_id, still_ms=still_ms)
                await self._empty(worker_id)
            case AlreadyDead():
                await self._empty(worker_id)
            case BeatMoved() | UnknownWorker():
                pass

    async def _empty(self, worker_id: str) -> None:
        """Moves every live of a dead worker on; buries the worker when it has had none for long."""
        lives = await dead_workers_lives(self._db, worker_id)
        if lives:
            self._empty_since_ms.pop(worker_id, None)
            self._still_waiting |= self._waiting.intersection(lives)
            # Those that wait are tried again as orphans, not written down again each second.
            await self._together(self._recover, [one for one in lives if one not in self._waiting])
            return
        now_ms = self._clock.now_ms()
        since_ms = self._empty_since_ms.setdefault(worker_id, now_ms)
        if now_ms - since_ms >= self._limits.bury_ms:
            await bury_worker(self._db, worker_id)

    async def _together(
        self,
        work: Callable[[str, _Guard], Coroutine[Any, Any, None]],
        lives: Sequence[tuple[str, _Guard]],
    ) -> None:
        """A bounded number at once; the first that fails ends the round."""
        at_once = self._limits.recoveries_at_once_max
        for first in range(0, len(lives), at_once):
            async with asyncio.TaskGroup() as group:
                for live_id, dead in lives[first : first + at_once]:
                    group.create_task(work(live_id, dead))

    async def _recover(self, live_id: str, dead: Generation) -> None:
        if await self._advance(live_id, dead):
            return
        match await mark_orphan(self._db, live_id, dead, self._clock.wall_ms()):
            case OrphanMarked():
                self._waiting.add((live_id, dead))
                self._still_waiting.add((live_id, dead))
                _log.warning("live_waits_for_capacity", live_id=live_id, epoch=dead.epoch)
            case SourceMoved() | OwnerAlive():
                pass

    async def _retry_orphans(self) -> None:
        """Orphans in order of their ids; as many per round as the limits allow."""
        after: str | None = None
        seen = 0
        while seen < self._limits.orphans_per_round_max:
            page = await list_orphans(self._db, after, self._limits.orphan_page)
            seen += len(page)
            if not page:
                break
            after = page[-1].live_id
            if any(one.can_take for one in self._fleet.candidates()):
                await self._together(
                    self._retry, [(orphan.live_id, orphan.generation) for orphan in page]
                )
        self.orphans = seen

    async def _retry(self, live_id: str, dead: Generation | None) -> None:
        await self._advance(live_id, dead)

    async def _advance(self, live_id: str, dead: Generation | None) -> bool:
        """True when the live needs no recovery any more, whoever did it. `dead` None: a record
        opened it where nobody had room, and it never had an owner.
        """
        partition = partition_of(live_id.encode(), self._partition_count)
        for candidate in rank(
            self._fleet.candidates(),
            partition=partition,
            draw=self._mint.draw,
            tries_max=self._limits.placement_tries_max,
            avoid=frozenset() if dead is None else frozenset((dead.worker_id,)),
        ):
            outcome = await commit_generation(
                self._db,
                CommitGeneration(
                    live_id=live_id,
                    expected=dead,
                    target=candidate.worker_id,
                    commit_id=self._mint.new(),
                    now_ms=self._clock.wall_ms(),
                    slot_draw=self._mint.slot_draw(),
                ),
            )
            match outcome:
                case CommittedGeneration(generation):
                    self.recovered += 1
                    self._measure(dead)
                    self._fleet.took(generation.worker_id)
                    self._report(live_id, dead, generation)
                    return True
                case SourceMoved():
                    return True
                case LiveNotOpen():
                    await clear_orphan(self._db, live_id)
                    return True
                case NoFreeSlot() | WorkerNotReady():
                    self._fleet.refused(candidate.worker_id)
                case ReservationGone():
                    raise RuntimeError("a recovery uses no reservation")
        return False

    def _measure(self, dead: Generation | None) -> None:
        since_ms = None if dead is None else self._silent_since_ms.get(dead.worker_id)
        if since_ms is not None:
            self.on_recovered((self._clock.now_ms() - since_ms) / 1_000)

    def _report(self, live_id: str, dead: Generation | None, generation: Generation) -> None:
        """Say who owns the live now, and why."""
        source = None if dead is None else dead.worker_id
        _log.info(
            "live_recovered",
            live_id=live_id,
            from_worker=source,
            to_worker=generation.worker_id,
            epoch=generation.epoch,
        )
        self._publisher.report(
            EventKind.GENERATION_COMMITTED,
            live_id,
            generation,
            {
                "worker_id": generation.worker_id,
                "epoch": generation.epoch,
                "from_worker_id": source,
                "cause": "worker_died" if source else "record",
            },
        )
