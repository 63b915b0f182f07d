"""One run's world: replicas, workers, stand-ins, clients, all on one loop with virtual time.

Ownership, Dispatch and the controller are production's. The world carries out a plan: its actions
are timers, its clients ordinary coroutines of simulated processes.
"""

import asyncio
from dataclasses import dataclass
from random import Random
from typing import Any

from controller.incarnation import GROUP
from controller.shell import Worker, WorkerOptions, WorkerWorld
from dispatch.service import DispatchService
from ownership import keys
from ownership.kv import int64
from ownership.memory import Faults
from ownership.memory_store import MemoryStore
from ownership.tuple_layer import prefix_range
from ownership.values import read_checkpoint, read_cursor, read_generation, read_live, read_worker
from schemas.partition import partition_of
from schemas.store_values import LiveStatus, WorkerState
from schemas.topics import DEAD_LETTER_TOPIC, EVENTS_TOPIC, TEXT_TOPIC
from stream.memory import MemoryFaults
from stream.transport import TopicSpec
from tests.sim import history as h
from tests.sim import shortcuts, spies
from tests.sim.broker import SimBroker, SimTransport
from tests.sim.egress import SimMedia
from tests.sim.loop import SimProcess, VirtualLoop
from tests.sim.plan import ACTIVE_MS, Plan
from tests.sim.recorder import Recorder
from tests.sim.standins import SimDatabase, SimRuntime, WatchFaults
from tests.sim.texts import Author
from tests.sim.timing import (
    CHECKPOINT_MS,
    DISPATCH_LIMITS,
    LOOK_EVERY_MS,
    SETTLE_MS_MAX,
    SLACK_MS,
    WORKER_LIMITS,
)


