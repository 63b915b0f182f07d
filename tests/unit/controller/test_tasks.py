"""What tasks raise is given to whoever waits, and logged unless it was to be expected."""

import asyncio

import pytest
from structlog.testing import capture_logs

import controller.tasks
from controller.tasks import Tasks


class Over(Exception):
    """Its time has come."""


async def fail(error: Exception) -> None:
    raise error


@pytest.mark.parametrize(("error", "lines"), [(Over(), 0), (RuntimeError("broken"), 1)])
async def test_what_was_expected_is_no_error_in_the_log(error: Exception, lines: int) -> None:
    tasks = Tasks(expected=(Over,))
    with capture_logs() as log:
        tasks.spawn(fail(error), "one")
        assert await tasks.failure() is error
    assert len(log) == lines
    await tasks.close()


async def test_the_first_failure_is_the_one_that_counts() -> None:
    tasks = Tasks()
    first, second = RuntimeError("first"), RuntimeError("second")
    tasks.fail(first, "one")
    tasks.fail(second, "two")
    assert await tasks.failure() is first
    waiting = asyncio.ensure_future(tasks.failure())
    assert await waiting is first


async def test_a_task_that_took_a_cancellation_for_its_own_is_cancelled_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(controller.tasks, "CANCEL_AGAIN_S", 0.05)
    heard: list[int] = []

    async def deaf_once() -> None:
        while True:
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                heard.append(1)
                if len(heard) > 1:
                    raise

    tasks = Tasks()
    tasks.spawn(deaf_once(), "deaf")
    await asyncio.sleep(0)
    async with asyncio.timeout(30):
        await tasks.close()
    assert len(heard) == 2
