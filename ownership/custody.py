"""Records of lives that nobody owns, and the mark below which a partition is finished.

Order of a disposal: `dispose_unowned`, on `Disposed` the dead letter and its acknowledgement, then
`raise_watermark`, then the group's offset. In this order a record is never both released and
dead-lettered: the transaction either finds the live open, or moves the floor that every later live
of that id begins at. And a record whose custodian dies before its dead letter is in the log is
found again: it is read again from the group's offset, and `pending_disposals` names it.

A zombie custodian does no harm. It may only repeat what is true for ever: a record that was
disposed of stays so, and everything below a watermark stays finished. A disposal that one custodian
began is no reason for another one to take its record for finished: the watermark stops there until
somebody says that the dead letter is in the log.
"""

from collections.abc import Collection

from ownership import keys
from ownership.kv import Database, Reads, Transaction, int64
from ownership.model import AlreadyDisposed, BelongsToOpenLive, Disposed
from ownership.rules import dispose_refusal, disposed_cursor
from ownership.tuple_layer import prefix_range
from ownership.values import read_cursor, read_generation, read_live

# How many disposals one transaction finishes.
FINISHED_AT_ONCE = 500


async def dispose_unowned(
    db: Database, live_id: str, partition: int, offset: int
) -> Disposed | BelongsToOpenLive | AlreadyDisposed:
    """Take a record from every later live of this id, in the transaction that looks at the live.

    Repeated for the same record it answers Disposed again until `raise_watermark` passes it.
    """

    def body(tr: Transaction) -> Disposed | BelongsToOpenLive | AlreadyDisposed:
        begun = keys.disposing(partition, offset)
        raw_begun, raw_live, raw_gen, raw_cursor, raw_mark = tr.get_many(
            [
                begun,
                keys.live(live_id),
                keys.gen(live_id),
                keys.cursor(live_id),
                keys.watermark(partition),
            ]
        )
        if raw_begun is not None:
            return Disposed()
        cursor = read_cursor(raw_cursor)
        refusal = dispose_refusal(
            read_live(raw_live), read_generation(raw_gen), cursor, int64(raw_mark), offset
        )
        if refusal is not None:
            return refusal
        tr.set(begun, live_id.encode())
        tr.set(keys.cursor(live_id), disposed_cursor(cursor, offset).encode())
        return Disposed()

    return await db.run(body)


async def pending_disposals(db: Database, partition: int) -> list[tuple[int, str]]:
    """(offset, live_id) of records whose dead letters are not known to be in the log yet."""
    begin, end = prefix_range(keys.disposing_of(partition))
    pairs = await db.read(lambda tr: tr.get_range(begin, end))
    return [(keys.last_int(key), raw.decode()) for key, raw in pairs]


async def raise_watermark(
    db: Database, partition: int, offset: int, lettered: Collection[int]
) -> int:
    """Say that every record below `offset` was released, skipped or dead-lettered.

    Only grows; returns where it stands. It stops at the first disposal that was begun and is not
    among `lettered`, the offsets whose dead letters the caller knows to be in the log.
    """
    while True:
        at, finished = await db.run(lambda tr: _raise(tr, partition, offset, lettered))
        if finished:
            return at


async def raise_past_deleted(
    db: Database,
    partition: int,
    offset: int,
    lettered: Collection[int],
    deleted_below: int,
    told: Collection[str],
) -> int | list[str]:
    """`raise_watermark`, over a part of the log that retention deleted before its custodian saw it.

    Records of any live may have been there. Open lives whose cursor lies below `deleted_below` and
    that are not among `told` keep the mark where it is, and are returned: they are told first. It
    is one transaction, so a live that is opened meanwhile is either seen here or begins behind it.
    """
    begin, end = prefix_range(keys.by_partition_of(partition))

    def body(tr: Transaction) -> tuple[int, bool] | list[str]:
        listed = [keys.last_text(key) for key, _ in tr.get_range(begin, end)]
        asked = [live_id for live_id in listed if live_id not in told]
        found = tr.get_many([keys.cursor(live_id) for live_id in asked])
        cursors = [read_cursor(raw) for raw in found]
        untold = [
            live_id
            for live_id, cursor in zip(asked, cursors, strict=True)
            if cursor is None or cursor.next_offset < deleted_below
        ]
        return untold or _raise(tr, partition, offset, lettered)

    while True:
        answer = await db.run(body)
        if isinstance(answer, list):
            return answer
        at, finished = answer
        if finished:
            return at


def _raise(
    tr: Transaction, partition: int, offset: int, lettered: Collection[int]
) -> tuple[int, bool]:
    """Where the mark stands, and whether that is as far as it goes: a transaction has a size."""
    key = keys.watermark(partition)
    now = int64(tr.get(key))
    if offset <= now:
        return now, True
    begin, _ = prefix_range(keys.disposing_of(partition))
    begun = tr.get_range(begin, keys.disposing(partition, offset), limit=FINISHED_AT_ONCE)
    at, finished = offset, True
    for done, raw in begun:
        begun_at = keys.last_int(done)
        if begun_at not in lettered:
            at = begun_at
            break
        _forget_floor(tr, raw.decode(), begun_at)
        tr.clear(done)
    else:
        if len(begun) == FINISHED_AT_ONCE:
            at, finished = keys.last_int(begun[-1][0]) + 1, False
    at = max(now, at)
    tr.set(key, at.to_bytes(8, "little"))
    return at, finished


def _forget_floor(tr: Transaction, live_id: str, offset: int) -> None:
    """A floor at or below the watermark says nothing more; ids that never lived leave no trace."""
    raw_live, raw_cursor = tr.get_many([keys.live(live_id), keys.cursor(live_id)])
    cursor = read_cursor(raw_cursor)
    if raw_live is None and cursor is not None and cursor.next_offset <= offset + 1:
        tr.clear(keys.cursor(live_id))


def _watermark(tr: Reads, partition: int) -> int:
    return int64(tr.get(keys.watermark(partition)))


async def watermark(db: Database, partition: int) -> int:
    """Every record below it was released, skipped or dead-lettered; 0 at first."""
    return await db.read(lambda tr: _watermark(tr, partition))
