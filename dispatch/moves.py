"""Planned moves, as far as Dispatch goes: a slot is reserved at the target, then both sides wake.

From there on the workers do it: the target lists its reservations and prepares a standby, the
source hands over at a frame boundary. A reservation that is not used in time is freed by the worker
that owns the slot, so a replica may die at any point here and nothing stays taken.
"""

from dataclasses import dataclass

from dispatch.clock import Clock
from dispatch.fleet import Fleet
from dispatch.ids import IdMint
from dispatch.limits import Limits
from dispatch.placement import rank
from ownership.generations import reserve
from ownership.kv import Database, Transaction
from ownership.lives import get_live
from ownership.model import (
    AlreadyClosed,
    Generation,
    NoFreeSlot,
    Reserved,
    UnknownLive,
    UnknownWorker,
    WorkerNotReady,
)
from ownership.workers import worker_signal_key


@dataclass(frozen=True, slots=True)
class MoveRequested:
    """The target keeps a slot under `token`; `source` owns the live until it hands over."""

    live_id: str
    source: Generation
    target: str
    token: str


@dataclass(frozen=True, slots=True)
class AlreadyThere:
    """The live is owned by the worker it was to be moved to."""

    worker_id: str


@dataclass(frozen=True, slots=True)
class NoOwner:
    """Nobody owns the live, so nobody can hand it over: recovery will place it."""

    live_id: str


MoveOutcome = (
    MoveRequested
    | AlreadyThere
    | NoOwner
    | NoFreeSlot
    | WorkerNotReady
    | UnknownWorker
    | UnknownLive
    | AlreadyClosed
)


class Mover:
    """Asks for moves; never commits a generation."""

    def __init__(
        self, db: Database, fleet: Fleet, mint: IdMint, clock: Clock, limits: Limits
    ) -> None:
        self._db = db
        self._fleet = fleet
        self._mint = mint
        self._clock = clock
        self._limits = limits

    async def request_move(self, live_id: str, to: str | None) -> MoveOutcome:
        """Reserves a slot at `to`, or at the best other worker. Raises StoreError."""
        view = await get_live(self._db, live_id)
        if view is None:
            return UnknownLive(live_id)
        if not view.open:
            return AlreadyClosed(view.live.close_reason)
        source = view.generation
        if source is None:
            return NoOwner(live_id)
        if to == source.worker_id:
            return AlreadyThere(source.worker_id)
        await self._fleet.refresh()
        if to is not None and self._fleet.get(to) is None:
            return UnknownWorker(to)
        targets = [to] if to is not None else self._ranked(view.live.partition, source.worker_id)
        refusal: NoFreeSlot | WorkerNotReady = NoFreeSlot("")
        for target in targets:
            token = self._mint.new()
            outcome = await reserve(
                self._db,
                target,
                token,
                self._clock.wall_ms(),
                live_id=live_id,
                slot_draw=self._mint.slot_draw(),
            )
            if isinstance(outcome, Reserved):
                await self._wake(source.worker_id)
                return MoveRequested(live_id, source, target, token)
            refusal = outcome
            self._fleet.refused(target)
        return refusal

    def _ranked(self, partition: int, source: str) -> list[str]:
        ranked = rank(
            self._fleet.candidates(),
            partition=partition,
            draw=self._mint.draw,
            tries_max=self._limits.placement_tries_max,
            avoid=frozenset((source,)),
        )
        return [one.worker_id for one in ranked]

    async def _wake(self, worker_id: str) -> None:
        """A hint, so an unknown outcome may count twice."""

        def body(tr: Transaction) -> None:
            tr.add(worker_signal_key(worker_id), 1)

        await self._db.run(body)
