"""The release: one commit that revalidates generations and moves cursors, for many lives."""

from collections.abc import Sequence

from ownership.kv import Database
from ownership.model import CursorMoved, Released, ReleaseItem, Stale


async def release(
    db: Database, items: Sequence[ReleaseItem]
) -> list[Released | Stale | CursorMoved]:
    """Release what is rightful of a batch, in one transaction; one result per item, in order.

    At most one item per live (ValueError). A refused item never hinders the others.
    """
    raise NotImplementedError
