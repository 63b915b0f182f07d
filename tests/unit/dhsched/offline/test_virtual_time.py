"""The loop whose time stands still while anything is left to do."""

import asyncio
import time

import pytest

from dhsched.offline.virtual_time import (
    ReplayStuck,
    VirtualClock,
    VirtualTimeLoop,
    run_virtual,
)


def test_an_hour_takes_no_time_and_is_exact() -> None:
    async def main(loop: VirtualTimeLoop) -> float:
        for _ in range(100):
            await asyncio.sleep(36)
        return loop.time()

    began = time.monotonic()
    assert run_virtual(main) == pytest.approx(3_600, abs=1e-6)
    assert time.monotonic() - began < 60


def test_timers_come_in_their_order() -> None:
    async def main(loop: VirtualTimeLoop) -> list[int]:
        seen: list[int] = []
        for ms in (30, 10, 20):
            loop.call_later(ms / 1000, seen.append, ms)
        await asyncio.sleep(1)
        return seen

    assert run_virtual(main) == [10, 20, 30]


def test_what_is_quiet_is_worked_on_before_time_goes_on() -> None:
    async def main(loop: VirtualTimeLoop) -> list[tuple[float, str]]:
        seen: list[tuple[float, str]] = []
        left = [2]

        def on_quiet() -> bool:
            seen.append((round(loop.time(), 3), "quiet"))
            left[0] -= 1
            if left[0] >= 0:
                loop.call_soon(lambda: seen.append((round(loop.time(), 3), "made")))
            return left[0] >= 0

        loop.set_on_quiet(on_quiet)
        await asyncio.sleep(0.5)
        loop.set_on_quiet(None)
        return seen

    assert run_virtual(main) == [
        (0.0, "quiet"),
        (0.0, "made"),
        (0.0, "quiet"),
        (0.0, "made"),
        (0.0, "quiet"),
    ]


def test_nothing_that_could_ever_happen_is_an_error() -> None:
    async def main(loop: VirtualTimeLoop) -> None:
        await loop.create_future()

    with pytest.raises(ReplayStuck):
        run_virtual(main)


def test_the_clock_shows_the_recordings_time_of_day() -> None:
    async def main(loop: VirtualTimeLoop) -> tuple[int, int]:
        clock = VirtualClock(loop, 1_800_000_000_000)
        await asyncio.sleep(1.5)
        return clock.wall_ms(), clock.now_us()

    assert run_virtual(main) == (1_800_000_001_500, 1_500_000)
