"""Lives: open, close, look."""

from dataclasses import replace

from ownership import keys, slots
from ownership.kv import Database, Reads, StoreCorrupt, Transaction, int64
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
    generation_of,
)
from ownership.rules import (
    admission_refusal,
    create_refusal,
    ended_generation,
    first_cursor,
    idempotency_current,
    idempotency_refusal,
    next_generation,
    stale,
)
from ownership.tuple_layer import prefix_range
from ownership.values import (
    read_checkpoint,
    read_claim,
    read_cursor,
    read_generation,
    read_idempotency,
    read_live,
    read_worker,
)
from schemas.store_values import (
    GenerationValue,
    IdempotencyValue,
    LiveState,
    LiveStatus,
    SlotState,
    SlotValue,
    WorkerValue,
)

CreateResult = Created | Existing | LiveExists | NoFreeSlot | WorkerNotReady | IdempotencyMismatch
CloseResult = Closed | AlreadyClosed | UnknownLive | StaleGeneration


async def create_live(db: Database, request: CreateLive) -> CreateResult:
    """Open a live and commit its first generation, in one transaction.

    The cursor starts at the larger of what an earlier live of this id left and the partition's
    watermark; the epoch goes on from the last one of this id. The refusal is that of the worker
    that was asked last.
    """
    if not request.create_id or not request.commit_id:
        raise ValueError("create_id and commit_id must not be empty")

    def body(tr: Transaction) -> CreateResult:
        repeated = _repeated(tr, request)
        if repeated is not None:
            return repeated
        placed = _place_first(tr, request)
        if not isinstance(placed, Generation):
            return placed
        _open(tr, request)
        return Created(placed)

    return await db.run(body)


def _place_first(tr: Transaction, request: CreateLive) -> Generation | NoFreeSlot | WorkerNotReady:
    """Commit the first generation to the first of the workers that admits it."""
    raw_gen, raw_worker = tr.get_many([keys.gen(request.live_id), keys.worker(request.target)])
    last, draw, now_ms = read_generation(raw_gen), request.slot_draw, request.now_ms

    def at(target: str, raw: bytes | None) -> Generation | NoFreeSlot | WorkerNotReady:
        worker = read_worker(raw)
        return place(tr, request.live_id, last, target, worker, request.commit_id, draw, now_ms)

    placed = at(request.target, raw_worker)
    for other in request.others:
        if isinstance(placed, Generation):
            break
        placed = at(other, tr.get(keys.worker(other)))
    return placed


def _repeated(tr: Transaction, request: CreateLive) -> CreateResult | None:
    """The answer when this request, or its idempotency key, or its live id was here before."""
    raw_live, raw_gen = tr.get_many([keys.live(request.live_id), keys.gen(request.live_id)])
    live, generation = read_live(raw_live), read_generation(raw_gen)
    if live is not None and live.create_id == request.create_id and generation is not None:
        return Created(Generation(generation.worker_id, generation.epoch))
    if request.idempotency_key is not None:
        raw = tr.get(keys.idem(request.idempotency_key))
        stored = idempotency_current(read_idempotency(raw), request.now_ms)
        mismatch = idempotency_refusal(request, stored)
        if mismatch is not None:
            return mismatch
        view = None if stored is None else view_live(tr, stored.live_id)
        if view is not None:
            return Existing(view)
    if live is not None and live.partition != request.partition:
        raise StoreCorrupt(
            f"live {request.live_id} was on partition {live.partition}, "
            f"now on {request.partition}: the topic's partition count was changed"
        )
    return create_refusal(live, generation)


def place(
    tr: Transaction,
    live_id: str,
    last: GenerationValue | None,
    target: str,
    worker: WorkerValue | None,
    commit_id: str,
    slot_draw: int,
    now_ms: int,
) -> Generation | NoFreeSlot | WorkerNotReady:
    """Commit the generation after `last` to a free slot of the target, if it is admitted there.

    `worker` is what the store holds of the target.
    """
    refusal = admission_refusal(target, worker)
    if refusal is not None or worker is None:
        return refusal or WorkerNotReady(target)
    slot = slots.find_free(tr, worker, slot_draw)
    if slot is None:
        return NoFreeSlot(target)
    value = next_generation(last, target, slot, commit_id, now_ms)
    tr.set(keys.gen(live_id), value.encode())
    held = SlotValue(live_id, value.epoch, SlotState.HELD, now_ms)
    slots.put(tr, target, slot, None, held)
    own(tr, live_id, target, value.epoch)
    return Generation(target, value.epoch)


def _open(tr: Transaction, request: CreateLive) -> None:
    open_state(
        tr,
        request.live_id,
        LiveState(
            LiveStatus.OPEN,
            request.options,
            request.partition,
            request.now_ms,
            create_id=request.create_id,
        ),
    )
    if request.idempotency_key is not None:
        kept = IdempotencyValue(request.live_id, request.request_hash, request.now_ms)
        tr.set(keys.idem(request.idempotency_key), kept.encode())


def open_state(tr: Transaction, live_id: str, live: LiveState) -> None:
    """Write an open live, its first cursor and its place in the partition's index."""
    raw_cursor, raw_mark = tr.get_many([keys.cursor(live_id), keys.watermark(live.partition)])
    tr.set(keys.live(live_id), live.encode())
    cursor = first_cursor(read_cursor(raw_cursor), int64(raw_mark))
    tr.set(keys.cursor(live_id), cursor.encode())
    tr.set(keys.by_partition(live.partition, live_id), b"")


