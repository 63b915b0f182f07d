"""The tasks of a worker: every one is watched, and what one of them raises stops the worker."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import structlog

_log = structlog.get_logger(__name__)

CANCEL_AGAIN_S = 1.0


class Tasks:
    """Tasks under one roof. `failure` gives the first exception that any of them raised.

    `expected` are exceptions that end them all without anything having gone wrong: not logged.
    """

    def __init__(self, expected: tuple[type[Exception], ...] = ()) -> None:
        self._expected = expected
        self._running: set[asyncio.Task[None]] = set()
        self._failed: asyncio.Future[BaseException] | None = None
        self._error: BaseException | None = None
        self._closed = False

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Run `work`. Nothing is begun any more after `close`."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        if self._closed:
            task.cancel()
        self._running.add(task)
        task.add_done_callback(self._done)
        return task

    def __len__(self) -> int:
        return len(self._running)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(error, task.get_name())

    def fail(self, error: BaseException, where: str) -> None:
        """Something broke: logged here, raised by `failure`."""
        if self._error is not None:
            return
        self._error = error
        if not isinstance(error, self._expected):
            _log.error("task_failed", task=where, error=str(error), exc_info=error)
        if self._failed is not None and not self._failed.done():
            self._failed.set_result(error)

    async def failure(self) -> BaseException:
        """Waits until something broke, and says what."""
        if self._error is not None:
            return self._error
        if self._failed is None:
            self._failed = asyncio.get_running_loop().create_future()
        return await asyncio.shield(self._failed)

    async def close(self) -> None:
        """Cancel everything and wait for its end; again for what did not hear it, as a library may
        take a cancellation for its own."""
        self._closed = True
        while self._running:
            for task in tuple(self._running):
                task.cancel()
            await asyncio.wait(tuple(self._running), timeout=CANCEL_AGAIN_S)
