"""Slots kept for planned moves. The worker that owns one frees it when it is not used in time."""

from ownership import keys, slots
from ownership.kv import Database, Reads, StoreCorrupt, Transaction
from ownership.model import (
    LiveNotOpen,
    NoFreeSlot,
    Reservation,
    ReservationGone,
    Reserved,
    Standby,
    WorkerNotReady,
    generation_of,
)
from ownership.rules import admission_refusal, reservation_refusal
from ownership.tuple_layer import prefix_range
from ownership.values import (
    read_checkpoint,
    read_cursor,
    read_generation,
    read_live,
    read_slot,
    read_worker,
)
from schemas.store_values import SlotState, SlotValue


async def reserve(
    db: Database, target: str, token: str, now_ms: int, *, live_id: str = "", slot_draw: int = 0
) -> Reserved | NoFreeSlot | WorkerNotReady:
    """Keep a slot of the target for a planned move of `live_id`.

    A token stands for one slot: repeated, it gives the slot that it has.
    """
    if not token:
        raise ValueError("token must not be empty")

    def body(tr: Transaction) -> Reserved | NoFreeSlot | WorkerNotReady:
        raw_worker, raw = tr.get_many([keys.worker(target), keys.reservation(target, token)])
        if raw is not None:
            return Reserved(slots.reservation_index(raw))
        worker = read_worker(raw_worker)
        refusal = admission_refusal(target, worker)
        if refusal is not None or worker is None:
            return refusal or WorkerNotReady(target)
        index = slots.find_free(tr, worker, slot_draw)
        if index is None:
            return NoFreeSlot(target)
        kept = SlotValue(live_id, 0, SlotState.RESERVED, now_ms, token)
        slots.put(tr, target, index, None, kept)
        slots.put_reservation(tr, target, token, index)
        tr.add(keys.signal(target), 1)
        return Reserved(index)

    return await db.run(body)


async def free_reserved(db: Database, worker_id: str, token: str) -> bool:
    """Give a reserved slot back; False when it was used or freed before."""

    def body(tr: Transaction) -> bool:
        index = slots.reserved_slot(tr, worker_id, token)
        if not isinstance(index, int):
            return False
        slots.drop_reservation(tr, worker_id, token, index)
        return True

    return await db.run(body)


def reserved(tr: Reads, worker_id: str) -> list[Reservation]:
    """The reserved slots of a worker, for it to prepare standbys and to free old ones."""
    pairs = tr.get_range(*prefix_range(keys.reservations_of(worker_id)))
    indexes = [slots.reservation_index(raw) for _, raw in pairs]
    values = tr.get_many([keys.slot(worker_id, index) for index in indexes])
    found: list[Reservation] = []
    for index, raw in zip(indexes, values, strict=True):
        value = read_slot(raw)
        if value is None or value.state is not SlotState.RESERVED:
            raise StoreCorrupt(f"a reservation of {worker_id} names slot {index}: {value}")
        found.append(Reservation(value.token, value.live_id, index, value.since_ms))
    return found


async def claim_standby(
    db: Database, live_id: str, worker_id: str, token: str
) -> Standby | ReservationGone | LiveNotOpen:
    """What the target of a planned move prepares from, as long as its reservation stands.

    Nothing is written and nothing may be released from it: authority comes with the hand-over.
    """

    def body(tr: Reads) -> Standby | ReservationGone | LiveNotOpen:
        raw = tr.get(keys.reservation(worker_id, token))
        if raw is None:
            return ReservationGone(token)
        slot = read_slot(tr.get(keys.slot(worker_id, slots.reservation_index(raw))))
        refusal = reservation_refusal(token, slot)
        if refusal is not None:
            return refusal
        raw_live, raw_gen, raw_cursor, raw_progress = tr.get_many(
            [keys.live(live_id), keys.gen(live_id), keys.cursor(live_id), keys.progress(live_id)]
        )
        live, cursor = read_live(raw_live), read_cursor(raw_cursor)
        generation = generation_of(read_generation(raw_gen))
        if live is None or cursor is None or generation is None:
            return LiveNotOpen(live_id)
        return Standby(live, generation, cursor, read_checkpoint(raw_progress))

    return await db.read(body)
