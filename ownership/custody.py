"""Records of lives that nobody owns, and the mark below which a partition is finished.

Order of a disposal: `dispose_unowned`, on `Disposed` the dead letter and its acknowledgement, then
`raise_watermark`, then the group's offset. In this order a record is never both released and
dead-lettered, and one whose custodian dies in between is found again: it is read again from the
group's offset, and `pending_disposals` names it.
"""

from ownership.kv import Database
from ownership.model import AlreadyDisposed, BelongsToOpenLive, Disposed


async def dispose_unowned(
    db: Database, live_id: str, partition: int, offset: int
) -> Disposed | BelongsToOpenLive | AlreadyDisposed:
    """Take a record from every later live of this id, in the transaction that looks at the live.

    Repeated for the same record it answers Disposed again until `raise_watermark` passes it.
    """
    raise NotImplementedError


async def pending_disposals(db: Database, partition: int) -> list[tuple[int, str]]:
    """(offset, live_id) of records disposed of whose dead letters are not known to be in the log."""
    raise NotImplementedError


async def raise_watermark(db: Database, partition: int, offset: int) -> int:
    """Say that every record below `offset` was released, skipped or dead-lettered.

    Only grows; returns where it stands.
    """
    raise NotImplementedError


async def watermark(db: Database, partition: int) -> int:
    """Every record below it was released, skipped or dead-lettered; 0 at first."""
    raise NotImplementedError
