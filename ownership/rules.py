"""The rules of ownership, as functions of what a transaction read. No rule is decided elsewhere.

A rule answers None when it has nothing against the request, or the refusal itself.

PURE.
"""

from collections.abc import Iterable, Mapping, Sequence

from ownership.model import (
    AlreadyDead,
    AlreadyDisposed,
    BeatMoved,
    BelongsToOpenLive,
    CreateLive,
    CursorMoved,
    IdempotencyMismatch,
    LiveExists,
    LiveNotOpen,
    ReleaseItem,
    ReservationGone,
    SourceMoved,
    Stale,
    StaleGeneration,
    UnknownWorker,
    WorkerDead,
    WorkerNotReady,
    generation_of,
)
from schemas.store_values import (
    Cursor,
    Generation,
    GenerationValue,
    IdempotencyValue,
    LiveState,
    LiveStatus,
    SlotState,
    SlotValue,
    WorkerState,
    WorkerValue,
)

IDEMPOTENCY_MS = 24 * 3600 * 1000

# -- workers ----------------------------------------------------------------------------------


def register_refusal(worker_id: str, known: WorkerValue | None, buried: bool) -> WorkerDead | None:
    """An incarnation that was declared dead never comes back, however late it asks."""
    if buried or (known is not None and known.state is WorkerState.DEAD):
        return WorkerDead(worker_id)
    return None


def alive(worker: WorkerValue | None) -> bool:
    """Whether a runtime of this incarnation must be taken to be running.

    One that was marked dead or buried is not waited for: its slots end with the incarnation, for
    its id is never admitted anything again, and its releases are refused by the generation.
    """
    return worker is not None and worker.state is not WorkerState.DEAD


def admission_refusal(worker_id: str, worker: WorkerValue | None) -> WorkerNotReady | None:
    """Only a worker that is ready gets anything new."""
    if worker is None or worker.state is not WorkerState.READY:
        return WorkerNotReady(worker_id)
    return None


def mark_dead_refusal(
    worker_id: str, worker: WorkerValue | None, beat: int, beat_seen: int
) -> UnknownWorker | AlreadyDead | BeatMoved | None:
    """A worker is declared dead by stillness only: its counter stands where the caller saw it."""
    if worker is None:
        return UnknownWorker(worker_id)
    if worker.state is WorkerState.DEAD:
        return AlreadyDead(worker_id)
    if beat != beat_seen:
        return BeatMoved(beat)
    return None


# -- slots ------------------------------------------------------------------------------------

_MIX = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


def _mixed(number: int) -> int:
    """SplitMix64: neighbouring draws lead to unrelated slots."""
    number = (number + _MIX) & _MASK
    number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) & _MASK
    return number ^ (number >> 31)


def free_slot(taken: Iterable[int], capacity: int, draw: int) -> int | None:
    """One of the slots that are not taken, by the draw; None when there is none."""
    return _drawn(sorted(set(range(capacity)).difference(taken)), draw)


def _drawn(free: Sequence[int], draw: int) -> int | None:
    return free[_mixed(draw) % len(free)] if free else None


def left_slot(held: SlotValue, owner: WorkerValue | None, now_ms: int) -> SlotValue | None:
    """What a slot becomes whose generation ended; None: free.

    While its worker lives, the runtime may go on for a moment: the slot is not reused before that
    worker says that it is gone.
    """
    if not alive(owner):
        return None
    return SlotValue(held.live_id, held.epoch, SlotState.LEAVING, now_ms)


def reservation_refusal(token: str, slot: SlotValue | None) -> ReservationGone | None:
    """A reservation is a slot in state reserved that bears the token."""
    if slot is None or slot.state is not SlotState.RESERVED or slot.token != token:
        return ReservationGone(token)
    return None


# -- tallies: how many slots of a worker are held, leaving, reserved ----------------------------

_FIELD_BITS = 21
_FIELD_MASK = (1 << _FIELD_BITS) - 1
CAPACITY_MAX = _FIELD_MASK
_UNIT: Mapping[SlotState, int] = {
    SlotState.HELD: 1,
    SlotState.LEAVING: 1 << _FIELD_BITS,
    SlotState.RESERVED: 1 << (2 * _FIELD_BITS),
}


def tally_change(old: SlotState | None, new: SlotState | None) -> int:
    """What one slot's change adds to its worker's tally, three counters in one integer.

    Each counter is at most the capacity and never negative, so no sum of them borrows or carries.
    """
    return (0 if new is None else _UNIT[new]) - (0 if old is None else _UNIT[old])


def tally_counts(tally: int) -> tuple[int, int, int]:
    """(held, leaving, reserved)."""
    return (
        tally & _FIELD_MASK,
        (tally >> _FIELD_BITS) & _FIELD_MASK,
        (tally >> (2 * _FIELD_BITS)) & _FIELD_MASK,
    )


# -- which slots are taken: a bit for each, in words of 64 ----------------------------------------

SLOTS_PER_WORD = 64


def taken_change(old: SlotState | None, new: SlotState | None, index: int) -> int:
    """What one slot's change adds to the word that its bit is in.

    A slot is taken and freed in turns, each time with its key in conflict, so a sum of such
    changes sets and clears single bits and never carries.
    """
    return ((new is not None) - (old is not None)) << index % SLOTS_PER_WORD


