"""How `Database.run` repeats attempts; the same for every backend."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from ownership.kv import (
    Committed,
    CommitUnknown,
    Conflict,
    Reads,
    StoreAway,
    Transaction,
    Unknown,
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Retry:
    """Bounds of `run`: tries, time over all of them, and the pause, which doubles with each."""

    attempts_max: int = 100
    total_s_max: float = 10.0
    pause_s: float = 0.001
    pause_s_max: float = 0.25


class Attempts(Protocol):
    """The part of a database that `run_attempts` needs."""

    async def attempt(
        self, body: Callable[[Transaction], T]
    ) -> Committed[T] | Conflict | Unknown: ...

    async def read(self, body: Callable[[Reads], T]) -> T: ...


async def run_attempts(
    db: Attempts,
    body: Callable[[Transaction], T],
    probe: Callable[[Reads], T | None] | None,
    retry: Retry,
    rng: random.Random,
) -> T:
    """`Database.run` in terms of `attempt`. See the contract in `ownership.kv`."""
    outcome = await db.attempt(body)
    if isinstance(outcome, Committed):
        return outcome.value
    clock = asyncio.get_running_loop().time
    deadline_s = clock() + retry.total_s_max
    unknown: Unknown | None = None
    pause_s = retry.pause_s
    for _ in range(retry.attempts_max - 1):
        if isinstance(outcome, Unknown):
            unknown = outcome
        if clock() > deadline_s:
            break
        # Half of the pause at least, so that two that met do not meet again in step.
        await asyncio.sleep(pause_s * (0.5 + rng.random() / 2))
        pause_s = min(2 * pause_s, retry.pause_s_max)
        try:
            if unknown is not None and probe is not None:
                known = await db.read(probe)
                if known is not None:
                    return known
            outcome = await db.attempt(body)
        except StoreAway as error:
            if unknown is None:
                raise
            raise CommitUnknown(f"{unknown.detail}; then {error}") from error
        if isinstance(outcome, Committed):
            return outcome.value
    if unknown is not None or isinstance(outcome, Unknown):
        raise CommitUnknown("the retries ended before the outcome was known")
    raise StoreAway("the retries ended in conflicts only")
