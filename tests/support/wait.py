"""Waiting for a condition with a deadline."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


async def until(
    condition: Callable[[], T | bool | None] | Callable[[], Awaitable[T | bool | None]],
    *,
    timeout_s: float = 20,
    what: str = "the condition",
) -> T | bool:
    """Poll until the condition is true and return what it gave; AssertionError at the deadline."""
    deadline_s = time.monotonic() + timeout_s
    while True:
        value = condition()
        if inspect.isawaitable(value):
            value = await value
        if value:
            return value  # type: ignore[return-value]
        if time.monotonic() > deadline_s:
            raise AssertionError(f"{what} did not come true within {timeout_s} s")
        await asyncio.sleep(0.02)
