"""Every schedule of a small world, up to a bound: no randomness, no sampling.

Two dispatchers move one live, each once; two workers own it by turns; three records come. What runs
is production's: the transactions of `ownership`, and in each worker its lives, sessions, release
batcher and claims. A step is one store transaction, or the delivery of its answer, or one read, or
one record.

A process goes on until it has nothing to do, then the next one does, round and round. To take any
other step than the one whose turn it is is a preemption. All schedules with at most so many
preemptions are run, each from the beginning, and judged by the checkers of the random runs.
"""

import asyncio
import gc
import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from random import Random
from types import SimpleNamespace
from typing import Any

from controller import events as ev
from controller.counters import Counters
from controller.ids import IdMint
from controller.lives import Lives
from controller.outside import Outside
from controller.release import ReleaseBatcher
from controller.session import SessionParts
from controller.store_calls import StoreCalls
from controller.tasks import Tasks
from ownership import keys
from ownership.generations import owned_by
from ownership.kv import Committed, Reads, Transaction
from ownership.lives import create_live, get_live
from ownership.memory_store import MemoryStore
from ownership.memory_transaction import MemoryReads, MemoryTransaction
from ownership.model import CommitGeneration, CreateLive
from ownership.values import read_cursor
from ownership.watching import HintWatch
from ownership.workers import register_worker, worker_signal_key
from schemas.options import LiveOptions
from schemas.store_values import WorkerState, WorkerValue
from schemas.text_record import RecordKind, TextRecord
from tests.sim import history as h
from tests.sim import shortcuts, spies
from tests.sim.ablations import PROTOCOLS, in_force
from tests.sim.checkers import check
from tests.sim.egress import SimMedia
from tests.sim.install import install
from tests.sim.loop import SimProcess, VirtualLoop
from tests.sim.recorder import Recorder
from tests.sim.standins import SimRuntime
from tests.sim.timing import WORKER_LIMITS
from tests.sim.world import VirtualClock

install()

LIVE = "a"
TEXTS = ("a1 go. ", "a2 go. ", "a3 go. ")
STEPS_MAX = 400
_BETWEEN_S = 0.02
_EVER_S = 1e6
_COLLECT_EVERY = 16
"""Few, so that a world's memory is used again while the processor still has it at hand."""


@dataclass(slots=True)
class Gate:
    """A step that waits for its turn."""

    actor: int
    open: "asyncio.Future[None]"


class GatedDatabase:
    """One process's store: each operation is a step, and so is the answer of a transaction."""

    def __init__(self, world: "SmallWorld", actor: int, name: str) -> None:
        self._world = world
        self._actor = actor
        self._name = name

    async def attempt(self, body: Callable[[Transaction], Any]) -> Committed[Any]:
        return Committed(await self.run(body))

    async def run(self, body: Callable[[Transaction], Any], probe: object = None) -> Any:
        world = self._world
        await world.turn(self._actor)
        tr = MemoryTransaction(world.store.contents, world.store.version)
        value = body(tr)
        world.recorder.committer = self._name
        assert world.store.commit(tr)
        await world.turn(self._actor)
        return value

    async def read(self, body: Callable[[Reads], Any]) -> Any:
        if not body.__qualname__.startswith("watermark"):
            await self._world.turn(self._actor)
        return body(MemoryReads(self._world.store.contents))

    def watch(self, key: bytes) -> HintWatch:
        watch = HintWatch(key, lambda _: None)
        self._world.store.watches.setdefault(key, []).append(watch)
        return watch


class _Records:
    """What sessions read: the log so far at once, then each record when it comes."""

    def __init__(self) -> None:
        self.log: list[ev.Accepted] = []
        self.open_lives: list[Any] = []

    def open(self, session: Any, partition: int, order: Any) -> Any:
        self.open_lives.append(session)
        found = tuple(one for one in self.log if one.offset >= order.start)
        asyncio.get_running_loop().call_soon(self._backlog, session, found)
        return SimpleNamespace(ahead=SimpleNamespace(holed=False))

    def _backlog(self, session: Any, found: tuple[ev.Accepted, ...]) -> None:
        if session in self.open_lives:
            session.post(ev.RecordsRead(found, len(self.log)))

    def close(self, session: Any, partition: int) -> None:
        if session in self.open_lives:
            self.open_lives.remove(session)

    def came(self, record: ev.Accepted) -> None:
        for session in tuple(self.open_lives):
            session.post(ev.RecordsRead((record,), record.offset + 1))


