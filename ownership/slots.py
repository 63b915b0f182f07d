"""Slot keys inside a transaction: take one, leave one, give one back. The tally follows.

Admission *is* the slot key. A free one is looked for in snapshot reads, which make nothing
conflict, and then only that key counts as read: two candidates of one slot conflict, two candidates
of one worker do not, and a slot that was taken meanwhile is never taken twice, however stale the
look was.

A map of bits says where to look, so that a slot is found as fast on a worker that is nearly full.
It is written with additions, which never conflict, and it is a hint: no slot is taken, and none
refused, on its word alone.
"""

from ownership import keys
from ownership.kv import Reads, StoreCorrupt, Transaction, int64
from ownership.model import ReservationGone
from ownership.rules import (
    free_by_words,
    free_slot,
    left_slot,
    reservation_refusal,
    taken_change,
    tally_change,
    tally_counts,
    word_of,
    word_to_try,
    words_of,
)
from ownership.tuple_layer import pack, prefix_range, unpack
from ownership.values import read_slot
from schemas.store_values import GenerationValue, SlotState, SlotValue, WorkerValue


def find_free(tr: Transaction, worker: WorkerValue, draw: int) -> int | None:
    """A slot of the worker that nobody has, None when there is none. Makes it count as read."""
    name, look = worker.worker_id, tr.snapshot
    index = _find_on_map(look, worker, draw)
    if index is None and sum(tally_counts(int64(look.get(keys.tally(name))))) >= worker.capacity:
        return None
    if index is None or tr.get(keys.slot(name, index)) is not None:
        # The map is wrong: a release that knew nothing of it took slots of this worker.
        index = free_slot(_taken(look, name), worker.capacity, draw)
        if index is not None:
            tr.add_read_conflict_key(keys.slot(name, index))
    return index


def _find_on_map(look: Reads, worker: WorkerValue, draw: int) -> int | None:
    """A slot that is free by the map: in one word, or where that one is full in any of them."""
    name, capacity = worker.worker_id, worker.capacity
    number = word_to_try(capacity, draw)
    index = free_by_words([(number, int64(look.get(keys.taken(name, number))))], capacity, draw)
    if index is not None:
        return index
    pairs = look.get_range(*prefix_range(keys.taken_of(name)))
    marked = {keys.last_int(key): int64(raw) for key, raw in pairs}
    words = [(number, marked.get(number, 0)) for number in range(words_of(capacity))]
    return free_by_words(words, capacity, draw)


def _taken(look: Reads, worker_id: str) -> list[int]:
    """The slots that somebody has, by their keys."""
    pairs = look.get_range(*prefix_range(keys.slots_of(worker_id)))
    return [keys.last_int(key) for key, _ in pairs]


def put(
    tr: Transaction, worker_id: str, index: int, old: SlotState | None, new: SlotValue | None
) -> None:
    """Write a slot whose state was `old` (None: free); `new` None frees it."""
    key = keys.slot(worker_id, index)
    if new is None:
        tr.clear(key)
    else:
        tr.set(key, new.encode())
    state = None if new is None else new.state
    tr.add(keys.tally(worker_id), tally_change(old, state))
    if (old is None) is not (state is None):
        tr.add(keys.taken(worker_id, word_of(index)), taken_change(old, state, index))


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
