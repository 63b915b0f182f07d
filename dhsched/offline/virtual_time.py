"""An event loop whose clock stands still while anything is left to do, then jumps to what is next.

It is asyncio's own loop over a selector that does not wait. When no callback is ready the stages
are worked on first (`on_quiet`), in the same instant; only when they have nothing either does time
go on to the next timer. So what is made costs no time of the replay, however long it really took,
and the wall clock of this machine decides nothing.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class ReplayStuck(RuntimeError):
    """Nothing is left that could ever happen, and the replay is not over: a bug."""


class _JumpingSelector(selectors.DefaultSelector):
    """Says at once what is readable; instead of waiting it lets virtual time pass."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.on_quiet: Callable[[], bool] | None = None

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select(0)
        if found or timeout == 0:
            return found
        if self.on_quiet is not None and self.on_quiet():
            return found
        if timeout is None:
            raise ReplayStuck("no timer is set and nothing is ready")
        self.now_s += timeout
        return found


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """`on_quiet` does what it can in the present instant; True when something came of it."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._jumping.now_s

    def set_on_quiet(self, on_quiet: Callable[[], bool] | None) -> None:
        """What is worked on whenever no callback is ready."""
        self._jumping.on_quiet = on_quiet


class VirtualClock:
    """A worker's clock on that loop; the wall stood at `wall_ms_at_zero` when the loop began."""

    def __init__(self, loop: asyncio.AbstractEventLoop, wall_ms_at_zero: int) -> None:
        self._loop = loop
        self._wall_ms_at_zero = wall_ms_at_zero

    def now_ms(self) -> int:
        """Milliseconds since the loop began."""
        return self.now_us() // 1000

    def now_us(self) -> int:
        """Rounded, so that a timer for a whole microsecond finds that microsecond."""
        return round(self._loop.time() * 1_000_000)

    def wall_ms(self) -> int:
        """The recording's time of day."""
        return self._wall_ms_at_zero + self.now_ms()


def run_virtual(main: Callable[[VirtualTimeLoop], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine to its end on a loop of its own."""
    made: list[VirtualTimeLoop] = []

    def factory() -> VirtualTimeLoop:
        made.append(VirtualTimeLoop())
        return made[0]

    async def begin() -> T:
        return await main(made[0])

    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(begin())
