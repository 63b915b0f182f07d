"""The controllers of a replay: production's `Worker`, over memory, virtual time and stages in step.

A live that moves goes back and forth between two of them, which share the store and the log and
nothing else: neither can ask the other, nor does either know what the other's stages hold.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from controller.clock import Clock
from controller.session import Session
from controller.session_states import State
from controller.shell import Worker, WorkerOptions, WorkerWorld
from dhsched.offline.film import Film
from dhsched.offline.lockstep import LoadedStages, LockstepRuntime, Taps
from dhsched.offline.replay_media import MediaLine, ReplayMedia
from gpu_stages.header import Header
from gpu_stages.stage import Part
from ownership.generations import commit_generation, reserve
from ownership.kv import Database, Transaction
from ownership.memory import MemoryDatabase
from ownership.memory_store import MemoryStore
from ownership.model import CommitGeneration, CommittedGeneration, Generation, Reserved
from ownership.workers import worker_signal_key
from stream.memory import MemoryBroker, MemoryTransport

CAPACITY: Final = 4
"""A slot for the live, and some that earlier generations of it may still be leaving."""

TURNS_MAX: Final = 10_000
"""Turns of the loop within one instant: far more than any step of the protocol takes."""


class ReplayFailed(RuntimeError):
    """What was replayed did not come to an end; the message says where it stood."""


@dataclass(slots=True, eq=False)
class Controller:
    """One worker, its stages, and the task that it runs in."""

    name: str
    worker: Worker
    runtime: LockstepRuntime
    transport: MemoryTransport
    task: "asyncio.Task[None]"

    def check(self) -> None:
        """Raises ReplayFailed when it runs no more."""
        if self.task.done():
            error = None if self.task.cancelled() else self.task.exception()
            raise ReplayFailed(f"{self.name} ended: {error or 'for no reason'}") from error

    @property
    def worker_id(self) -> str:
        """Of its present incarnation. Raises ReplayFailed between two."""
        if self.worker.incarnation is None:
            raise ReplayFailed(f"{self.name} is not registered")
        return self.worker.incarnation.worker_id


def start_controller(
    name: str,
    store: MemoryStore,
    broker: MemoryBroker,
    clock: Clock,
    loaded: LoadedStages,
    film: Film,
    line: MediaLine,
    side_px_max: int,
) -> Controller:
    """A worker that begins to run with the next turn of the loop."""

    def drawn(header: Header, parts: Sequence[Part]) -> None:
        film.drawn(name, header, parts)

    taps = Taps(film.voiced, drawn, film.fed, film.interrupted)
    runtime = LockstepRuntime(loaded, taps, clock.now_us, side_px_max=side_px_max)
    transport = MemoryTransport(broker)
    rng = Random(name)
    world = WorkerWorld(
        MemoryDatabase(store, rng),
        transport,
        runtime,
        ReplayMedia(name, line, film, clock.now_us),
        clock,
        rng,
    )
    worker = Worker(WorkerOptions(name, CAPACITY, f"replay:{name}"), world)
    task = asyncio.get_running_loop().create_task(worker.run(), name=name)
    return Controller(name, worker, runtime, transport, task)


async def settle(done: Callable[[], bool], what: str, controllers: Sequence[Controller]) -> None:
    """Wait for something that takes no time, only turns of the loop. Raises ReplayFailed."""
    for _ in range(TURNS_MAX):
        if done():
            return
        for one in controllers:
            one.check()
        await asyncio.sleep(0)
    raise ReplayFailed(f"{what} did not happen")


class Mover:
    """Applies recorded generations: the two ways in which a live changes its owner."""

    def __init__(
        self, db: Database, clock: Clock, live_id: str, controllers: Sequence[Controller]
    ) -> None:
        self._db = db
        self._clock = clock
        self._live_id = live_id
        self._controllers = controllers
        self._moves = 0

    @property
    def owner(self) -> Controller:
        """Who has the live."""
        return self._controllers[self._moves % len(self._controllers)]

    @property
    def session(self) -> Session | None:
        """The session with authority, when there is one."""
        return self.owner.worker.session(self._live_id)

    async def move(self, *, handed_over: bool) -> None:
        """To the other controller, in one instant. Raises ReplayFailed."""
        source, self._moves = self.owner, self._moves + 1
        target, number = self.owner, self._moves
        both = [source, target]
        session = source.worker.session(self._live_id)
        if session is None:
            raise ReplayFailed(f"{source.name} does not own the live that is to move")
        if handed_over:
            running = (State.IDLE, State.SPEAKING)
            await settle(lambda: session.machine.state in running, "a running session", both)
            await self._ask(source, target, number)
        else:
            await self._take(source, session.generation, target, number)
        await settle(lambda: self.session is not None, "the move", both)

    async def _ask(self, source: Controller, target: Controller, number: int) -> None:
        """As Dispatch asks for a planned move: a slot is kept, and the source hands over."""
        answer = await reserve(
            self._db,
            target.worker_id,
            f"move-{number}",
            self._clock.wall_ms(),
            live_id=self._live_id,
        )
        if not isinstance(answer, Reserved):
            raise ReplayFailed(f"{target.name} has no slot: {answer}")
        key = worker_signal_key(source.worker_id)

        def wake(tr: Transaction) -> None:
            tr.add(key, 1)

        await self._db.run(wake)

    async def _take(
        self, source: Controller, old: Generation, target: Controller, number: int
    ) -> None:
        """As Dispatch recovers a live: past its owner, who is not asked and finds itself fenced,
        from the last checkpoint that it happened to write."""
        answer = await commit_generation(
            self._db,
            CommitGeneration(
                self._live_id,
                old,
                target.worker_id,
                f"move-{number}",
                self._clock.wall_ms(),
            ),
        )
        if not isinstance(answer, CommittedGeneration):
            raise ReplayFailed(f"the live could not be taken from {source.name}: {answer}")
