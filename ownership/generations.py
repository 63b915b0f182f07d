"""Generations: commit, claim, hand over, confirm gone; what a worker owns.

Reserved slots, for planned moves, are in `reservations`; they are reached from here as well.
"""

from ownership import keys, slots
from ownership.kv import Database, Reads, StoreCorrupt, Transaction
from ownership.lives import disown, own
from ownership.model import (
    Claimed,
    CommitGeneration,
    CommittedGeneration,
    Generation,
    LiveNotOpen,
    NoFreeSlot,
    ReservationGone,
    SourceMoved,
    StaleGeneration,
    WorkerNotReady,
)
from ownership.reservations import claim_standby, free_reserved, reserve
from ownership.rules import admission_refusal, commit_refusal, next_generation, stale
from ownership.tuple_layer import prefix_range
from ownership.values import (
    read_checkpoint,
    read_claim,
    read_cursor,
    read_generation,
    read_live,
    read_slot,
    read_worker,
)
from schemas.store_values import (
    Checkpoint,
    ClaimValue,
    GenerationValue,
    SlotState,
    SlotValue,
    WorkerValue,
)

__all__ = [
    "claim",
    "claim_standby",
    "commit_generation",
    "confirm_gone",
    "free_reserved",
    "hand_over",
    "leaving",
    "owned",
    "owned_by",
    "reserve",
]

CommitResult = (
    CommittedGeneration | SourceMoved | NoFreeSlot | ReservationGone | WorkerNotReady | LiveNotOpen
)


async def commit_generation(db: Database, request: CommitGeneration) -> CommitResult:
    """Advance a live to a new owner, guarded by the generation that is expected to own it now."""
    return await db.run(_commit_body(request, None))


async def hand_over(
    db: Database,
    live_id: str,
    me: Generation,
    target: str,
    checkpoint: Checkpoint,
    commit_id: str,
    now_ms: int,
    reserved_token: str | None = None,
    slot_draw: int = 0,
) -> CommitResult:
    """A planned move by its source: its exact checkpoint and the target's generation at once."""
    request = CommitGeneration(live_id, me, target, commit_id, now_ms, slot_draw, reserved_token)
    return await db.run(_commit_body(request, checkpoint.encode()))


def _commit_body(request: CommitGeneration, checkpoint: bytes | None) -> "_CommitBody":
    if not request.commit_id:
        raise ValueError("commit_id must not be empty")
    return _CommitBody(request, checkpoint)


class _CommitBody:
    """The transaction of `commit_generation` and `hand_over`, which differ in the checkpoint."""

    __slots__ = ("_checkpoint", "_request")

    def __init__(self, request: CommitGeneration, checkpoint: bytes | None) -> None:
        self._request = request
        self._checkpoint = checkpoint

    def __call__(self, tr: Transaction) -> CommitResult:
        request = self._request
        source = "" if request.expected is None else request.expected.worker_id
        raw_live, raw_gen, raw_target, raw_source = tr.get_many(
            [
                keys.live(request.live_id),
                keys.gen(request.live_id),
                keys.worker(request.target),
                keys.worker(source),
            ]
        )
        last, worker = read_generation(raw_gen), read_worker(raw_target)
        if last is not None and last.commit_id == request.commit_id:
            return CommittedGeneration(Generation(last.worker_id, last.epoch))
        refusal = commit_refusal(request.live_id, read_live(raw_live), last, request.expected)
        refusal = refusal or admission_refusal(request.target, worker)
        if refusal is not None or worker is None:
            return refusal or WorkerNotReady(request.target)
        slot = self._find_slot(tr, worker)
        if not isinstance(slot, int):
            return slot
        return self._write(tr, last, read_worker(raw_source), slot)

    def _find_slot(
        self, tr: Transaction, worker: WorkerValue
    ) -> int | NoFreeSlot | ReservationGone:
        request = self._request
        if request.reserved_token is not None:
            return slots.reserved_slot(tr, request.target, request.reserved_token)
        index = slots.find_free(tr, worker, request.slot_draw)
        return NoFreeSlot(request.target) if index is None else index

    def _write(
        self, tr: Transaction, last: GenerationValue | None, source: WorkerValue | None, slot: int
    ) -> CommittedGeneration:
        request = self._request
        live_id, target, now_ms = request.live_id, request.target, request.now_ms
        value = next_generation(last, target, slot, request.commit_id, now_ms)
        held = SlotValue(live_id, value.epoch, SlotState.HELD, now_ms)
        if request.reserved_token is None:
            slots.put(tr, target, slot, None, held)
        else:
            slots.use_reservation(tr, target, request.reserved_token, slot, held)
        if last is not None and last.worker_id:
            slots.leave(tr, live_id, last, source, now_ms)
            disown(tr, live_id, last.worker_id)
        tr.set(keys.gen(live_id), value.encode())
        own(tr, live_id, target, value.epoch)
        tr.clear(keys.orphan(live_id))
        if self._checkpoint is not None:
            tr.set(keys.progress(live_id), self._checkpoint)
        return CommittedGeneration(Generation(target, value.epoch))