class _QuietMedia(SimMedia):
    """Nothing is ever heard, so nothing but ownership happens."""

    def open(self, *, live_id: str, **made: Any) -> Any:
        return super().open(live_id=live_id, **{**made, "set_credit": lambda _: None})


class SmallWorld:
    """Made anew for each schedule."""

    def __init__(self) -> None:
        shortcuts.begin(in_full=False)
        self.loop = VirtualLoop(Random(0))
        self.clock = VirtualClock(self.loop)
        self.recorder = spies.RECORDER = Recorder(self.loop)
        self.store = MemoryStore()
        self.store.on_commit = self.recorder.commit
        self.gates: list[Gate] = []
        self.gated = False
        self.records = [_Records(), _Records()]
        self.workers: list[str] = []
        self.tasks: list[Tasks] = []

    async def turn(self, actor: int) -> None:
        """Wait for the turn of a step of this actor."""
        if self.gated:
            gate = Gate(actor, self.loop.create_future())
            self.gates.append(gate)
            await gate.open

    # -- the processes

    async def begin(self) -> None:
        """Two registered workers, one open live: nothing of this is explored."""
        for at in range(2):
            db = GatedDatabase(self, at, f"w{at}")
            value = WorkerValue(f"w{at}", f"n{at}", 2, "", WorkerState.READY, 0)
            await register_worker(db, value)  # type: ignore[arg-type]
            self.workers.append(f"w{at}")
        db = GatedDatabase(self, 2, "d0")
        create = CreateLive(LIVE, LiveOptions(), 0, "w0", "first", "made", 0)
        await create_live(db, create)  # type: ignore[arg-type]

    def start_worker(self, at: int) -> None:
        process, name = SimProcess(self.loop, f"w{at}"), f"w{at}"
        db: Any = GatedDatabase(self, at, name)
        rng, counters, tasks = Random(at), Counters(), Tasks()
        calls = StoreCalls(rng, counters)
        mint = IdMint(self.clock, rng)
        runtime = SimRuntime(self.recorder, process, late_s=0.0, live_slots=4, idle_ticks=False)
        batcher = ReleaseBatcher(db, calls, self.clock, counters, 8)
        parts = SessionParts(
            runtime,
            _QuietMedia(self.recorder, process, runtime, self.loop),
            batcher,
            self.clock,
            counters,
            WORKER_LIMITS.session,
            {},
        )
        letters: Any = None
        outside = Outside(db, calls, letters, tasks, self.clock, rng, mint, counters, 8)
        announcer: Any = SimpleNamespace(say=lambda event: None)
        consumer: Any = self.records[at]
        lives = Lives(name, parts, outside, consumer, announcer, mint, tasks)
        self.tasks.append(tasks)

        async def follow() -> None:
            await runtime.start(lives.tick, lives.trouble)
            tasks.spawn(batcher.run(), "release")
            watch = db.watch(worker_signal_key(name))
            while True:
                lives.owned(await owned_by(db, name))
                await watch.changed(_EVER_S)

        process.spawn(follow())

    async def move(self, at: int) -> None:
        """One dispatcher's move: to the worker that does not own the live when it looks."""
        db: Any = GatedDatabase(self, 2 + at, f"d{at}")
        view = await get_live(db, LIVE)
        if view is None or view.generation is None:
            return
        source = view.generation
        target = self.workers[1 - self.workers.index(source.worker_id)]
        await spies.spied_commit_generation(
            db, CommitGeneration(LIVE, source, target, f"move-{at}", 0)
        )

    async def produce(self) -> None:
        for offset, text in enumerate(TEXTS):
            await self.turn(4)
            record = ev.Accepted(offset, TextRecord(RecordKind.TEXT, text))
            self.recorder.note(h.Produced(0, 0, offset, LIVE, "text", text, None))
            for one in self.records:
                one.log.append(record)
                one.came(record)

    # -- a schedule

    def run(self, chosen: dict[int, int]) -> list[int]:
        """For each step, how many others could have been taken.

        `chosen`: step to the number of the one that is taken instead of the first.
        """
        loop = self.loop
        choices: list[int] = []
        with loop.current():
            SimProcess(loop, "begin").spawn(self.begin())
            loop.run(loop.now_s + _BETWEEN_S)
            self.gated = True
            for at in range(2):
                self.start_worker(at)
            for at in range(2):
                SimProcess(loop, f"d{at}").spawn(self.move(at))
            SimProcess(loop, "client").spawn(self.produce())
            loop.run(loop.now_s + _BETWEEN_S)
            turn = 0
            while self.gates and len(choices) < STEPS_MAX:
                order = sorted(self.gates, key=lambda gate: (gate.actor - turn) % 5)
                gate = order[chosen.get(len(choices), 0)]
                choices.append(len(order) - 1)
                self.gates.remove(gate)
                turn = gate.actor
                gate.open.set_result(None)
                loop.run(loop.now_s + _BETWEEN_S)
            self._end()
        return choices

    def _end(self) -> None:
        cursor = read_cursor(self.store.contents.values.get(keys.cursor(LIVE)))
        done = cursor is not None and cursor.next_offset == len(TEXTS) and not self.gates
        for tasks in self.tasks:
            if tasks._error is not None:
                self.recorder.note(h.Broke(0, "", repr(tasks._error)))
        self.recorder.note(h.Ended(0, False, () if done else (LIVE,), True))
        self.history, self.recorder.history = self.recorder.history, []
        self.loop.end_tasks()
        self.loop.close()


