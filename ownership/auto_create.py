"""Lives that records open: what a custodian does, where the policy says so, instead of disposing.

The transaction reads what a disposal reads and what a creation reads, so of several custodians, and
of a Dispatch replica that creates the same id, one opens the live and the others find it open. The
record whose disposal was begun stays disposed of: its dead letter may be in the log already.

The cursor begins where that of every new live does: after what was disposed of, at or before the
record. So of two custodians that look at different records of one id, whichever comes first opens
the live for both.
"""

from ownership import keys
from ownership.kv import Database, Transaction, int64
from ownership.lives import open_state, place
from ownership.model import (
    AlreadyDisposed,
    BelongsToOpenLive,
    Disposed,
    Generation,
    LivedBefore,
    OpenedForRecord,
    OpenForRecord,
    generation_of,
)
from ownership.rules import dispose_refusal
from ownership.values import read_cursor, read_generation, read_live, read_worker
from schemas.store_values import GenerationValue, LiveState, LiveStatus, OrphanValue

OpenResult = OpenedForRecord | BelongsToOpenLive | AlreadyDisposed | Disposed | LivedBefore


async def open_for_record(db: Database, request: OpenForRecord) -> OpenResult:
    """Open a live for a record of an id that never lived; with an owner, or waiting for one.

    Repeated with the same `create_id` it answers as the first time, or as the live is now.
    """
    if not request.create_id or not request.commit_id:
        raise ValueError("create_id and commit_id must not be empty")

    def body(tr: Transaction) -> OpenResult:
        live_id, partition = request.live_id, request.partition
        raw_begun, raw_live, raw_gen, raw_cursor, raw_mark = tr.get_many(
            [
                keys.disposing(partition, request.offset),
                keys.live(live_id),
                keys.gen(live_id),
                keys.cursor(live_id),
                keys.watermark(partition),
            ]
        )
        live, last = read_live(raw_live), read_generation(raw_gen)
        if live is not None and live.create_id == request.create_id:
            return OpenedForRecord(generation_of(last))
        if raw_begun is not None:
            return Disposed()
        refusal = dispose_refusal(
            live, last, read_cursor(raw_cursor), int64(raw_mark), request.offset
        )
        if refusal is not None:
            return refusal
        if live is not None:
            return LivedBefore(live_id)
        open_state(
            tr,
            live_id,
            LiveState(
                LiveStatus.OPEN,
                request.options,
                partition,
                request.now_ms,
                create_id=request.create_id,
            ),
        )
        return OpenedForRecord(_place_somewhere(tr, request, last))

    return await db.run(body)


def _place_somewhere(
    tr: Transaction, request: OpenForRecord, last: GenerationValue | None
) -> Generation | None:
    """The first target that admits it; None: it is listed as waiting, guarded by nobody."""
    workers = tr.get_many([keys.worker(target) for target in request.targets])
    for target, raw in zip(request.targets, workers, strict=True):
        placed = place(
            tr,
            request.live_id,
            last,
            target,
            read_worker(raw),
            request.commit_id,
            request.slot_draw,
            request.now_ms,
        )
        if isinstance(placed, Generation):
            return placed
    waiting = OrphanValue("", 0, request.now_ms)
    tr.set(keys.orphan(request.live_id), waiting.encode())
    return None
