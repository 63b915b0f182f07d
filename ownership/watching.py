"""The waiting side of a watch; what fires it differs by backend."""

import asyncio
from collections.abc import Callable


class HintWatch:
    """A `Watch` that its backend fires, on the event loop it was made in."""

    __slots__ = ("_closed", "_fired", "_on_close", "_waiter", "key", "loop")

    def __init__(self, key: bytes, on_close: "Callable[[HintWatch], None]") -> None:
        self.key = key
        self.loop = asyncio.get_running_loop()
        self._fired = False
        self._closed = False
        self._waiter: asyncio.Future[None] | None = None
        self._on_close = on_close

    def fire(self) -> None:
        """The value has (perhaps) changed. On the loop only."""
        self._fired = True
        self._wake()

    def fire_from_thread(self) -> None:
        """The same from any thread. A loop that was closed meanwhile has nobody waiting."""
        if self.loop.is_closed():
            return
        try:
            self.loop.call_soon_threadsafe(self.fire)
        except RuntimeError:
            # It was closed between the look and the call.
            return

    async def changed(self, timeout_s: float) -> bool:
        """See `ownership.kv.Watch`."""
        if not self._fired and not self._closed:
            self._waiter = self.loop.create_future()
            timer = self.loop.call_later(timeout_s, self._wake)
            try:
                await self._waiter
            finally:
                timer.cancel()
                self._waiter = None
        fired, self._fired = self._fired and not self._closed, False
        return fired

    def close(self) -> None:
        """See `ownership.kv.Watch`."""
        if not self._closed:
            self._closed = True
            self._on_close(self)
            self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