def own(tr: Transaction, live_id: str, worker_id: str, epoch: int) -> None:
    """List a live with its worker, and tell the worker."""
    tr.set(keys.by_worker(worker_id, live_id), epoch.to_bytes(8, "little"))
    tr.add(keys.signal(worker_id), 1)


def disown(tr: Transaction, live_id: str, worker_id: str) -> None:
    """Take a live off its worker's list, and tell the worker."""
    tr.clear(keys.by_worker(worker_id, live_id))
    tr.add(keys.signal(worker_id), 1)


async def close_live(
    db: Database, live_id: str, generation: Generation | None, reason: str, now_ms: int
) -> CloseResult:
    """Close a live: as its owner (`generation`), or from outside (None: whoever owns it).

    The cursor and the epoch stay, for a later live of the same id.
    """
    first_seen: str | None = None
    ended: Generation | None = None

    def body(tr: Transaction) -> CloseResult:
        nonlocal first_seen, ended
        raw_live, raw_gen = tr.get_many([keys.live(live_id), keys.gen(live_id)])
        live, value = read_live(raw_live), read_generation(raw_gen)
        if live is None:
            return UnknownLive(live_id)
        # A repeat closes the live that was meant, never one that was created since.
        first_seen = live.create_id if first_seen is None else first_seen
        if live.create_id != first_seen:
            return AlreadyClosed("")
        if live.state is LiveStatus.CLOSED:
            mine = live.closed_at_ms == now_ms and live.close_reason == reason
            return Closed(ended) if mine else AlreadyClosed(live.close_reason)
        refusal = None if generation is None else stale(value, generation)
        if refusal is not None:
            return refusal
        ended = generation_of(value)
        _close(tr, live_id, replace(live, close_reason=reason), now_ms)
        return Closed(ended)

    return await db.run(body)


def _close(tr: Transaction, live_id: str, live: LiveState, now_ms: int) -> None:
    value = read_generation(tr.get(keys.gen(live_id)))
    if value is not None and value.worker_id:
        owner: WorkerValue | None = read_worker(tr.get(keys.worker(value.worker_id)))
        slots.leave(tr, live_id, value, owner, now_ms)
        disown(tr, live_id, value.worker_id)
        tr.set(keys.gen(live_id), ended_generation(value, now_ms).encode())
    closed = replace(live, state=LiveStatus.CLOSED, closed_at_ms=now_ms)
    tr.set(keys.live(live_id), closed.encode())
    tr.clear(keys.by_partition(live.partition, live_id))
    tr.clear(keys.claim(live_id))
    tr.clear(keys.progress(live_id))
    tr.clear(keys.orphan(live_id))


def view_live(tr: Reads, live_id: str) -> LiveView | None:
    """Everything the store knows of a live, inside a transaction."""
    raw_live, raw_gen, raw_claim, raw_cursor, raw_progress = tr.get_many(
        [
            keys.live(live_id),
            keys.gen(live_id),
            keys.claim(live_id),
            keys.cursor(live_id),
            keys.progress(live_id),
        ]
    )
    live, value = read_live(raw_live), read_generation(raw_gen)
    if live is None:
        return None
    owner = generation_of(value)
    return LiveView(
        live_id,
        live,
        value,
        read_claim(raw_claim),
        read_cursor(raw_cursor),
        read_checkpoint(raw_progress),
        None if owner is None else read_worker(tr.get(keys.worker(owner.worker_id))),
    )


async def get_live(db: Database, live_id: str) -> LiveView | None:
    """Everything the store knows of a live; None when it was never created."""
    return await db.read(lambda tr: view_live(tr, live_id))


async def list_lives(db: Database, after: str | None, limit: int) -> list[LiveView]:
    """Up to `limit` lives in order of their ids, beginning after `after`; closed ones too."""
    begin, end = prefix_range(keys.LIVE)
    if after is not None:
        begin = keys.live(after) + b"\x00"

    def body(tr: Reads) -> list[LiveView]:
        pairs = tr.get_range(begin, end, limit=limit)
        views = [view_live(tr, keys.last_text(key)) for key, _ in pairs]
        return [view for view in views if view is not None]

    return await db.read(body)


async def lives_of_partition(db: Database, partition: int) -> list[str]:
    """The ids of a partition's open lives, in order."""
    begin, end = prefix_range(keys.by_partition_of(partition))
    pairs = await db.read(lambda tr: tr.get_range(begin, end))
    return [keys.last_text(key) for key, _ in pairs]


async def expire_idempotency(
    db: Database, after: bytes | None, limit: int, now_ms: int
) -> bytes | None:
    """Clear idempotency keys whose day is over, among the next `limit`; where to go on, or None."""
    begin, end = prefix_range(keys.IDEM)
    begin = begin if after is None else after + b"\x00"

    def body(tr: Transaction) -> bytes | None:
        pairs = tr.snapshot.get_range(begin, end, limit=limit)
        for key, raw in pairs:
            if idempotency_current(read_idempotency(raw), now_ms) is None:
                tr.add_read_conflict_key(key)
                tr.clear(key)
        return pairs[-1][0] if len(pairs) == limit else None

    return await db.run(body)
