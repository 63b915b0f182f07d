"""Open a store by its URL."""

import random

from ownership.kv import Database


async def open_database(url: str, rng: random.Random | None = None) -> Database:
    """`lmdb:///path`, `memory:` or `fdb:///path/to/fdb.cluster?prefix=...`.

    `rng` (back-off, and the faults of `memory:`) may be given for determinism.
    Raises StoreMisconfigured with what to change.
    """
    raise NotImplementedError
