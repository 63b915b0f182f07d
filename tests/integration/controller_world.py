"""Workers on a loop with virtual time: memory store, memory broker, stub stages, direct egress."""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeVar

from controller.clock import Clock
from controller.limits import Limits
from controller.media import Egress, Media, PacedMedia
from controller.node_name import give_way
from controller.shell import Worker, WorkerOptions, WorkerWorld
from gpu_stages.runtime_contract import Binding, BoundLive, Segment
from gpu_stages.stub import StubRuntime
from ownership.lives import create_live, get_live
from ownership.memory import Faults, MemoryDatabase
from ownership.memory_store import MemoryStore
from ownership.model import Created, CreateLive, Generation, LiveView
from schemas.dead_letter import DeadLetter
from schemas.events import EventKind, LiveEvent
from schemas.media import MediaTick
from schemas.options import LiveOptions
from schemas.partition import partition_of
from schemas.text_record import RecordKind, TextRecord, encode_text_record
from schemas.topics import DEAD_LETTER_TOPIC, EVENTS_TOPIC, TEXT_TOPIC
from stream.memory import MemoryBroker, MemoryTransport
from stream.transport import TopicSpec
from tests.sim.loop import SimProcess, VirtualLoop
from tests.support.unpaced_egress import UnpacedEgress

T = TypeVar("T")


class VirtualClock:
    """The loop's time; the wall stands at a fixed date."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def now_ms(self) -> int:
        return round(self._loop.now_s * 1000)

    def now_us(self) -> int:
        return round(self._loop.now_s * 1_000_000)

    def wall_ms(self) -> int:
        return 1_800_000_000_000 + self.now_ms()


@dataclass
class Fed:
    """One segment that went into a ring."""

    worker: str
    live_id: str
    epoch: int
    segment: Segment
    at_s: float


@dataclass
class Heard:
    """Samples of a segment that were sent."""

    worker: str
    live_id: str
    epoch: int
    segment_id: int
    begin: int
    end: int
    at_s: float


class LoggedRuntime(StubRuntime):
    """The stub, and what was fed to it."""

    def __init__(self, world: "World", worker: str, **settings: Any) -> None:
        super().__init__(**settings)
        self.world = world
        self.worker = worker
        self.places: dict[int, BoundLive] = {}

    def bind(self, live: BoundLive) -> Binding:
        binding = super().bind(live)
        self.places[binding.live_slot] = live
        return binding

    def feed(self, live_slot: int, segment: Segment) -> None:
        super().feed(live_slot, segment)
        live = self.places[live_slot]
        now_s = self.world.loop.now_s
        self.world.fed.append(Fed(self.worker, live.live_id, live.epoch, segment, now_s))


class DirectEgress(UnpacedEgress):
    """Writes down what is heard."""

    def __init__(self, media: "DirectMedia", live_id: str, made: dict[str, Any]) -> None:
        super().__init__(live_id, made)
        self.media = media

    def spoken(self, tick: MediaTick) -> None:
        world = self.media.world
        world.heard.append(
            Heard(
                self.media.worker,
                self.live_id,
                self.epoch,
                tick.segment_id,
                tick.sample_start,
                tick.sample_start + tick.speech_samples,
                world.loop.now_s,
            )
        )

    def now_us(self) -> int:
        return self.media.world.clock.now_us()


class DirectMedia:
    """Egresses without pacing; the stub's own clock paces."""

    def __init__(self, world: "World", worker: str) -> None:
        self.world = world
        self.worker = worker
        self.open_now: list[DirectEgress] = []

    def open(self, *, live_id: str, **made: Any) -> Egress:
        egress = DirectEgress(self, live_id, made)
        self.open_now.append(egress)
        egress.set_credit(1 << 40)
        return egress

    def rebind(self, egress: Egress, *, binding: int, epoch: int, start_frame: int) -> None:
        assert isinstance(egress, DirectEgress)
        egress.binding, egress.epoch = binding, epoch
        egress.frozen = False
        egress.set_credit(1 << 40)

    def shut(self, egress: Egress) -> None:
        assert isinstance(egress, DirectEgress)
        egress.closed = True
        self.open_now.remove(egress)

    def close(self) -> None:
        for egress in tuple(self.open_now):
            self.shut(egress)


