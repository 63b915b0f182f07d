"""The release: one commit that revalidates generations and moves cursors, for many lives.

There is no window between the check and the act: what is checked is read by the transaction that
writes, so at its place in the order the generation that it names is the committed one.
"""

from collections.abc import Sequence

from ownership import keys
from ownership.kv import Database, Transaction
from ownership.model import CursorMoved, Released, ReleaseItem, Stale
from ownership.rules import moved_cursor, release_refusal, released_before
from ownership.values import read_cursor, read_generation, write_cursor

ReleaseResult = Released | Stale | CursorMoved


async def release(db: Database, items: Sequence[ReleaseItem]) -> list[ReleaseResult]:
    """Release what is rightful of a batch, in one transaction; one result per item, in order.

    At most one item per live (ValueError). A refused item never hinders the others. Repeated with
    the same release ids after an unknown outcome, it answers Released for what was applied.
    """
    _check(items)
    places = [keys.of_release(item.live_id) for item in items]
    wanted = [key for place in places for key in place[:2]]
    # Encoded here and not in the body, which may hold the store's only writer.
    checkpoints = [None if item.checkpoint is None else item.checkpoint.encode() for item in items]

    def body(tr: Transaction) -> list[ReleaseResult]:
        found = tr.get_many(wanted)
        results: list[ReleaseResult] = []
        for item, place, checkpoint, raw_gen, raw_cursor in zip(
            items, places, checkpoints, found[::2], found[1::2], strict=True
        ):
            cursor = read_cursor(raw_cursor)
            if not released_before(item, cursor):
                refusal = release_refusal(item, read_generation(raw_gen), cursor)
                if refusal is not None or cursor is None:
                    results.append(refusal or CursorMoved(item, cursor))
                    continue
                tr.set(place[1], write_cursor(moved_cursor(item, cursor), raw_cursor))
                if checkpoint is not None:
                    tr.set(place[2], checkpoint)
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