async def claim(
    db: Database, live_id: str, generation: Generation, claim_id: str, now_ms: int
) -> Claimed | StaleGeneration:
    """Accept a generation durably, and get all that is needed to go on from it.

    The cursor and the checkpoint are exact: an earlier owner's release either committed before the
    generation did, and is in them, or never will commit.
    """
    claimed = ClaimValue(generation.worker_id, generation.epoch, claim_id, now_ms).encode()

    def body(tr: Transaction) -> Claimed | StaleGeneration:
        raw_gen, raw_live, raw_claim, raw_cursor, raw_progress = tr.get_many(
            [
                keys.gen(live_id),
                keys.live(live_id),
                keys.claim(live_id),
                keys.cursor(live_id),
                keys.progress(live_id),
            ]
        )
        value = read_generation(raw_gen)
        refusal = stale(value, generation)
        if refusal is not None:
            return refusal
        live, cursor, before = read_live(raw_live), read_cursor(raw_cursor), read_claim(raw_claim)
        if live is None or cursor is None or value is None:
            raise StoreCorrupt(f"live {live_id} is owned, but has no state or no cursor")
        if before is None or before.claim_id != claim_id:
            tr.set(keys.claim(live_id), claimed)
        return Claimed(live, cursor, read_checkpoint(raw_progress), value.slot)

    return await db.run(body)


async def confirm_gone(
    db: Database, live_id: str, old: Generation, slot: int | None = None
) -> bool:
    """The worker says that its runtime of an ended generation is gone: its slot is free.

    `slot`, as the claim told it, saves a search. False when there was nothing to free: done
    before, not ended, or the worker was buried.
    """

    def leaving(raw: bytes | None) -> bool:
        value = read_slot(raw)
        return (
            value is not None
            and value.state is SlotState.LEAVING
            and (value.live_id, value.epoch) == (live_id, old.epoch)
        )

    def body(tr: Transaction) -> bool:
        index = slot
        if index is None:
            pairs = tr.snapshot.get_range(*prefix_range(keys.slots_of(old.worker_id)))
            found = [keys.last_int(key) for key, raw in pairs if leaving(raw)]
            if not found:
                return False
            index = found[0]
        if not leaving(tr.get(keys.slot(old.worker_id, index))):
            return False
        slots.put(tr, old.worker_id, index, SlotState.LEAVING, None)
        return True

    return await db.run(body)


def owned(tr: Reads, worker_id: str) -> list[tuple[str, Generation]]:
    """`owned_by`, inside a transaction."""
    pairs = tr.get_range(*prefix_range(keys.by_worker_of(worker_id)))
    return [
        (keys.last_text(key), Generation(worker_id, int.from_bytes(raw, "little")))
        for key, raw in pairs
    ]


async def owned_by(db: Database, worker_id: str) -> list[tuple[str, Generation]]:
    """The lives whose committed generation names this worker, in order of their ids."""
    return await db.read(lambda tr: owned(tr, worker_id))


def leaving(tr: Reads, worker_id: str) -> list[tuple[str, Generation]]:
    """The ended generations whose runtimes this worker has not yet confirmed gone."""
    pairs = tr.get_range(*prefix_range(keys.slots_of(worker_id)))
    values = [read_slot(raw) for _, raw in pairs]
    return [
        (value.live_id, Generation(worker_id, value.epoch))
        for value in values
        if value is not None and value.state is SlotState.LEAVING
    ]
