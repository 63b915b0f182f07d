"""Keeps the stage processes running: start, ready, ping, restart with back-off, give up, close.

    STARTING --ready--> READY --ended or hung--> LOST --back-off--> STARTING
        |                                          |
        +-- ended, or not ready in time --> LOST   +-- too many in the window --> GAVE_UP
    any --close--> CLOSED

When a process is lost it is reaped first; then `on_lost` runs, which voids all bindings and resets
the rings; only then is it started again. So nobody can still write under the old generation. During
the very first start a stage that ends is not tried again: a missing module does not appear by
waiting, and the person at the terminal wants to read why.
"""

import asyncio
import signal
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from gpu_stages.child import StageChild
from gpu_stages.control import (
    ControlMessage,
    Dump,
    Dumped,
    LoadFailed,
    Ping,
    Plan,
    Pong,
    Ready,
    SegmentNotMade,
    Stop,
)


class StageState(StrEnum):
    """Where a stage process is in its life."""

    STARTING = "starting"
    READY = "ready"
    LOST = "lost"
    GAVE_UP = "gave_up"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class SupervisorLimits:
    """Every time and count of the supervisor."""

    ping_s: float = 1.0
    hung_s: float = 20.0
    abort_s: float = 1.0
    restarts_max: int = 5
    window_s: float = 60.0
    backoff_s_min: float = 0.1
    backoff_s_max: float = 5.0
    stop_s: float = 3.0
    terminate_s: float = 1.0


@dataclass(frozen=True, slots=True)
class StageProcess:
    """What to start: the plan, the descriptors that go with it, and how long loading may take."""

    plan: Plan
    pass_fds: tuple[int, ...]
    ready_s_max: float


class StageFailedToStart(Exception):
    """A stage did not become ready at the first start; the reason holds its last lines."""

    def __init__(self, stage: str, reason: str) -> None:
        super().__init__(f"stage {stage} did not start: {reason}")
        self.stage = stage
        self.reason = reason


class SupervisorEvents(Protocol):
    """What the supervisor tells; called on the event loop, must not block or raise."""

    def on_lost(self, stage: str, reason: str) -> None:
        """The process was reaped and will be started again after this returns."""
        ...

    def on_gave_up(self, stage: str, reason: str) -> None:
        """It will not be started again; the reason holds its last lines of output."""
        ...

    def on_segment_not_made(self, failed: SegmentNotMade) -> None:
        """A stage could not make a segment."""
        ...


Progress = Callable[[str, StageState, float], None]
"""Told of (stage, state, seconds since its start) at each change, and each second while loading."""


@dataclass(slots=True)
class _Kept:
    """One stage and what is known of its present process (None: between two of them)."""

    process: StageProcess
    state: StageState = StageState.STARTING
    child: StageChild | None = None
    started_s: float = 0.0
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    wants_ticks: bool = True
    load_failed: str = ""
    heard: bool = True
    pings: int = 0
    losses: deque[float] = field(default_factory=deque[float])
    restarts: int = 0
    stats: Mapping[str, float] = field(default_factory=dict[str, float])
    dumps: list[asyncio.Future[Mapping[str, object]]] = field(
        default_factory=list[asyncio.Future[Mapping[str, object]]]
    )


