"""An event loop with virtual time, simulated processes, and pauses at any await.

It runs ordinary asyncio code. Time jumps to the next timer when nothing is ready, so a run costs
only what its callbacks cost. Every task belongs to a `SimProcess` (by a context variable that its
children inherit); a paused process runs nothing, its callbacks and timers wait; a crashed one never
runs again and nothing of it is cleaned up, as after a power cut. Everything is deterministic: ready
callbacks run in the order in which they became ready, and every choice comes from one seeded
generator.
"""

import asyncio
import contextvars
import heapq
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from functools import partial
from random import Random
from typing import Any, TypeVar

T = TypeVar("T")

_finish = asyncio.futures._set_result_unless_cancelled  # type: ignore[attr-defined]
"""What the timer of `asyncio.sleep` calls."""
WAKERS: set[Callable[..., object]] = {_finish}
"""Callbacks of timers that only wake a task up: that is a step of the task, and they are none."""

PROCESS: contextvars.ContextVar["SimProcess | None"] = contextvars.ContextVar(
    "simulated_process", default=None
)


_NOBODYS = contextvars.Context()
_FINALLIES_MAX = 100


class SimulationStuck(Exception):
    """The world went quiet, or ran too long, before what was waited for came true."""


class Handle:
    """A callback that waits for its turn; what asyncio's own handle is, without its debugging."""

    __slots__ = ("args", "callback", "cancelled_", "context", "when_s")

    def __init__(
        self, callback: Callable[..., object], args: tuple[Any, ...], context: contextvars.Context
    ) -> None:
        self.callback: Callable[..., object] | None = callback
        self.args = args
        self.context = context
        self.cancelled_ = False
        self.when_s = 0.0

    def cancel(self) -> None:
        """Never run."""
        self.cancelled_ = True
        self.callback = None
        self.args = ()

    def cancelled(self) -> bool:
        """Whether it was cancelled."""
        return self.cancelled_

    def when(self) -> float:
        """The virtual time of a timer."""
        return self.when_s


