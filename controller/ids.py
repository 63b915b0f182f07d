"""Identifiers of this worker's intents and events."""

from random import Random

from controller.clock import Clock
from schemas.ids import ulid


class IdMint:
    """Ids that sort by time and never repeat: 80 random bits each."""

    def __init__(self, clock: Clock, rng: Random) -> None:
        self._clock = clock
        self._rng = rng

    def new(self) -> str:
        """26 characters."""
        return ulid(self._clock.wall_ms(), self._rng.randbytes(10))
