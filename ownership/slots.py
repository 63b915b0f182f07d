"""Slot keys inside a transaction: take one, leave one, give one back. The tally follows.

Admission *is* the slot key. A free one is looked for in snapshot reads, which make nothing
conflict, and then only that key counts as read: two candidates of one slot conflict, two candidates
of one worker do not, and a slot that was taken meanwhile is never taken twice, however stale the
look was.
"""

from ownership import keys
from ownership.kv import StoreCorrupt, Transaction
from ownership.model import ReservationGone
from ownership.rules import (
    free_slot,
    left_slot,
    reservation_refusal,
    slots_to_try,
    tally_change,
)
from ownership.tuple_layer import pack, prefix_range, unpack
from ownership.values import read_slot
from schemas.store_values import GenerationValue, SlotState, SlotValue, WorkerValue

# Looking at a few slots by their keys is cheaper than reading all of them, until the worker is
# nearly full.
TRIES = 6


def find_free(tr: Transaction, worker: WorkerValue, draw: int) -> int | None:
    """A slot of the worker that nobody has, None when there is none. Makes it count as read."""
    tries = slots_to_try(draw, worker.capacity, TRIES)
    found = tr.snapshot.get_many([keys.slot(worker.worker_id, index) for index in tries])
    for index, raw in zip(tries, found, strict=True):
        if raw is None:
            tr.add_read_conflict_key(keys.slot(worker.worker_id, index))
            return index
    begin, end = prefix_range(keys.slots_of(worker.worker_id))
    taken = [keys.last_int(key) for key, _ in tr.snapshot.get_range(begin, end)]
    index = free_slot(taken, worker.capacity, draw)
    if index is not None:
        tr.add_read_conflict_key(keys.slot(worker.worker_id, index))
    return index


def put(
    tr: Transaction, worker_id: str, index: int, old: SlotState | None, new: SlotValue | None
) -> None:
    """Write a slot whose state was `old` (None: free); `new` None frees it."""
    key = keys.slot(worker_id, index)
    if new is None:
        tr.clear(key)
    else:
        tr.set(key, new.encode())
    tr.add(keys.tally(worker_id), tally_change(old, None if new is None else new.state))


def leave(
    tr: Transaction, live_id: str, ended: GenerationValue, owner: WorkerValue | None, now_ms: int
) -> None:
    """End the slot of a generation: leaving while its worker lives, free when that is dead."""
    if ended.slot < 0:
        return
    held = read_slot(tr.get(keys.slot(ended.worker_id, ended.slot)))
    if held is None or (held.live_id, held.epoch) != (live_id, ended.epoch):
        raise StoreCorrupt(
            f"slot {ended.slot} of {ended.worker_id} is not that of {live_id} "
            f"at epoch {ended.epoch}: {held}"
        )
    put(tr, ended.worker_id, ended.slot, held.state, left_slot(held, owner, now_ms))


def put_reservation(tr: Transaction, worker_id: str, token: str, index: int) -> None:
    """Make the token lead to its slot."""
    tr.set(keys.reservation(worker_id, token), pack((index,)))


def reserved_slot(tr: Transaction, worker_id: str, token: str) -> int | ReservationGone:
    """The slot that is reserved under the token."""
    raw = tr.get(keys.reservation(worker_id, token))
    if raw is None:
        return ReservationGone(token)
    index = reservation_index(raw)
    slot = read_slot(tr.get(keys.slot(worker_id, index)))
    return reservation_refusal(token, slot) or index


def use_reservation(
    tr: Transaction, worker_id: str, token: str, index: int, held: SlotValue
) -> None:
    """Turn the reserved slot into a held one."""
    tr.clear(keys.reservation(worker_id, token))
    put(tr, worker_id, index, SlotState.RESERVED, held)


def drop_reservation(tr: Transaction, worker_id: str, token: str, index: int) -> None:
    """Give the reserved slot back."""
    tr.clear(keys.reservation(worker_id, token))
    put(tr, worker_id, index, SlotState.RESERVED, None)


def reservation_index(raw: bytes) -> int:
    """The slot that a reservation's value names."""
    index = unpack(raw)[0]
    if not isinstance(index, int):
        raise StoreCorrupt(f"a reservation names no slot: {raw!r}")
    return index
