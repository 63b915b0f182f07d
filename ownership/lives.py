"""Lives: open, close, look."""

from ownership.kv import Database
from ownership.model import (
    AlreadyClosed,
    Closed,
    Created,
    CreateLive,
    Existing,
    Generation,
    IdempotencyMismatch,
    LiveExists,
    LiveView,
    NoFreeSlot,
    StaleGeneration,
    UnknownLive,
    WorkerNotReady,
)


async def create_live(
    db: Database, request: CreateLive
) -> Created | Existing | LiveExists | NoFreeSlot | WorkerNotReady | IdempotencyMismatch:
    """Open a live and commit its first generation, in one transaction.

    The cursor starts at the larger of what an earlier live of this id left and the partition's
    watermark; the epoch goes on from the last one of this id.
    """
    raise NotImplementedError


async def close_live(
    db: Database, live_id: str, generation: Generation | None, reason: str, now_ms: int
) -> Closed | AlreadyClosed | UnknownLive | StaleGeneration:
    """Close a live: as its owner (`generation`), or from outside (None: whoever owns it)."""
    raise NotImplementedError


async def get_live(db: Database, live_id: str) -> LiveView | None:
    """Everything the store knows of a live; None when it was never created."""
    raise NotImplementedError


async def list_lives(db: Database, after: str | None, limit: int) -> list[LiveView]:
    """Up to `limit` lives in order of their ids, beginning after `after`."""
    raise NotImplementedError
