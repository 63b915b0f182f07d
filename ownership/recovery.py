"""Lives of dead workers: find them, and keep them as orphans until there is capacity.

The recovery itself is `generations.commit_generation` with the dead generation as its guard: any
number of dispatchers may try, and one of them advances the live.
"""

from ownership import keys
from ownership.generations import owned
from ownership.kv import Database, Reads, Transaction
from ownership.model import Generation, Orphan, OrphanMarked, OwnerAlive, SourceMoved
from ownership.rules import alive, stale
from ownership.tuple_layer import prefix_range
from ownership.values import read_generation, read_orphan, read_worker
from schemas.store_values import OrphanValue


async def dead_workers_lives(db: Database, worker_id: str) -> list[tuple[str, Generation]]:
    """Lives still guarded by a dead worker's generations; empty while it is not marked dead."""

    def body(tr: Reads) -> list[tuple[str, Generation]]:
        if alive(read_worker(tr.get(keys.worker(worker_id)))):
            return []
        return owned(tr, worker_id)

    return await db.read(body)


async def mark_orphan(
    db: Database, live_id: str, dead: Generation, now_ms: int
) -> OrphanMarked | SourceMoved | OwnerAlive:
    """List a live as waiting for capacity. The next committed generation, or its end, clears it."""
    value = OrphanValue(dead.worker_id, dead.epoch, now_ms)

    def body(tr: Transaction) -> OrphanMarked | SourceMoved | OwnerAlive:
        raw_gen, raw_worker, raw = tr.get_many(
            [keys.gen(live_id), keys.worker(dead.worker_id), keys.orphan(live_id)]
        )
        moved = stale(read_generation(raw_gen), dead)
        if moved is not None:
            return SourceMoved(moved.actual)
        if alive(read_worker(raw_worker)):
            return OwnerAlive(dead)
        known = read_orphan(raw)
        if known is None or (known.worker_id, known.epoch) != (dead.worker_id, dead.epoch):
            tr.set(keys.orphan(live_id), value.encode())
        return OrphanMarked(live_id)

    return await db.run(body)


async def list_orphans(db: Database, after: str | None, limit: int) -> list[Orphan]:
    """Up to `limit` waiting lives in order of their ids, beginning after `after`."""
    begin, end = prefix_range(keys.ORPHAN)
    if after is not None:
        begin = keys.orphan(after) + b"\x00"

    def body(tr: Reads) -> list[Orphan]:
        found: list[Orphan] = []
        for key, raw in tr.get_range(begin, end, limit=limit):
            value = read_orphan(raw)
            if value is not None:
                found.append(Orphan(keys.last_text(key), value))
        return found

    return await db.read(body)


async def clear_orphan(db: Database, live_id: str) -> bool:
    """Take a live off the list; False when it was not on it."""

    def body(tr: Transaction) -> bool:
        known = tr.get(keys.orphan(live_id)) is not None
        if known:
            tr.clear(keys.orphan(live_id))
        return known

    return await db.run(body)
