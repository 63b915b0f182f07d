"""One incarnation of this worker: registered under an id of its own, until it ends or is dead.

Everything that belongs to the incarnation is made here and ends with it: its readers, sessions,
tasks and its id. The stages stay; a next incarnation binds them anew.
"""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from random import Random

import structlog

from controller.announce import Announcer
from controller.auto_create import AutoCreate, OpenedByRecord, events_of_opening
from controller.clock import Clock
from controller.consume import Consumer
from controller.counters import Counters
from controller.dead_letters import DeadLetters
from controller.drain import Drain
from controller.events import StopAsked
from controller.heartbeat import Heartbeat, Superseded
from controller.ids import IdMint
from controller.limits import Limits
from controller.lives import Lives
from controller.media import Media
from controller.outside import Outside
from controller.ownership_watch import OwnershipWatch
from controller.records import Decoder
from controller.release import ReleaseBatcher
from controller.session import SessionParts
from controller.store_calls import StoreCalls
from controller.tasks import Tasks
from gpu_stages.runtime_contract import StageRuntime
from ownership.kv import Database
from ownership.model import WorkerDead
from ownership.workers import list_workers, mark_dead, register_worker, set_draining
from schemas.bad_record import DeadLetterReason
from schemas.events import EventKind, LiveEvent
from schemas.options import LiveOptions
from schemas.store_values import LoadView, WorkerState, WorkerValue
from schemas.topics import TEXT_TOPIC
from stream.transport import BrokerAway, GroupReader, Producer, RangeReader, Transport

_log = structlog.get_logger(__name__)

GROUP = "dhsched.workers"
LOOK_AGAIN_S = 0.02


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """What an operator says of this worker. `confluent_ids`: schema registry ids and fingerprints,
    the same on every worker. `auto_create`: the options of a live that a record of an unknown id
    opens; None sends such records to the dead-letter topic."""

    node: str
    capacity: int
    url: str
    group: str = GROUP
    confluent_ids: dict[int, int] = field(default_factory=dict[int, int])
    auto_create: LiveOptions | None = None


@dataclass(frozen=True, slots=True)
class WorkerWorld:
    """Everything from outside that a worker touches; the simulator brings its own."""

    db: Database
    transport: Transport
    runtime: StageRuntime
    media: Media
    clock: Clock
    rng: Random


@dataclass(frozen=True, slots=True)
class Connections:
    """An incarnation's own readers and producers."""

    group: GroupReader
    ranges: RangeReader
    letters: Producer
    events: Producer
    partition_count: int

    @classmethod
    async def open(cls, transport: Transport, group: str) -> "Connections":
        """Raises BrokerAway; what was open by then is closed again. A reader that was left behind
        would stay in its group, and keep partitions that nobody polls."""
        async with AsyncExitStack() as opened:
            custody = await transport.group_reader(group, TEXT_TOPIC)
            opened.push_async_callback(custody.close)
            ranges = await transport.range_reader(TEXT_TOPIC)
            opened.push_async_callback(ranges.close)
            letters = await transport.producer()
            opened.push_async_callback(letters.close)
            events = await transport.producer()
            opened.push_async_callback(events.close)
            count = await transport.partition_count(TEXT_TOPIC)
            opened.pop_all()
        return cls(custody, ranges, letters, events, count)

    async def close(self) -> None:
        """All of them; the group first, so that others get our partitions soon."""
        for one in (self.group, self.ranges, self.letters, self.events):
            await one.close()


