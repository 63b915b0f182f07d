"""The service behind the routes: open, look at, keep alive and close lives, and move them.

No HTTP, no clock and no randomness of its own: the simulator runs this same code. A refusal is a
value; what is raised is StoreError (the store is away, or the outcome is unknown) and what
`publish` raises.
"""

import hashlib
import json
from dataclasses import dataclass

import structlog

from dispatch.activity import ActivityBook, stamp_use
from dispatch.clock import Clock
from dispatch.fleet import Fleet, FleetCounts
from dispatch.ids import IdMint
from dispatch.limits import Limits
from dispatch.placement import mint_live_id, rank
from dispatch.publish import Publisher
from ownership import lives as store
from ownership.kv import Database
from ownership.model import (
    AlreadyClosed,
    AlreadyDead,
    Closed,
    Created,
    CreateLive,
    Existing,
    Generation,
    IdempotencyMismatch,
    LiveExists,
    LiveView,
    NoFreeSlot,
    StateSet,
    UnknownLive,
    UnknownWorker,
    WorkerNotReady,
    WorkerView,
)
from ownership.workers import set_draining
from schemas.events import EventKind
from schemas.options import LiveOptions
from schemas.partition import partition_of

NO_WORKER = ""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Opening:
    """What a client asks for. `live_id` None lets the service choose one that fits the worker."""

    options: LiveOptions
    live_id: str | None = None
    idempotency_key: str | None = None

    @property
    def request_hash(self) -> str:
        """Equal for equal requests, whatever the order of their JSON keys."""
        asked = {"live_id": self.live_id, "options": self.options.as_mapping()}
        text = json.dumps(asked, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Opened:
    """The live is open and has an owner."""

    live_id: str
    generation: Generation
    partition: int


@dataclass(frozen=True, slots=True)
class NoCapacity:
    """Every slot of every ready worker is taken."""

    counts: FleetCounts


CreateOutcome = Opened | Existing | LiveExists | IdempotencyMismatch | NoCapacity


class LiveService:
    """Stateless but for views and counters: any request may go to any replica."""

    def __init__(
        self,
        db: Database,
        fleet: Fleet,
        publisher: Publisher,
        activity: ActivityBook,
        mint: IdMint,
        clock: Clock,
        limits: Limits,
        partition_count: int,
    ) -> None:
        self._db = db
        self._fleet = fleet
        self._publisher = publisher
        self._activity = activity
        self._mint = mint
        self._clock = clock
        self._limits = limits
        self._partition_count = partition_count
        self.placements_refused = 0
        self.creates_without_capacity = 0

    async def create(self, opening: Opening) -> CreateOutcome:
        """Opens a live on the first candidate that the store admits, in one transaction.

        The views may be old, so when all candidates refuse they are read again, and only slots that
        the store itself shows free are tried; the rounds are bounded.
        """
        create_id = self._mint.new()
        await self._fleet.refresh_if_old()
        for turn in range(self._limits.placement_rounds_max):
            if turn:
                await self._fleet.refresh()
            ranked = self._rank(opening)
            if ranked:
                outcome = await self._try(opening, create_id, ranked)
                if outcome is not None:
                    return outcome
            elif turn:
                break
        # Nothing is free, but the live may exist already: that answer needs no slot.
        known = await self._try(opening, create_id, [])
        if known is not None:
            return known
        self.creates_without_capacity += 1
        return NoCapacity(self._fleet.counts())

    def _rank(self, opening: Opening) -> list[str]:
        partition = None
        if opening.live_id is not None:
            partition = partition_of(opening.live_id.encode(), self._partition_count)
        ranked = rank(
            self._fleet.candidates(),
            partition=partition,
            draw=self._mint.draw,
            tries_max=self._limits.placement_tries_max,
        )
        return [one.worker_id for one in ranked]

    async def _try(
        self, opening: Opening, create_id: str, workers: list[str]
    ) -> CreateOutcome | None:
        """None: none of these workers can take it. An id that is minted here suits the first."""
        first, *others = workers or [NO_WORKER]
        live_id = opening.live_id or mint_live_id(
            wall_ms=self._clock.wall_ms(),
            entropy=self._mint.entropy,
            partitions=self._fleet.partitions_of(first),
            partition_count=self._partition_count,
        )
        partition = partition_of(live_id.encode(), self._partition_count)
        outcome = await store.create_live(
            self._db,
            CreateLive(
                live_id=live_id,
                options=opening.options,
                partition=partition,
                target=first,
                others=tuple(others),
                commit_id=self._mint.new(),
                create_id=create_id,
                now_ms=self._clock.wall_ms(),
                slot_draw=self._mint.slot_draw(),
                idempotency_key=opening.idempotency_key,
                request_hash=("" if opening.idempotency_key is None else opening.request_hash),
            ),
        )
        match outcome:
            case Created(generation):
                if generation.worker_id in workers:
                    self._refused_by(workers[: workers.index(generation.worker_id)])
                self._fleet.took(generation.worker_id)
                self._report_opened(live_id, generation, partition, opening.options)
                return Opened(live_id, generation, partition)
            case Existing() | LiveExists() | IdempotencyMismatch():
                return outcome
            case NoFreeSlot() | WorkerNotReady():
                self._refused_by(workers)
                return None

    def _refused_by(self, workers: list[str]) -> None:
        self.placements_refused += len(workers)
        for worker_id in workers:
            self._fleet.refused(worker_id)

    def _report_opened(
        self, live_id: str, generation: Generation, partition: int, options: LiveOptions
    ) -> None:
        """With its options, so that the topics alone tell how a live has to be replayed."""
        self._publisher.report(
            EventKind.STATE_UPDATED,
            live_id,
            generation,
            {"state": "open", "partition": partition, "options": options.as_json()},
        )
        self._publisher.report(
            EventKind.GENERATION_COMMITTED,
            live_id,
            generation,
            {"worker_id": generation.worker_id, "epoch": generation.epoch, "cause": "created"},
        )

    async def get(self, live_id: str) -> LiveView | None:
        """Everything the store knows of a live."""
        return await store.get_live(self._db, live_id)

    async def page(self, after: str | None, limit: int) -> tuple[list[LiveView], str | None]:
        """Lives in order of their ids, and the id to go on after (None: that was all)."""
        views = await store.list_lives(self._db, after, limit + 1)
        if len(views) <= limit:
            return views, None
        return views[:limit], views[limit - 1].live_id

    async def close(self, live_id: str, reason: str) -> Closed | AlreadyClosed | UnknownLive:
        """Ends a live at once, whoever owns it; its text that was not released is dead-lettered."""
        outcome = await store.close_live(self._db, live_id, None, reason, self._clock.wall_ms())
        match outcome:
            case Closed(generation):
                self._publisher.report(
                    EventKind.STATE_UPDATED,
                    live_id,
                    generation or Generation(NO_WORKER, 0),
                    {"state": "closed", "reason": reason},
                )
                return outcome
            case AlreadyClosed() | UnknownLive():
                return outcome
            case _:
                raise RuntimeError(f"a close by anybody was refused: {outcome}")

    async def keepalive(self, live_id: str) -> LiveView | UnknownLive | AlreadyClosed:
        """Puts off the idle timeout; the answer means that the stamp is stored."""
        view = await self.get(live_id)
        if view is None:
            return UnknownLive(live_id)
        if not view.open:
            return AlreadyClosed(view.live.close_reason)
        await stamp_use(self._db, live_id, self._clock.wall_ms())
        return view

    def note_viewer(self, live_id: str) -> None:
        """A viewer came: the live is used and watched, until its owner reports that all left."""
        now_ms = self._clock.wall_ms()
        self._activity.use(live_id, now_ms)
        self._activity.watch(live_id, 1, now_ms)

    async def workers(self) -> tuple[WorkerView, ...]:
        """Every worker not yet buried, read now."""
        await self._fleet.refresh()
        return self._fleet.views

    async def drain(
        self, worker_id: str, *, draining: bool
    ) -> StateSet | AlreadyDead | UnknownWorker:
        """Admits nothing more to a worker, or admits again."""
        outcome = await set_draining(self._db, worker_id, draining=draining)
        await self._fleet.refresh()
        return outcome
