"""Calls of the store that have to succeed: repeated while it is away, with the ids they had."""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import TypeVar

import structlog

from controller.counters import Counters
from ownership.kv import CommitUnknown, StoreAway

T = TypeVar("T")

_log = structlog.get_logger(__name__)

BACK_OFF_MS_MIN = 20
BACK_OFF_MS_MAX = 2_000


class StoreCalls:
    """Repeats a protocol transaction until its outcome is known.

    Every protocol transaction may be repeated with the same ids: it finds itself when an earlier
    attempt was applied. Other errors than an absent store are broken invariants and go on up.
    """

    def __init__(self, rng: Random, counters: Counters) -> None:
        self._rng = rng
        self._counters = counters
        self.away = False
        """The last call found no store."""

    async def insist(self, call: Callable[[], Awaitable[T]], what: str) -> T:
        """The answer of `call`, however often it takes."""
        wait_ms = BACK_OFF_MS_MIN
        while True:
            try:
                answer = await call()
            except (StoreAway, CommitUnknown) as error:
                self._counters.store_retries += 1
                self._counters.retries[what] += 1
                if not self.away:
                    _log.warning("store_away", call=what, error=str(error))
                self.away = True
            else:
                self.away = False
                return answer
            await asyncio.sleep(wait_ms * self._rng.uniform(0.5, 1.0) / 1000)
            wait_ms = min(2 * wait_ms, BACK_OFF_MS_MAX)