class Incarnation:
    """Made open by `begin`. `run` only ends by raising: Superseded when the store says that this
    incarnation is dead, or whatever broke."""

    def __init__(
        self,
        options: WorkerOptions,
        limits: Limits,
        world: WorkerWorld,
        counters: Counters,
        connections: Connections,
    ) -> None:
        self.options = options
        self.limits = limits
        self.counters = counters
        self._world = world
        self._connections = connections
        mint = IdMint(world.clock, world.rng)
        self.worker_id = f"{options.node}-{mint.new()}"
        self.ready = False
        self.draining = False
        self.tasks = Tasks(expected=(Superseded,))
        self.calls = StoreCalls(world.rng, counters)
        self.batcher = ReleaseBatcher(
            world.db, self.calls, world.clock, counters, limits.release_items_max
        )
        letters = DeadLetters(
            connections.letters, world.clock, world.rng, counters, limits.letter_value_bytes_max
        )
        self.announcer = Announcer(
            connections.events,
            self.tasks,
            counters,
            waiting_max=limits.events_waiting_max,
            at_once=limits.events_at_once,
        )
        self.consumer = self._make_consumer(letters, mint)
        self.lives = self._make_lives(letters, mint)
        self.watch = OwnershipWatch(
            world.db,
            self.calls,
            world.clock,
            limits,
            self.worker_id,
            owned=self.lives.owned,
            moves=self.lives.moves,
            holds=self.lives.holds,
        )
        self._heartbeat: asyncio.Task[None] | None = None
        self._drain: Drain | None = None
        self._draining: asyncio.Task[None] | None = None

    def _make_consumer(self, letters: DeadLetters, mint: IdMint) -> Consumer:
        decoder = Decoder(self.options.confluent_ids)

        def lost(live_id: str, offset: int, detail: str) -> None:
            """Told by the custodian, who may not be the owner: as of no generation (epoch 0)."""
            self.announcer.say(
                LiveEvent(
                    kind=EventKind.ERROR,
                    event_id=mint.new(),
                    source_event_id="",
                    live_id=live_id,
                    worker_id=self.worker_id,
                    epoch=0,
                    at_ms=self._world.clock.wall_ms(),
                    offset=offset,
                    data={"reason": DeadLetterReason.BEFORE_LOG_START.value, "detail": detail},
                )
            )

        return Consumer(
            db=self._world.db,
            calls=self.calls,
            group=self._connections.group,
            ranges=self._connections.ranges,
            letters=letters,
            tasks=self.tasks,
            limits=self.limits.reading,
            rng=self._world.rng,
            counters=self.counters,
            decoder=decoder,
            partition_count=self._connections.partition_count,
            lost=lost,
            auto_create=self._make_auto_create(decoder, mint),
        )

    def _make_auto_create(self, decoder: Decoder, mint: IdMint) -> AutoCreate | None:
        world, options = self._world, self.options.auto_create
        if options is None:
            return None

        def opened(live: OpenedByRecord) -> None:
            for event in events_of_opening(live, mint, world.clock.wall_ms()):
                self.announcer.say(event)

        return AutoCreate(
            world.db,
            self.calls,
            decoder,
            mint,
            world.clock,
            world.rng,
            self.counters,
            self.worker_id,
            options,
            opened,
        )

    def _make_lives(self, letters: DeadLetters, mint: IdMint) -> Lives:
        world = self._world
        outside = Outside(
            world.db,
            self.calls,
            letters,
            self.tasks,
            world.clock,
            world.rng,
            mint,
            self.counters,
            self.limits.outside_at_once,
        )
        parts = SessionParts(
            runtime=world.runtime,
            media=world.media,
            batcher=self.batcher,
            clock=world.clock,
            counters=self.counters,
            limits=self.limits.session,
            bound={},
        )
        return Lives(
            self.worker_id, parts, outside, self.consumer, self.announcer, mint, self.tasks
        )

    # -- life

    async def begin(self) -> None:
        """Register and start everything. Raises Superseded."""
        value = WorkerValue(
            worker_id=self.worker_id,
            node=self.options.node,
            capacity=self.options.capacity,
            url=self.options.url,
            state=WorkerState.READY,
            started_at_ms=self._world.clock.wall_ms(),
        )
        db = self._world.db
        answer = await self.calls.insist(lambda: register_worker(db, value), "register")
        if isinstance(answer, WorkerDead):
            raise Superseded(self.worker_id)
        self.counters.incarnations += 1
        _log.info("registered", worker_id=self.worker_id, superseded=answer.superseded)
        heartbeat = Heartbeat(
            db,
            self.calls,
            self.worker_id,
            self.limits.beat_ms,
            load=self._load,
            draining=self.set_draining,
        )
        spawn = self.tasks.spawn
        self._heartbeat = spawn(heartbeat.run(), "heartbeat")
        spawn(self.watch.run(), "ownership")
        spawn(self.batcher.run(), "release")
        spawn(self.consumer.custody.run(), "custody")
        spawn(self.consumer.custody.maintain(), "watermarks")
        spawn(self.announcer.run(), "events")
        self.ready = True

    async def run(self) -> None:
        """Until something breaks."""
        raise await self.tasks.failure()

    async def leave(self) -> None:
        """End in good order: hand over what others have room for, leave exact checkpoints of the
        rest behind, and let nobody wait for the lease to find out."""
        db, limits = self._world.db, self.limits
        await self.calls.insist(lambda: set_draining(db, self.worker_id), "set_draining")
        self.set_draining(True)
        await self._until(lambda: not self.lives.active or self._alone, limits.drain_ms)
        self.lives.ending = True
        for session in self.lives.active:
            session.post(StopAsked())
        await self._until(lambda: self.lives.empty, limits.stop_ms)
        await self.announcer.flush(limits.stop_ms)
        await self._die()

    async def _die(self) -> None:
        self.ready = False
        if self._heartbeat is not None:
            self._heartbeat.cancel()
        db = self._world.db
        for view in await self.calls.insist(lambda: list_workers(db), "list_workers"):
            if view.value.worker_id == self.worker_id:
                await self.calls.insist(
                    lambda seen=view.beat: mark_dead(db, self.worker_id, seen), "mark_dead"
                )
        _log.info("left", worker_id=self.worker_id)

    async def _until(self, done: Callable[[], bool], timeout_ms: int) -> None:
        clock = self._world.clock
        deadline_ms = clock.now_ms() + timeout_ms
        while True:
            if done() or clock.now_ms() >= deadline_ms:
                return
            await asyncio.sleep(LOOK_AGAIN_S)

    async def close(self) -> None:
        """Stop everything at once. Sessions lose their stages first."""
        self.ready = False
        self.lives.drop_all()
        await self.tasks.close()
        await self._connections.close()

    # -- what the heartbeat asks and tells

    def _load(self) -> LoadView:
        active = self.lives.active
        return LoadView(
            worker_id=self.worker_id,
            lives=len(active),
            speaking=sum(session.speaking for session in active),
            capacity=self.options.capacity,
            free_slots=max(0, self.options.capacity - len(self.lives.sessions)),
            partitions=self.consumer.custody.partitions,
            at_ms=self._world.clock.wall_ms(),
        )

    def set_draining(self, draining: bool) -> None:
        """What the operator wants: give every live away, or go on."""
        self.draining = draining
        running = self._draining is not None and not self._draining.done()
        if draining and not running:
            self._drain = Drain(
                self._world.db,
                self.calls,
                self._world.rng,
                self.limits,
                self.worker_id,
                lambda: self.lives.active,
            )
            self._draining = self.tasks.spawn(self._drain.run(), "drain")
        elif not draining and self._draining is not None and running:
            self._draining.cancel()

    @property
    def _alone(self) -> bool:
        """No other worker takes lives: waiting for room would be in vain."""
        return self._drain is not None and self._drain.hopeless


async def open_connections(world: WorkerWorld, group: str) -> Connections:
    """Waits for the broker."""
    while True:
        try:
            return await Connections.open(world.transport, group)
        except BrokerAway as error:
            _log.warning("broker_away", error=str(error))
            await asyncio.sleep(world.rng.uniform(0.2, 1.0))
