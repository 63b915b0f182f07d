"""The workers as this replica last saw them: who could take a live, and whose beat stands still.

The views are read again each second and are hints; admission is the store's. Between two readings
the replica takes its own placements into account, so that a burst spreads.

Stillness is measured with this replica's own monotonic clock and only while the replica could see:
a gap between two readings (the store was away, the process was stopped) counts as one reading's
length, because a worker could not show itself in it either. So an outage of the store is never
taken for the death of every worker.
"""

import asyncio
from dataclasses import dataclass

from dispatch.clock import Clock
from dispatch.placement import Candidate
from ownership.kv import Database
from ownership.model import WorkerView
from ownership.workers import list_workers
from schemas.store_values import WorkerState


@dataclass(slots=True)
class _Beat:
    """Invariant: `still_ms` grows only with readings that showed the same `count`."""

    count: int
    still_ms: int = 0


@dataclass(frozen=True, slots=True)
class FleetCounts:
    """Slots of all workers that are not dead, and how many workers there are."""

    workers_ready: int
    workers_draining: int
    capacity: int
    held: int
    leaving: int
    reserved: int
    free: int


class Fleet:
    """Reads are single-flight: whoever asks for fresh views shares a reading with the others."""

    def __init__(self, db: Database, clock: Clock, *, refresh_ms: int) -> None:
        self._db = db
        self._clock = clock
        self._refresh_ms = refresh_ms
        self._views: dict[str, WorkerView] = {}
        self._taken: dict[str, int] = {}
        # Of every view and what was taken since: a placement looks at all and changes one.
        self._candidates: dict[str, Candidate] = {}
        self._beats: dict[str, _Beat] = {}
        self._reading = asyncio.Lock()
        self._begun = 0
        self._done = 0
        self._read_at_ms: int | None = None
        self.overshoots = 0
        """Readings that showed a worker above its capacity."""

    @property
    def views(self) -> tuple[WorkerView, ...]:
        """Every worker not yet buried, in order of ids."""
        return tuple(self._views.values())

    def get(self, worker_id: str) -> WorkerView | None:
        """One worker as last seen."""
        return self._views.get(worker_id)

    async def refresh(self) -> None:
        """Returns when a reading that began after this call has ended. Raises StoreError."""
        wanted = self._begun + 1
        async with self._reading:
            if self._done >= wanted:
                return
            self._begun += 1
            mine = self._begun
            views = await list_workers(self._db)
            self._take_in(views)
            self._done = mine

    async def refresh_if_old(self) -> None:
        """Reads when nothing was read within the last two rounds. Raises StoreError."""
        now_ms = self._clock.now_ms()
        if self._read_at_ms is None or now_ms - self._read_at_ms > 2 * self._refresh_ms:
            await self.refresh()

    def _take_in(self, views: list[WorkerView]) -> None:
        now_ms = self._clock.now_ms()
        seen_ms = 0
        if self._read_at_ms is not None:
            seen_ms = min(now_ms - self._read_at_ms, 2 * self._refresh_ms)
        beats: dict[str, _Beat] = {}
        for view in views:
            known = self._beats.get(view.value.worker_id)
            if known is None or known.count != view.beat:
                known = _Beat(view.beat)
            else:
                known.still_ms += seen_ms
            beats[view.value.worker_id] = known
        self._beats = beats
        self._views = {view.value.worker_id: view for view in views}
        self._taken.clear()
        self._candidates = {name: self._candidate(view) for name, view in self._views.items()}
        self._read_at_ms = now_ms
        self.overshoots += self.overshoot > 0

    def still_ms(self, worker_id: str) -> int:
        """For how long this replica has watched the worker's beat stand still."""
        known = self._beats.get(worker_id)
        return 0 if known is None else known.still_ms

    def took(self, worker_id: str) -> None:
        """A live was placed there since the last reading."""
        self._note_taken(worker_id, self._taken.get(worker_id, 0) + 1)

    def refused(self, worker_id: str) -> None:
        """The store refused the worker: not proposed again before the next reading."""
        view = self._views.get(worker_id)
        if view is not None:
            self._note_taken(worker_id, max(view.value.capacity, 1))

    def candidates(self) -> list[Candidate]:
        """What placement ranks."""
        return list(self._candidates.values())

    def partitions_of(self, worker_id: str) -> frozenset[int]:
        """The partitions that the worker reads as their custodian; none of one that is unknown."""
        known = self._candidates.get(worker_id)
        return frozenset() if known is None else known.partitions

    def _note_taken(self, worker_id: str, taken: int) -> None:
        self._taken[worker_id] = taken
        view = self._views.get(worker_id)
        if view is not None:
            self._candidates[worker_id] = self._candidate(view)

    def _candidate(self, view: WorkerView) -> Candidate:
        value = view.value
        return Candidate(
            worker_id=value.worker_id,
            is_ready=value.state is WorkerState.READY,
            capacity=value.capacity,
            free_slots=view.free_slots - self._taken.get(value.worker_id, 0),
            partitions=frozenset(view.load.partitions if view.load is not None else ()),
        )

    @property
    def overshoot(self) -> int:
        """Slots in use beyond their worker's capacity, summed: 0, or the protocol is broken."""
        views = self._views.values()
        alive = [one for one in views if one.value.state is not WorkerState.DEAD]
        return sum(max(-one.free_slots, 0) for one in alive)

    def counts(self) -> FleetCounts:
        """Sums for metrics and for the answer when nothing is free."""
        alive = [one for one in self._views.values() if one.value.state is not WorkerState.DEAD]
        ready = [one for one in alive if one.value.state is WorkerState.READY]
        return FleetCounts(
            workers_ready=len(ready),
            workers_draining=len(alive) - len(ready),
            capacity=sum(one.value.capacity for one in alive),
            held=sum(one.held for one in alive),
            leaving=sum(one.leaving for one in alive),
            reserved=sum(one.reserved for one in alive),
            free=sum(max(one.free_slots, 0) for one in ready),
        )