@dataclass(repr=False)
class Member:
    """One worker and what it stands on."""

    worker: Worker
    runtime: LoggedRuntime
    media: Media
    process: SimProcess
    task: Any
    transport: MemoryTransport
    db: MemoryDatabase

    @property
    def worker_id(self) -> str:
        assert self.worker.incarnation is not None
        return self.worker.incarnation.worker_id


@dataclass(repr=False)
class World:
    """Everything. `fed` and `heard` are the truth about what was spoken where."""

    seed: int = 0
    partitions: int = 4
    loop: VirtualLoop = field(init=False)
    clock: Clock = field(init=False)
    fed: list[Fed] = field(default_factory=list)
    heard: list[Heard] = field(default_factory=list)
    members: list[Member] = field(default_factory=list)
    crashed: list[Member] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = Random(self.seed)
        self.loop = VirtualLoop(self.rng, steps_max=20_000_000)
        self.clock = VirtualClock(self.loop)
        self.broker = MemoryBroker(seed=self.seed)
        self.store = MemoryStore()
        self.db = MemoryDatabase(self.store, Random(self.seed + 1))
        self.client = SimProcess(self.loop, "client")
        with self.loop.current():
            for topic, count in (
                (TEXT_TOPIC, self.partitions),
                (EVENTS_TOPIC, 1),
                (DEAD_LETTER_TOPIC, 1),
            ):
                self.broker.make_topic(TopicSpec(topic, count))

    def __enter__(self) -> "World":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- running

    def run(self, seconds: float) -> None:
        """Let virtual time pass."""
        with self.loop.current():
            self.loop.run(self.loop.now_s + seconds)
        for member in self.members:
            if member.task.done() and not member.task.cancelled():
                error = member.task.exception()
                if error is not None:
                    raise error
        assert not self.loop.errors, self.loop.errors

    def until(self, condition: Callable[[], object], timeout_s: float = 60) -> None:
        """Let virtual time pass until something is true."""
        end_s = self.loop.now_s + timeout_s
        while not condition():
            assert self.loop.now_s < end_s, f"not within {timeout_s} s\n{self.dump()}"
            self.run(0.02)

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine."""
        with self.loop.current():
            task = self.client.spawn(work)
            task.add_done_callback(lambda _: self.loop.stop())
            self.loop.run(self.loop.now_s + 60)
        return task.result()

    def dump(self) -> str:
        return "\n".join(str(member.worker.dump()) for member in self.members)

    # -- workers

    def start(
        self,
        node: str,
        *,
        capacity: int = 16,
        limits: Limits | None = None,
        faults: Faults | None = None,
        tick_frames: int = 1,
        slots: int | None = None,
        ms_per_character: int = 60,
        paced: bool = False,
        auto_create: LiveOptions | None = None,
        gives_way: bool = False,
    ) -> Member:
        """A worker that has registered; with `gives_way` it ends when another has its node."""
        process = SimProcess(self.loop, node)
        runtime = LoggedRuntime(
            self,
            node,
            live_slots=slots or capacity,
            tick_frames=tick_frames,
            idle_ticks=paced,
            ms_per_character=ms_per_character,
        )
        media: Media = PacedMedia(self.clock) if paced else DirectMedia(self, node)
        db = MemoryDatabase(self.store, Random(self.rng.random()), faults)
        transport = MemoryTransport(self.broker)
        with self.loop.current():
            worker = Worker(
                WorkerOptions(node, capacity, f"http://{node}", auto_create=auto_create),
                WorkerWorld(db, transport, runtime, media, self.clock, Random(self.rng.random())),
                limits,
                (lambda dead: give_way(db, node, dead)) if gives_way else None,
            )
            task = process.spawn(worker.run())
        member = Member(worker, runtime, media, process, task, transport, db)
        self.members.append(member)
        self.until(lambda: worker.ready)
        return member

    def crash(self, member: Member) -> None:
        """The process is gone; its group membership times out."""
        member.process.crash()
        self.members.remove(member)
        self.crashed.append(member)
        with self.loop.current():
            for reader in member.transport.group_readers:
                self.broker.expel("dhsched.workers", reader)

    # -- lives

    def create(self, live_id: str, on: Member, options: LiveOptions | None = None) -> Generation:
        """An open live of this worker."""
        request = CreateLive(
            live_id,
            options or LiveOptions(),
            self.partition(live_id),
            on.worker_id,
            commit_id=f"commit-{live_id}-{self.rng.random()}",
            create_id=f"create-{live_id}-{self.rng.random()}",
            now_ms=self.clock.wall_ms(),
            slot_draw=self.rng.getrandbits(30),
        )
        answer = self.call(create_live(self.db, request))
        assert isinstance(answer, Created), answer
        return answer.generation

    def partition(self, live_id: str) -> int:
        return partition_of(live_id.encode(), self.partitions)

    def view(self, live_id: str) -> LiveView:
        view = self.call(get_live(self.db, live_id))
        assert view is not None
        return view

    def push(self, live_id: str, *texts: str, seq: int | None = None) -> list[int]:
        """TEXT records; their offsets."""
        return [
            self.put(live_id, TextRecord(RecordKind.TEXT, text, seq, f"e-{live_id}-{n}"))
            for n, text in enumerate(texts)
        ]

    def mark(self, live_id: str, kind: RecordKind, seq: int | None = None) -> int:
        return self.put(live_id, TextRecord(kind, seq=seq, event_id=f"{kind.value}-{live_id}"))

    def put(self, live_id: str, record: TextRecord) -> int:
        return self.raw(live_id.encode(), encode_text_record(record), self.partition(live_id))

    def raw(self, key: bytes | None, value: bytes | None, partition: int) -> int:
        with self.loop.current():
            return self.broker.append(TEXT_TOPIC, partition, key, value)

    # -- what happened

    def letters(self) -> list[DeadLetter]:
        return [DeadLetter.decode(raw.value) for raw in self.broker.records(DEAD_LETTER_TOPIC, 0)]

    def events(self, kind: EventKind | None = None, live_id: str | None = None) -> list[LiveEvent]:
        found = [LiveEvent.decode(raw.value) for raw in self.broker.records(EVENTS_TOPIC, 0)]
        return [
            event
            for event in found
            if kind in (None, event.kind) and live_id in (None, event.live_id)
        ]

    def fed_text(self, live_id: str) -> str:
        """What was said, by first feeds: a segment that is fed again is not said twice."""
        seen: dict[int, str] = {}
        for fed in self.fed:
            if fed.live_id == live_id:
                seen.setdefault(fed.segment.segment_id, fed.segment.text)
        return "".join(seen.values())

    def heard_samples(self, live_id: str) -> dict[int, list[tuple[int, int]]]:
        """Per segment the sample ranges that were sent, in order of sending."""
        found: dict[int, list[tuple[int, int]]] = {}
        for one in self.heard:
            if one.live_id == live_id:
                found.setdefault(one.segment_id, []).append((one.begin, one.end))
        return found

    def idle(self, live_id: str) -> bool:
        """Whether everything of this live was spoken."""
        for member in self.members:
            session = member.worker.session(live_id)
            if session is not None and session.machine.queue is not None:
                machine = session.machine
                return not len(machine.speech) and machine.queue.empty and machine._ask is None
        return False

    def close(self) -> None:
        """End every task, those of crashed workers too: nothing is left to the collector."""
        for member in self.members:
            member.process.resume()
            with self.loop.current():
                member.task.cancel()
                self.loop.run(self.loop.now_s + 5)
        with self.loop.current():
            self.loop.end_tasks()
        self.loop.close()
