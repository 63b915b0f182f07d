"""The release: one commit that revalidates generations and moves cursors, for many lives.

There is no window between the check and the act: what is checked is read by the transaction that
writes, so at its place in the order the generation that it names is the committed one.
"""

from collections.abc import Sequence

from ownership import keys
from ownership.kv import Database, Transaction
from ownership.model import CursorMoved, Released, ReleaseItem, Stale
from ownership.rules import moved_cursor, release_refusal, released_before
from ownership.values import read_cursor, read_generation

ReleaseResult = Released | Stale | CursorMoved


async def release(db: Database, items: Sequence[ReleaseItem]) -> list[ReleaseResult]:
    """Release what is rightful of a batch, in one transaction; one result per item, in order.

    At most one item per live (ValueError). A refused item never hinders the others. Repeated with
    the same release ids after an unknown outcome, it answers Released for what was applied.
    """
    _check(items)
    wanted = [key for item in items for key in (keys.gen(item.live_id), keys.cursor(item.live_id))]
    checkpoints = [None if item.checkpoint is None else item.checkpoint.encode() for item in items]

    def body(tr: Transaction) -> list[ReleaseResult]:
        found = tr.get_many(wanted)
        results: list[ReleaseResult] = []
        for at, item in enumerate(items):
            cursor = read_cursor(found[2 * at + 1])
            if released_before(item, cursor):
                results.append(Released(item))
                continue
            refusal = release_refusal(item, read_generation(found[2 * at]), cursor)
            if refusal is not None or cursor is None:
                results.append(refusal or CursorMoved(item, cursor))
                continue
            tr.set(wanted[2 * at + 1], moved_cursor(item, cursor).encode())
            checkpoint = checkpoints[at]
            if checkpoint is not None:
                tr.set(keys.progress(item.live_id), checkpoint)
            results.append(Released(item))
        return results

    return await db.run(body)


def _check(items: Sequence[ReleaseItem]) -> None:
    if len({item.live_id for item in items}) != len(items):
        raise ValueError("a batch holds at most one item per live")
    for item in items:
        if not item.release_id:
            raise ValueError(f"the release of {item.live_id} has no release_id")
        if item.new_next_offset < item.expected_next_offset:
            raise ValueError(f"the cursor of {item.live_id} would move back")