def words_of(capacity: int) -> int:
    """How many words mark so many slots."""
    return -(-capacity // SLOTS_PER_WORD)


def word_of(index: int) -> int:
    """The word that the slot's bit is in."""
    return index // SLOTS_PER_WORD


def word_to_try(capacity: int, draw: int) -> int:
    """The word that this draw looks at first: nothing follows from it for the slot in the word."""
    return _mixed(draw ^ _MASK) % words_of(capacity)


def free_by_words(words: Iterable[tuple[int, int]], capacity: int, draw: int) -> int | None:
    """One of the slots whose bits are clear in (number, word) pairs; None when there is none."""
    free: list[int] = []
    for number, word in words:
        first = number * SLOTS_PER_WORD
        bits = range(min(SLOTS_PER_WORD, capacity - first))
        free += [first + bit for bit in bits if not word >> bit & 1]
    return _drawn(free, draw)


# -- generations ------------------------------------------------------------------------------


def next_generation(
    last: GenerationValue | None, target: str, slot: int, commit_id: str, now_ms: int
) -> GenerationValue:
    """The generation after `last`: epochs of a live id grow by one, over moves and re-creation."""
    epoch = 1 if last is None else last.epoch + 1
    return GenerationValue(target, epoch, slot, commit_id, now_ms)


def ended_generation(last: GenerationValue, now_ms: int) -> GenerationValue:
    """Nobody owns the live, and its epoch is remembered."""
    return GenerationValue("", last.epoch, -1, "", now_ms)


def commit_refusal(
    live_id: str,
    live: LiveState | None,
    generation: GenerationValue | None,
    expected: Generation | None,
) -> LiveNotOpen | SourceMoved | None:
    """The source-epoch guard: only from the generation that the caller decided upon."""
    if live is None or live.state is not LiveStatus.OPEN:
        return LiveNotOpen(live_id)
    actual = generation_of(generation)
    return None if actual == expected else SourceMoved(actual)


def stale(generation: GenerationValue | None, claimed: Generation) -> StaleGeneration | None:
    """The committed generation is the claimed one, worker and epoch, or the claim is void."""
    actual = generation_of(generation)
    return None if actual == claimed else StaleGeneration(actual)


# -- lives ------------------------------------------------------------------------------------


def idempotency_refusal(
    request: CreateLive, stored: IdempotencyValue | None
) -> IdempotencyMismatch | None:
    """One key stands for one request, for a day."""
    if stored is None or stored.request_hash == request.request_hash:
        return None
    return IdempotencyMismatch(stored.live_id)


def idempotency_current(stored: IdempotencyValue | None, now_ms: int) -> IdempotencyValue | None:
    """The stored key, unless its day is over."""
    if stored is None or now_ms - stored.at_ms > IDEMPOTENCY_MS:
        return None
    return stored


def create_refusal(live: LiveState | None, generation: GenerationValue | None) -> LiveExists | None:
    """A live id is free when it was never used, or when its last live was closed."""
    if live is not None and live.state is LiveStatus.OPEN:
        return LiveExists(generation_of(generation))
    return None


def first_cursor(left: Cursor | None, watermark: int) -> Cursor:
    """Where a new live of this id begins: after all that was released, skipped or dead-lettered.

    Not at the end of the log: text that was produced before the live was created is spoken.
    """
    if left is None or left.next_offset < watermark:
        return Cursor(watermark)
    return Cursor(left.next_offset)


# -- release ----------------------------------------------------------------------------------


def released_before(item: ReleaseItem, cursor: Cursor | None) -> bool:
    """Whether this very release was applied by an attempt whose outcome was unknown."""
    return (
        cursor is not None
        and cursor.release_id == item.release_id
        and cursor.next_offset == item.new_next_offset
    )


def release_refusal(
    item: ReleaseItem, generation: GenerationValue | None, cursor: Cursor | None
) -> Stale | CursorMoved | None:
    """The fence: the generation first, then the place in the log."""
    if (
        generation is None
        or generation.worker_id != item.generation.worker_id
        or generation.epoch != item.generation.epoch
    ):
        return Stale(item, generation_of(generation))
    if cursor is None or cursor.next_offset != item.expected_next_offset:
        return CursorMoved(item, cursor)
    return None


def moved_cursor(item: ReleaseItem, cursor: Cursor) -> Cursor:
    """The cursor after the release."""
    skipped_from, skipped_to = (None, None) if item.skipped is None else item.skipped
    return Cursor(
        item.new_next_offset,
        cursor.last_seq if item.last_seq is None else item.last_seq,
        item.release_id,
        skipped_from,
        skipped_to,
    )


# -- custody ----------------------------------------------------------------------------------


def dispose_refusal(
    live: LiveState | None,
    generation: GenerationValue | None,
    cursor: Cursor | None,
    watermark: int,
    offset: int,
) -> BelongsToOpenLive | AlreadyDisposed | None:
    """A custodian takes only what no live will release and none has released."""
    if live is not None and live.state is LiveStatus.OPEN:
        return BelongsToOpenLive(generation_of(generation))
    floor = max(watermark, 0 if cursor is None else cursor.next_offset)
    return AlreadyDisposed(floor) if offset < floor else None


def disposed_cursor(cursor: Cursor | None, offset: int) -> Cursor:
    """The floor below which a later live of this id begins."""
    return Cursor(offset + 1, None if cursor is None else cursor.last_seq)