# -- all of them -------------------------------------------------------------------------------


@dataclass(slots=True)
class Explored:
    """`bad` are schedules with a violation; `first_bad` is the one with the fewest preemptions."""

    schedules: int = 0
    violations: int = 0
    bad: int = 0
    steps_max: int = 0
    first_bad: dict[int, int] | None = None
    first_violation: str = ""


def explore(protocol: str, preemptions_max: int, *, part: int = 0, parts: int = 1) -> Explored:
    """Every schedule of a protocol, or every `parts`-th subtree of the first deviation."""
    found = Explored()
    gc.disable()
    with in_force(PROTOCOLS[protocol]):
        _explore(preemptions_max, found, part, parts)
    gc.enable()
    return found


def _explore(budget: int, found: Explored, part: int, parts: int) -> None:
    """Depth first: each schedule is extended by other choices behind its last one."""
    choices = _judge({}, found) if part == 0 else SmallWorld().run({})
    first = [
        ({step: other}, step + 1, budget - 1)
        for step in range(len(choices) if budget else 0)
        for other in range(1, choices[step] + 1)
    ]
    waiting = first[part::parts]
    while waiting:
        plan, begin, left = waiting.pop()
        choices = _judge(plan, found)
        if found.schedules % _COLLECT_EVERY == 0:
            gc.collect(0)
        for step in range(begin, len(choices)):
            for other in range(1, choices[step] + 1 if left else 0):
                waiting.append(({**plan, step: other}, step + 1, left - 1))


def _judge(plan: dict[int, int], found: Explored) -> list[int]:
    world = SmallWorld()
    choices = world.run(plan)
    violations = check(world.history).violations
    found.schedules += 1
    found.steps_max = max(found.steps_max, len(choices))
    if violations:
        found.bad += 1
        found.violations += len(violations)
        if found.first_bad is None or len(plan) < len(found.first_bad):
            found.first_bad = plan
            first = violations[0]
            found.first_violation = f"{first.invariant.value}: {first.detail}"
    return choices


if __name__ == "__main__":
    name, depth, part, parts = sys.argv[1:5]
    result = explore(name, int(depth), part=int(part), parts=int(parts))
    json.dump({**asdict(result), "first_bad": str(result.first_bad)}, sys.stdout)
