"""What tasks raise is given to whoever waits, and logged unless it was to be expected."""

import asyncio

import pytest
from structlog.testing import capture_logs

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
