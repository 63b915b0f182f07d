"""Time as an argument of the shell: the system's clocks here, virtual ones in the simulator."""

import time
from typing import Protocol


class Clock(Protocol):
    """Durations are measured with the monotonic clocks only; `wall_ms` dates what is stored."""

    def now_ms(self) -> int:
        """Milliseconds of a clock that never goes back; comparable within one process only."""
        ...

    def now_us(self) -> int:
        """The same clock in microseconds: CLOCK_MONOTONIC, as the stages stamp it."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since the epoch; may jump, and differs between machines."""
        ...


class SystemClock:
    """The clocks of this machine."""

    def now_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def now_us(self) -> int:
        return time.monotonic_ns() // 1_000

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000