class SimProcess:
    """One simulated operating-system process."""

    __slots__ = ("crashed", "held", "loop", "name", "on_pause", "paused", "steps_to_pause")

    def __init__(self, loop: "VirtualLoop", name: str) -> None:
        self.loop = loop
        self.name = name
        self.paused = False
        self.crashed = False
        self.held: deque[Handle] = deque()
        self.steps_to_pause = -1
        """Callbacks until `on_pause` is called; negative means never."""
        self.on_pause: Callable[[SimProcess], None] | None = None

    def spawn(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Run `work` as a task of this process."""
        context = contextvars.copy_context()
        context.run(PROCESS.set, self)
        task = asyncio.Task(work, loop=self.loop, context=context)
        self.loop.tasks.append(task)
        return task

    def call_soon(self, callback: Callable[..., object], *args: Any) -> None:
        """Run a callback as this process."""
        context = contextvars.copy_context()
        context.run(PROCESS.set, self)
        self.loop.call_soon(callback, *args, context=context)

    def pause(self) -> None:
        """Run nothing of it from now on, as after SIGSTOP."""
        self.paused = True

    def resume(self) -> None:
        """Run what waited, in order, as after SIGCONT."""
        self.paused = False
        if not self.crashed:
            self.loop.ready.extend(self.held)
        self.held.clear()

    def crash(self) -> None:
        """Never run anything of it again."""
        self.crashed = True
        self.held.clear()


class VirtualLoop(asyncio.AbstractEventLoop):
    """What asyncio's tasks, futures, locks, queues and timeouts need of a loop, in virtual time."""

    def __init__(self, rng: Random, *, steps_max: int = 2_000_000) -> None:
        self.rng = rng
        self.now_s = 0.0
        self.ready: deque[Handle] = deque()
        self.errors: list[dict[str, Any]] = []
        self.create_future = partial(asyncio.Future, loop=self)  # type: ignore[method-assign]
        self.tasks: list[asyncio.Task[Any]] = []
        """Every task that was ever made here, so that the world can end those that still wait."""
        self.steps = 0
        self._steps_max = steps_max
        self._timers: list[tuple[float, int, Handle]] = []
        self._timer_number = 0
        self._running = False
        self._stopping = False
        self._closed = False

    # -- what asyncio calls ---------------------------------------------------------------

    def time(self) -> float:
        return self.now_s

    def call_soon(  # type: ignore[override]
        self,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> Handle:
        if context is None:  # An empty one is one, too: the store's and the network's.
            context = contextvars.copy_context()
        handle = Handle(callback, args, context)
        self.ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> Handle:
        if context is None:
            context = _NOBODYS if callback in WAKERS else contextvars.copy_context()
        handle = Handle(callback, args, context)
        handle.when_s = when
        self._timer_number = number = self._timer_number + 1
        heapq.heappush(self._timers, (when, number, handle))
        return handle

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> Handle:
        return self.call_at(self.now_s + delay, callback, *args, context=context)

    def create_task(  # type: ignore[override]
        self,
        coro: Coroutine[Any, Any, T],
        *,
        name: object = None,
        context: contextvars.Context | None = None,
    ) -> "asyncio.Task[T]":
        task = asyncio.Task(coro, loop=self, name=name, context=context)  # type: ignore[arg-type]
        self.tasks.append(task)
        return task

    def sleep(self, delay_s: float) -> "asyncio.Future[None]":
        """What `asyncio.sleep` waits for, without its coroutine."""
        future = self.create_future()
        self.call_at(self.now_s + delay_s, _finish, future, None)
        return future

    # Asked for every future; a builtin answers False without a frame of its own.
    get_debug = staticmethod(bool)  # type: ignore[assignment]

    def is_running(self) -> bool:
        return self._running

    def is_closed(self) -> bool:
        return self._closed

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.errors.append(context)

    def _timer_handle_cancelled(self, handle: Handle) -> None:
        """Cancelled timers leave the heap when their time comes."""

    # -- running --------------------------------------------------------------------------

    @contextmanager
    def current(self) -> Generator[None]:
        """Make this the running loop of the thread."""
        asyncio.events._set_running_loop(self)
        self._running = True
        # Tasks are in `tasks`; that asyncio knows them, too, would cost two calls for each.
        known: Any = asyncio.tasks._all_tasks  # type: ignore[attr-defined]
        known.add = bool
        try:
            yield
        finally:
            del known.add
            self._running = False
            asyncio.events._set_running_loop(None)

    def stop(self) -> None:
        """Leave `run` after the callback that runs now."""
        self._stopping = True

    def run(self, until_s: float) -> None:
        """Run until virtual time `until_s`, until `stop`, or until nothing is left to do."""
        self._stopping = False
        ready, timers, pop, process_of = self.ready, self._timers, heapq.heappop, PROCESS
        wakers = WAKERS
        while not self._stopping:
            while ready and not self._stopping:
                handle = ready.popleft()
                callback = handle.callback
                if callback is None:
                    continue
                context = handle.context
                process = context.get(process_of)
                if process is not None:
                    if process.crashed:
                        continue
                    if process.paused:
                        process.held.append(handle)
                        continue
                    if process.steps_to_pause >= 0 and self._pauses(process):
                        process.held.append(handle)
                        continue
                self.steps += 1
                context.run(callback, *handle.args)
            if self.steps > self._steps_max:
                raise SimulationStuck(f"{self.steps} steps and no end at {self.now_s:.3f} s")
            if self._stopping or not timers or timers[0][0] > until_s:
                break
            if timers[0][0] > self.now_s:
                self.now_s = timers[0][0]
            while timers and timers[0][0] <= self.now_s:
                handle = pop(timers)[2]
                callback = handle.callback
                if callback in wakers:
                    callback(*handle.args)
                elif callback is not None:
                    ready.append(handle)
        if not self._stopping:
            self.now_s = max(self.now_s, until_s)

    def _pauses(self, process: SimProcess) -> bool:
        """One callback nearer to the pause that was asked for; whether it stands still now."""
        process.steps_to_pause -= 1
        if process.steps_to_pause < 0 and process.on_pause is not None:
            process.on_pause(process)
        return process.paused

    def end_tasks(self) -> None:
        """End every coroutine that still waits, those of crashed processes too, so that nothing is
        left to the collector. To be called while this is the running loop."""
        for task in self.tasks:
            if not task.done():
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                _end(task.get_coro())

    def close(self) -> None:
        """Forget everything that waits."""
        self._closed = True
        self.ready.clear()
        self._timers.clear()
        self.tasks.clear()

    async def shutdown_asyncgens(self) -> None:
        """Nothing to do: the world ends all at once."""

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """There is no executor: production code that wants a thread is not pure enough."""


def _end(work: Any) -> None:
    """Close a coroutine whose process never runs again, through every `finally` that waits."""
    for _ in range(_FINALLIES_MAX):
        try:
            work.close()
        except RuntimeError:
            continue
        return