class Supervisor:
    """Owns the processes, not the memory between them."""

    def __init__(
        self,
        processes: Sequence[StageProcess],
        events: SupervisorEvents,
        limits: SupervisorLimits | None = None,
        progress: Progress | None = None,
    ) -> None:
        self._events = events
        self._limits = limits or SupervisorLimits()
        self._progress = progress
        self._kept = {process.plan.stage: _Kept(process) for process in processes}
        self._tasks: list[asyncio.Task[None]] = []
        self._closing = False

    async def start(self) -> None:
        """Start all at once and wait until each is ready. Raises `StageFailedToStart`."""
        for kept in self._kept.values():
            self._spawn(kept)
        try:
            waits = [self._first_ready(kept) for kept in self._kept.values()]
            async with asyncio.TaskGroup() as group:
                for wait in waits:
                    group.create_task(wait)
        except BaseExceptionGroup as errors:
            await self.close()
            raise errors.exceptions[0] from None
        except BaseException:
            await self.close()
            raise
        self._tasks = [asyncio.create_task(self._keep(kept)) for kept in self._kept.values()]

    async def close(self) -> None:
        """Stop, then terminate, then kill; returns when every process is reaped. Never raises."""
        self._closing = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
        await asyncio.gather(*(self._end(kept) for kept in self._kept.values()))

    def pids(self) -> dict[str, int]:
        """The running process of each stage."""
        return {name: kept.child.pid for name, kept in self._kept.items() if kept.child}

    def state(self, stage: str) -> StageState:
        """Where this stage is."""
        return self._kept[stage].state

    def wants_ticks(self, stage: str) -> bool:
        """Whether this stage acts on row changes; True until it has said so."""
        return self._kept[stage].wants_ticks

    def stats(self) -> dict[str, dict[str, float]]:
        """The figures of each stage's last pong, with the restarts so far."""
        return {
            name: {**kept.stats, "restarts": kept.restarts} for name, kept in self._kept.items()
        }

    async def dump(self, stage: str) -> Mapping[str, object]:
        """The stage's whole state, for people; empty when it does not run."""
        kept = self._kept[stage]
        answer: asyncio.Future[Mapping[str, object]] = asyncio.get_running_loop().create_future()
        if kept.child is None or not kept.child.send(Dump()):
            return {}
        kept.dumps.append(answer)
        return await asyncio.wait_for(answer, self._limits.hung_s)

    # -- one process -----------------------------------------------------------------------------

    def _spawn(self, kept: _Kept) -> None:
        kept.ready = asyncio.Event()
        kept.load_failed = ""
        kept.started_s = time.monotonic()

        def on_message(message: ControlMessage) -> None:
            self._heard(kept, message)

        kept.child = StageChild(kept.process.plan, kept.process.pass_fds, on_message)
        self._set_state(kept, StageState.STARTING)

    def _set_state(self, kept: _Kept, state: StageState) -> None:
        kept.state = state
        if self._progress is not None:
            self._progress(kept.process.plan.stage, state, time.monotonic() - kept.started_s)

    def _heard(self, kept: _Kept, message: ControlMessage) -> None:
        kept.heard = True
        match message:
            case Ready(_, wants_ticks):
                kept.wants_ticks = wants_ticks
                self._set_state(kept, StageState.READY)
                kept.ready.set()
            case LoadFailed(reason):
                kept.load_failed = reason
            case Pong(_, stats):
                kept.stats = stats
            case Dumped(state):
                for answer in kept.dumps:
                    if not answer.done():
                        answer.set_result(state)
                kept.dumps.clear()
            case SegmentNotMade():
                self._events.on_segment_not_made(message)
            case _:
                if kept.child is not None:
                    kept.child.kill(f"it said {message}")

    async def _wait_ready(self, kept: _Kept) -> str | None:
        """None when it became ready, else why it did not (and then it is reaped)."""
        child = kept.child
        assert child is not None
        deadline_s = kept.started_s + kept.process.ready_s_max
        ready = asyncio.create_task(kept.ready.wait())
        try:
            while time.monotonic() < deadline_s:
                await asyncio.wait({ready, child.ended}, timeout=1, return_when="FIRST_COMPLETED")
                if child.ended.done():
                    return self._why(kept, child)
                if kept.ready.is_set():
                    return None
                self._set_state(kept, StageState.STARTING)
        finally:
            ready.cancel()
        child.kill(f"not ready within {kept.process.ready_s_max:g} s")
        await child.ended
        return self._why(kept, child)

    def _why(self, kept: _Kept, child: StageChild) -> str:
        reason = kept.load_failed or child.ended.result()
        tail = "\n  ".join(child.tail)
        return f"{reason}; its last output:\n  {tail}" if tail else reason

    async def _first_ready(self, kept: _Kept) -> None:
        failed = await self._wait_ready(kept)
        if failed is not None:
            kept.child = None
            raise StageFailedToStart(kept.process.plan.stage, failed)

    async def _keep(self, kept: _Kept) -> None:
        """Watch a ready stage for ever: reap, tell, back off, start again."""
        while True:
            reason = await self._until_lost(kept)
            while reason is not None:
                kept.child = None
                self._set_state(kept, StageState.LOST)
                self._events.on_lost(kept.process.plan.stage, reason)
                pause_s = self._next_pause_s(kept)
                if pause_s is None:
                    self._set_state(kept, StageState.GAVE_UP)
                    self._events.on_gave_up(kept.process.plan.stage, reason)
                    return
                await asyncio.sleep(pause_s)
                kept.restarts += 1
                reason = await self._start_again(kept)

    async def _start_again(self, kept: _Kept) -> str | None:
        """None when it runs again, else why it does not."""
        try:
            self._spawn(kept)
        except OSError as error:
            return f"the process could not be started: {error}"
        return await self._wait_ready(kept)

    def _next_pause_s(self, kept: _Kept) -> float | None:
        """How long to wait before the next start; None when there were too many."""
        limits = self._limits
        now_s = time.monotonic()
        while kept.losses and kept.losses[0] < now_s - limits.window_s:
            kept.losses.popleft()
        kept.losses.append(now_s)
        if len(kept.losses) > limits.restarts_max:
            return None
        return min(limits.backoff_s_max, limits.backoff_s_min * 2 ** (len(kept.losses) - 1))

    async def _until_lost(self, kept: _Kept) -> str:
        """Ping until the process is over; one that does not answer is made to be.

        Silence is counted in pings and not in seconds: when this process itself was paused or its
        loop was busy, the answers are there and only nobody has read them yet.
        """
        child = kept.child
        assert child is not None
        limits = self._limits
        silent = 0
        while not child.ended.done():
            kept.pings += 1
            kept.heard = False
            child.send(Ping(kept.pings))
            await asyncio.wait({child.ended}, timeout=limits.ping_s)
            silent = 0 if kept.heard else silent + 1
            if not child.ended.done() and silent * limits.ping_s > limits.hung_s:
                # SIGABRT first: faulthandler then writes where it hangs.
                child.kill(f"no answer for {limits.hung_s:g} s", signal.SIGABRT)
                await asyncio.wait({child.ended}, timeout=limits.abort_s)
                child.kill("")
                await child.ended
        return self._why(kept, child)

    async def _end(self, kept: _Kept) -> None:
        child = kept.child
        if child is not None:
            steps = ((Stop(), self._limits.stop_s), (signal.SIGTERM, self._limits.terminate_s))
            for step, wait_s in steps:
                if isinstance(step, Stop):
                    child.send(step)
                else:
                    child.kill("closed", step)
                await asyncio.wait({child.ended}, timeout=wait_s)
                if child.ended.done():
                    break
            else:
                child.kill("closed")
                await child.ended
        kept.child = None
        for answer in kept.dumps:
            answer.cancel()
        kept.dumps.clear()
        self._set_state(kept, StageState.CLOSED)