class VirtualClock:
    """The loop's time; the wall stands at a fixed date."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def now_ms(self) -> int:
        return round(self._loop.now_s * 1000)

    def wall_ms(self) -> int:
        return 1_800_000_000_000 + round(self._loop.now_s * 1000)


@dataclass(slots=True, eq=False)
class Node:
    """One start of a worker process and all that it stands on."""

    name: str
    at: int
    process: SimProcess
    worker: Worker
    runtime: SimRuntime
    transport: SimTransport
    db: SimDatabase
    task: "asyncio.Task[None]"


@dataclass(slots=True, eq=False)
class Replica:
    process: SimProcess
    service: DispatchService
    transport: SimTransport
    db: SimDatabase
    task: "asyncio.Task[None]"


class World:
    """Made for one plan, run once."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.rng = Random(plan.seed ^ 0x5EED)
        self.loop = VirtualLoop(self.rng, steps_max=60_000)
        self.clock = VirtualClock(self.loop)
        self.recorder = Recorder(self.loop)
        self.store = MemoryStore()
        self.store.on_commit = self.recorder.commit
        self.broker = SimBroker(self.recorder, seed=plan.seed ^ 0xB0)
        delay_ms = plan.broker_delay_ms
        sends = plan.sends
        self.broker.faults = MemoryFaults(
            send_unknown_applied=sends.applied,
            send_unknown_lost=sends.lost,
            send_unknown_late=sends.late,
            late_ms_max=sends.late_ms_max,
            fetch_again=plan.fetch_again,
            latency_ms_max=delay_ms,
            away_ms=20,
        )
        self.nodes: list[Node | None] = [None] * len(plan.capacities)
        """The latest start of each node; None while it is down."""
        self.twins: list[Node] = []
        """Earlier starts that may still run beside it."""
        self.starts = 0
        self.replicas: list[Replica] = []
        made = [args[0] for _, what, args in plan.actions if what == "create"]
        self.authors = {
            live_id: Author(live_id, numbers=made.count(live_id) < 2) for live_id in plan.lives
        }
        self.active = True
        self.broker_back_s = 0.0
        """Until then nobody reaches the broker, and no new process does."""
        self.history: h.History = []
        """The run's, once it is over."""
        self.client = SimProcess(self.loop, "client")

    # -- making processes

    def _database(self, process: SimProcess, rng: Random) -> SimDatabase:
        plan = self.plan.store
        faults = watch_faults = None
        if self.active:
            span = (0.0, plan.delay_ms_max / 1000)
            if any((span[1], plan.conflict, plan.unknown_move)) or self._unknown():
                faults = Faults(
                    conflict=plan.conflict,
                    unknown_applied=plan.unknown_applied,
                    unknown_dropped=plan.unknown_dropped,
                    unknown_late=plan.unknown_late,
                    begin_s=span,
                    commit_s=span,
                    reply_s=span,
                    late_s=(0.0, plan.late_ms_max / 1000),
                )
            if plan.watch_lost or plan.watch_late:
                watch_faults = WatchFaults(plan.watch_lost, plan.watch_late)
        db = SimDatabase(self.store, rng, faults, watch_faults, process, self.recorder)
        db.unknown_move = plan.unknown_move
        return db

    def _unknown(self) -> bool:
        plan = self.plan.store
        return bool(plan.unknown_applied or plan.unknown_dropped or plan.unknown_late)

    def start_replica(self) -> None:
        process = SimProcess(self.loop, f"d{len(self.replicas)}")
        rng = Random(self.rng.getrandbits(60))
        db = self._database(process, rng)
        transport = SimTransport(self.broker)
        service = DispatchService(
            db,
            transport,
            self.clock,
            rng,
            DISPATCH_LIMITS,
            self.plan.partitions,
        )
        task = process.spawn(service.run())
        task.add_done_callback(lambda done, name=process.name: self._process_ended(name, done))
        self.replicas.append(Replica(process, service, transport, db, task))

    def start_worker(self, at: int) -> Node:
        self.starts += 1
        process = SimProcess(self.loop, f"n{at}.{self.starts}")
        rng = Random(self.rng.getrandbits(60))
        db = self._database(process, rng)
        if self.plan.pause_on_release and self.active:
            db.on_applied = self._release_applied
        capacity = self.plan.capacities[at]
        runtime = SimRuntime(
            self.recorder,
            process,
            late_s=self.plan.tick_late_ms / 1000,
            live_slots=2 * capacity + 2,
            ms_per_character=5,
            tick_frames=1,
            idle_ticks=False,
        )
        transport = SimTransport(self.broker)
        if self.loop.now_s < self.broker_back_s:
            transport.link.away = True
            self.loop.call_at(self.broker_back_s, transport.link.free)
        worker = Worker(
            WorkerOptions(f"n{at}", capacity, f"http://n{at}"),
            WorkerWorld(
                db,
                transport,
                runtime,
                SimMedia(self.recorder, process, runtime, self.loop),
                self.clock,
                rng,
            ),
            WORKER_LIMITS,
        )
        task = process.spawn(worker.run())
        task.add_done_callback(lambda done, name=process.name: self._process_ended(name, done))
        node = Node(f"n{at}", at, process, worker, runtime, transport, db, task)
        self.nodes[at] = node
        return node

    def _process_ended(self, name: str, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._broke(name, error)

    def _broke(self, name: str, error: BaseException) -> None:
        self.recorder.note(h.Broke.by(error, name, self.recorder.now_ms))

    # -- faults that are hooked in

    def _release_applied(self, process: SimProcess, tr: Any) -> None:
        """A release of this process just became durable; it may stop before it hears of it."""
        if not self.active or process.paused or not spies.is_release(tr):
            return
        if self.rng.random() < self.plan.pause_on_release:
            self.recorder.windows["paused_between_commit_and_feed"] += 1
            self.pause(process, self.rng.randrange(5, self.plan.pause_ms_max))

    def pause(self, process: SimProcess, for_ms: int) -> None:
        """Stop it now, until later; a crash meanwhile is final."""
        if process.paused or process.crashed:
            return
        process.pause()
        self.fault("pause", process.name, f"{for_ms} ms")
        self.loop.call_later(for_ms / 1000, self._resume, process)

    def _resume(self, process: SimProcess) -> None:
        if process.paused and not process.crashed:
            self.fault("resume", process.name)
            process.resume()

    def fault(self, kind: str, process: str, detail: str = "") -> None:
        self.recorder.note(h.Fault(self.recorder.now_ms, kind, process, detail))

    def crash(self, node: Node) -> None:
        """The process is gone; its membership times out at once."""
        if node.process.crashed:
            return
        node.process.crash()
        self.fault("crash", node.process.name)
        self.recorder.note(h.Gone(self.recorder.now_ms, node.process.name))
        for reader in node.transport.group_readers:
            self.broker.expel(GROUP, reader)
        if self.nodes[node.at] is node:
            self.nodes[node.at] = None
        if node in self.twins:
            self.twins.remove(node)

    # -- the run

    def run(self) -> None:
        """Carry out the plan, end the faults, and wait until nothing is left to do."""
        loop = self.loop
        spies.RECORDER = self.recorder
        shortcuts.begin(in_full=self.plan.in_full)
        with loop.current():
            self.recorder.note(h.Promised(0, CHECKPOINT_MS, SLACK_MS))
            for topic, count in (
                (TEXT_TOPIC, self.plan.partitions),
                (EVENTS_TOPIC, 1),
                (DEAD_LETTER_TOPIC, 1),
            ):
                self.broker.make_topic(TopicSpec(topic, count))
            self.start_replica()
            self.start_replica()
            for at in range(len(self.plan.capacities)):
                self.start_worker(at)
            from tests.sim.faults import Script

            script = Script(self)
            for at_ms, what, args in self.plan.actions:
                loop.call_at(at_ms / 1000, script.act, what, args)
            loop.run(ACTIVE_MS / 1000)
            self._end_faults()
            deadline_s = loop.now_s + SETTLE_MS_MAX / 1000
            waiting = self.waiting()
            while waiting and loop.now_s < deadline_s:
                loop.run(loop.now_s + LOOK_EVERY_MS / 1000)
                waiting = self.waiting()
            self._note_end(waiting)
            self.history, self.recorder.history = self.recorder.history, []
            self.close()

    def give_up(self, error: BaseException) -> None:
        """It went on and on: what happened up to here is the history."""
        self._broke("loop", error)
        self._note_end(self.waiting())
        self.history, self.recorder.history = self.recorder.history, []
        with self.loop.current():
            self.close()

    def _end_faults(self) -> None:
        self.active = False
        faults = self.broker.faults
        faults.fetch_again = 0.0
        faults.send_unknown_applied = faults.send_unknown_lost = faults.send_unknown_late = 0.0
        self.fault("faults_end", "")
        for replica in self.replicas:
            replica.db.end_faults()
            self._resume(replica.process)
        for node in (*self.nodes, *self.twins):
            if node is not None:
                node.db.end_faults()
                node.process.steps_to_pause = -1
                self._resume(node.process)
        for at, node in enumerate(self.nodes):
            if node is None:
                self.start_worker(at)

    def _note_end(self, waiting: list[str]) -> None:
        contents = self.store.contents.values
        free = 0
        for key, raw in contents.items():
            if key.startswith(keys.WORKER):
                worker = read_worker(raw)
                if worker is not None and worker.state is WorkerState.READY:
                    begin, end = prefix_range(keys.slots_of(worker.worker_id))
                    free += worker.capacity - len(self.store.contents.between(begin, end))
        for context in self.loop.errors:
            error = context.get("exception")
            self._broke("loop", error or RuntimeError(str(context.get("message"))))
        now_ms = self.recorder.now_ms
        self.recorder.note(h.Ended(now_ms, not waiting, tuple(waiting), free > 0))

    def waiting(self) -> list[str]:
        """The lives for which something is left to do; "" for records without a live."""
        rec, values = self.recorder, self.store.contents.values
        found: list[str] = []
        for live_id, last in rec.last_offset.items():
            partition = rec.partition[live_id]
            cursor = read_cursor(values.get(keys.cursor(live_id)))
            floor = 0 if cursor is None else cursor.next_offset
            live = read_live(values.get(keys.live(live_id)))
            if live is None or live.state is not LiveStatus.OPEN:
                floor = max(floor, int64(values.get(keys.watermark(partition))))
            if rec.told_lost(partition, last, live_id, alone=True):
                floor = last + 1
            if floor <= last:
                found.append(live_id)
                continue
            if live is not None and live.state is LiveStatus.OPEN:
                progress = read_checkpoint(values.get(keys.progress(live_id)))
                if (
                    progress is not None and (progress.segments or progress.next_char >= 0)
                ) or read_generation(values.get(keys.gen(live_id))) is None:
                    found.append(live_id)
        if any(place not in rec.lettered and not rec.told_lost(*place) for place in rec.bad_keys):
            found.append("")
        for partition in range(self.plan.partitions):
            begin, end = prefix_range(keys.disposing_of(partition))
            for key in self.store.contents.between(begin, end):
                live_id, place = values[key].decode(), (partition, keys.last_int(key))
                if place not in rec.lettered and not rec.told_lost(*place, live_id, alone=True):
                    found.append(live_id)
        return found

    def close(self) -> None:
        """End every coroutine that still waits, so that nothing is left to the collector."""
        self.loop.end_tasks()
        self.loop.close()
        spies.RECORDER = None

    def partition(self, live_id: str) -> int:
        return partition_of(live_id.encode(), self.plan.partitions)
