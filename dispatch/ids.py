"""Ids that this replica mints: from an injected clock and injected randomness."""

import random

from dispatch.clock import Clock
from schemas.ids import ulid

ENTROPY_BYTES = 10


class IdMint:
    """Makes ids that sort by time. Each id names one intent and is minted once for it."""

    def __init__(self, clock: Clock, rng: random.Random) -> None:
        self._clock = clock
        self._rng = rng

    def new(self) -> str:
        """A fresh ULID."""
        return ulid(self._clock.wall_ms(), self.entropy(ENTROPY_BYTES))

    def entropy(self, count: int) -> bytes:
        """`count` random bytes."""
        return self._rng.randbytes(count)

    def draw(self, count: int) -> int:
        """A number from 0 to `count` - 1."""
        # A ranking draws many times: `randrange` takes six times as long to be exact in 2**53.
        return int(self._rng.random() * count)

    def slot_draw(self) -> int:
        """Where a transaction's search for a free slot begins."""
        return self._rng.getrandbits(31)
