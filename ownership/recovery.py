"""Lives of dead workers: find them, and keep them as orphans until there is capacity.

The recovery itself is `generations.commit_generation` with the dead generation as its guard.
"""

from ownership.kv import Database
from ownership.model import Generation, NotYours, Orphan, OrphanMarked, SourceMoved


async def dead_workers_lives(db: Database, worker_id: str) -> list[tuple[str, Generation]]:
    """Lives still guarded by a dead worker's generations; empty while it is not marked dead."""
    raise NotImplementedError


async def mark_orphan(
    db: Database, live_id: str, dead: Generation, now_ms: int
) -> OrphanMarked | SourceMoved | NotYours:
    """List a live as waiting for capacity. The next committed generation, or its end, clears it."""
    raise NotImplementedError


async def list_orphans(db: Database, after: str | None, limit: int) -> list[Orphan]:
    """Up to `limit` waiting lives in order of their ids, beginning after `after`."""
    raise NotImplementedError


async def clear_orphan(db: Database, live_id: str) -> bool:
    """Take a live off the list; False when it was not on it."""
    raise NotImplementedError
