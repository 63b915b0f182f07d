"""The loop with virtual time: order, pauses at any callback, crashes."""

import asyncio
from random import Random

import pytest

from tests.sim.loop import SimProcess, SimulationStuck, VirtualLoop


@pytest.fixture
def loop() -> VirtualLoop:
    return VirtualLoop(Random(1))


def run(loop: VirtualLoop, seconds: float) -> None:
    with loop.current():
        loop.run(loop.now_s + seconds)


async def ticks(seen: list[float], loop: VirtualLoop) -> None:
    while True:
        seen.append(loop.time())
        await asyncio.sleep(1.0)


def test_time_jumps_to_the_next_timer(loop: VirtualLoop) -> None:
    seen: list[float] = []
    with loop.current():
        task = SimProcess(loop, "p").spawn(ticks(seen, loop))
    run(loop, 3.5)
    assert seen == [0.0, 1.0, 2.0, 3.0]
    assert loop.time() == 3.5
    end(loop, task)


def test_a_paused_process_runs_nothing_and_goes_on_where_it_was(loop: VirtualLoop) -> None:
    seen: list[float] = []
    process = SimProcess(loop, "p")
    with loop.current():
        task = process.spawn(ticks(seen, loop))
    run(loop, 1.5)
    process.pause()
    run(loop, 5.0)
    assert seen == [0.0, 1.0]
    process.resume()
    run(loop, 0.1)
    assert seen == [0.0, 1.0, 6.5]
    end(loop, task)


def test_a_pause_can_be_set_at_any_callback(loop: VirtualLoop) -> None:
    for steps in range(4):
        seen: list[float] = []
        process = SimProcess(loop, "p")
        process.steps_to_pause = steps
        process.on_pause = SimProcess.pause
        with loop.current():
            task = process.spawn(ticks(seen, loop))
        run(loop, 10.0)
        assert process.paused
        assert len(seen) == steps, "a timer that only wakes is no step"
        end(loop, task)


def test_a_crashed_process_never_runs_again(loop: VirtualLoop) -> None:
    seen: list[float] = []
    process = SimProcess(loop, "p")
    with loop.current():
        task = process.spawn(ticks(seen, loop))
    run(loop, 0.5)
    process.crash()
    run(loop, 5.0)
    process.resume()
    run(loop, 5.0)
    assert seen == [0.0]
    end(loop, task)


def test_a_world_that_never_rests_is_stopped() -> None:
    loop = VirtualLoop(Random(1), steps_max=100)

    async def busy() -> None:
        while loop.now_s < 1_000:  # noqa: ASYNC110
            await asyncio.sleep(0.001)

    with loop.current():
        task = SimProcess(loop, "p").spawn(busy())
    with pytest.raises(SimulationStuck):
        run(loop, 100.0)
    end(loop, task)


def test_timeouts_and_cancellation_work_in_virtual_time(loop: VirtualLoop) -> None:
    told: list[str] = []

    async def waits() -> None:
        try:
            async with asyncio.timeout(2.0):
                await asyncio.sleep(60)
        except TimeoutError:
            told.append(f"timeout at {loop.time()}")

    with loop.current():
        SimProcess(loop, "p").spawn(waits())
    run(loop, 10.0)
    assert told == ["timeout at 2.0"]


def end(loop: VirtualLoop, task: "asyncio.Task[None]") -> None:
    """Leave nothing behind that the collector would complain about."""
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    task.get_coro().close()
