"""Weaker protocols and mutants of ours: each replaces one rule, in the simulated world only.

They run on the same seeds as the generation protocol. A checker that lets one of them pass would
let the same mistake pass in the protocol itself.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import controller.incarnation
import controller.release
import ownership.custody
import ownership.generations
import ownership.lives
import ownership.release
import ownership.rules
import ownership.slots
import ownership.workers
from ownership import keys
from ownership.kv import Transaction
from ownership.model import (
    AlreadyDisposed,
    CursorMoved,
    Generation,
    Released,
    ReleaseItem,
    Stale,
    StaleGeneration,
    generation_of,
)
from ownership.values import read_cursor, read_generation
from schemas.store_values import Cursor, GenerationValue
from tests.sim import egress, outage_mutants

Replacement = tuple[ModuleType | type, str, Any]


@dataclass(frozen=True, slots=True)
class Protocol:
    """`what` says what is left out, `expected` names the invariants that it should break."""

    name: str
    what: str
    replacements: tuple[Replacement, ...]
    mutant: bool = True


@contextmanager
def in_force(protocol: Protocol) -> Iterator[None]:
    """Everything that runs inside follows this protocol."""
    before = [(place, name, getattr(place, name)) for place, name, _ in protocol.replacements]
    for place, name, new in protocol.replacements:
        setattr(place, name, new)
    try:
        yield
    finally:
        for place, name, old in before:
            setattr(place, name, old)


# -- what the release checks -------------------------------------------------------------------


def _no_generation(item: ReleaseItem, _: object, cursor: Cursor | None) -> CursorMoved | None:
    """Whoever was once let in may go on; only the place in the log is compared."""
    if cursor is None or cursor.next_offset != item.expected_next_offset:
        return CursorMoved(item, cursor)
    return None


def _worker_only(
    item: ReleaseItem, generation: GenerationValue | None, cursor: Cursor | None
) -> Stale | CursorMoved | None:
    if generation is None or generation.worker_id != item.generation.worker_id:
        return Stale(item, generation_of(generation))
    return _no_generation(item, generation, cursor)


def _never_stale(generation: GenerationValue | None, claimed: Generation) -> None:
    return None


def _stale_by_worker(
    generation: GenerationValue | None, claimed: Generation
) -> StaleGeneration | None:
    actual = generation_of(generation)
    if actual is not None and actual.worker_id == claimed.worker_id:
        return None
    return StaleGeneration(actual)


async def _check_then_act(db: Any, items: Any) -> Any:
    """The generation is read through a snapshot: a move that commits meanwhile is no conflict."""
    wanted = [key for item in items for key in (keys.gen(item.live_id), keys.cursor(item.live_id))]

    def body(tr: Transaction) -> list[Any]:
        found = tr.snapshot.get_many(wanted)
        return [
            _release_one(tr, item, found[2 * at], found[2 * at + 1])
            for at, item in enumerate(items)
        ]

    return await db.run(body)


def _release_one(tr: Transaction, item: ReleaseItem, raw_gen: Any, raw_cursor: Any) -> Any:
    cursor = read_cursor(raw_cursor)
    if ownership.rules.released_before(item, cursor):
        return Released(item)
    refusal = ownership.rules.release_refusal(item, read_generation(raw_gen), cursor)
    if refusal is not None or cursor is None:
        return refusal or CursorMoved(item, cursor)
    tr.set(keys.cursor(item.live_id), ownership.rules.moved_cursor(item, cursor).encode())
    if item.checkpoint is not None:
        tr.set(keys.progress(item.live_id), item.checkpoint.encode())
    return Released(item)


async def _cursor_later(db: Any, items: Any) -> Any:
    """The check is one transaction, the cursor's move the next."""

    def check(tr: Transaction) -> list[Any]:
        results = []
        for item in items:
            cursor = read_cursor(tr.get(keys.cursor(item.live_id)))
            generation = read_generation(tr.get(keys.gen(item.live_id)))
            results.append(ownership.rules.release_refusal(item, generation, cursor))
        return results

    def move(tr: Transaction, allowed: list[ReleaseItem]) -> None:
        for item in allowed:
            cursor = read_cursor(tr.get(keys.cursor(item.live_id)))
            if cursor is not None:
                moved = ownership.rules.moved_cursor(item, cursor)
                tr.set(keys.cursor(item.live_id), moved.encode())
                if item.checkpoint is not None:
                    tr.set(keys.progress(item.live_id), item.checkpoint.encode())

    refusals = await db.run(check)
    allowed = [item for item, no in zip(items, refusals, strict=True) if no is None]
    await db.run(lambda tr: move(tr, allowed))
    return [no or Released(item) for item, no in zip(items, refusals, strict=True)]


async def _without_checkpoint(db: Any, items: Any) -> Any:
    """The cursor moves, and nobody learns what was released and not yet spoken."""
    return await ownership.release.release(db, [replace(one, checkpoint=None) for one in items])


# -- generations, lives, slots -----------------------------------------------------------------


def _same_epoch(
    last: GenerationValue | None, target: str, slot: int, commit_id: str, now_ms: int
) -> GenerationValue:
    epoch = 1 if last is None else last.epoch
    return GenerationValue(target, epoch, slot, commit_id, now_ms)


def _epoch_from_one(
    last: GenerationValue | None, target: str, slot: int, commit_id: str, now_ms: int
) -> GenerationValue:
    """A live that is made anew begins at one again."""
    epoch = 1 if last is None or not last.worker_id else last.epoch + 1
    return GenerationValue(target, epoch, slot, commit_id, now_ms)


def _any_source(live_id: str, live: Any, generation: Any, expected: Any) -> Any:
    """The mover's view of who owns the live is not compared with the store's."""
    return _commit_refusal(live_id, live, generation, generation_of(generation))


_commit_refusal = ownership.rules.commit_refusal
_COMMIT_CALL = ownership.generations._CommitBody.__call__


def _retry_without_id(self: Any, tr: Transaction) -> Any:
    """Run again after an unknown outcome, it goes from whatever owner it finds, also itself."""
    request = self._request
    last = read_generation(tr.get(keys.gen(request.live_id)))
    if last is None or last.commit_id != request.commit_id:
        return _COMMIT_CALL(self, tr)
    actual = generation_of(last)
    again = replace(request, expected=actual, commit_id=request.commit_id + " ")
    body = ownership.generations._CommitBody(again, self._checkpoint)
    result = _COMMIT_CALL(body, tr)
    value = read_generation(tr.get(keys.gen(request.live_id)))
    if value is not None and value.commit_id == again.commit_id:
        tr.set(keys.gen(request.live_id), replace(value, commit_id=request.commit_id).encode())
    return result


def _slot_without_conflict(tr: Transaction, worker: Any, draw: int) -> int | None:
    """The free slot that was seen is taken, whoever took it meanwhile."""
    begin, end = keys_range(worker.worker_id)
    taken = [keys.last_int(key) for key, _ in tr.snapshot.get_range(begin, end)]
    return ownership.rules.free_slot(taken, worker.capacity, draw)


def keys_range(worker_id: str) -> tuple[bytes, bytes]:
    return ownership.slots.prefix_range(keys.slots_of(worker_id))


def _free_at_once(held: Any, owner: Any, now_ms: int) -> None:
    """A slot is free when its generation ended, whatever its runtime still does."""
    return


def _from_the_start(left: Cursor | None, watermark: int) -> Cursor:
    """A live that is made anew reads its partition from where nothing was finished for all."""
    return Cursor(watermark)


def _dispose_anything(live: Any, gen: Any, cursor: Any, mark: int, offset: int) -> Any:
    """The custodian does not look whether somebody owns the live."""
    floor = max(mark, 0 if cursor is None else cursor.next_offset)
    return AlreadyDisposed(floor) if offset < floor else None


# -- processes, stages -------------------------------------------------------------------------


class _SameIdMint(controller.incarnation.IdMint):
    """The first id that an incarnation mints is its own: the same at every start of a node."""

    def __init__(self, clock: Any, rng: Any) -> None:
        super().__init__(clock, rng)
        self._first = True

    def new(self) -> str:
        if self._first:
            self._first = False
            return "0" * 26
        return super().new()


async def _register_again(db: Any, value: Any) -> Any:
    """An id that was dead comes back to life."""

    def body(tr: Transaction) -> Any:
        tr.set(keys.worker(value.worker_id), value.encode())
        tr.set(keys.node(value.node), value.worker_id.encode())
        tr.add(keys.beat(value.worker_id), 1)
        tr.add(keys.signal(value.worker_id), 1)
        return ownership.workers.Registered(None)

    return await db.run(body)


async def _feed_first(db: Any, items: Any) -> Any:
    """The answer is given before the commit is known."""
    task = asyncio.ensure_future(ownership.release.release(db, items))
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    await asyncio.sleep(0)
    return [Released(item) for item in items]


GENERATION = Protocol("generation", "ours", (), mutant=False)

WEAK = (
    Protocol(
        "assignment-time",
        "the generation is checked when a live is assigned, and never again",
        (
            (ownership.release, "release_refusal", _no_generation),
            (ownership.generations, "stale", _never_stale),
        ),
        mutant=False,
    ),
    Protocol(
        "claim-only",
        "the generation is claimed once and never revalidated",
        ((ownership.release, "release_refusal", _no_generation),),
        mutant=False,
    ),
    Protocol(
        "worker-id-only",
        "every release revalidates the worker, not the epoch",
        (
            (ownership.release, "release_refusal", _worker_only),
            (ownership.generations, "stale", _stale_by_worker),
        ),
        mutant=False,
    ),
)

_RELEASE = "release"


def _spied(release: Callable[[Any, Any], Any]) -> Replacement:
    from tests.sim import spies

    return (spies, _RELEASE, release)


MUTANTS = (
    Protocol(
        "check-then-act",
        "the release reads the generation without conflict",
        (_spied(_check_then_act),),
    ),
    Protocol(
        "cursor-moved-later",
        "the cursor moves in the transaction after the check",
        (_spied(_cursor_later),),
    ),
    Protocol(
        "released-before-known",
        "segments are fed before the commit's outcome is known",
        (_spied(_feed_first),),
    ),
    Protocol("no-checkpoint", "a release writes no checkpoint", (_spied(_without_checkpoint),)),
    Protocol(
        "reused-epoch",
        "a move keeps the epoch",
        ((ownership.generations, "next_generation", _same_epoch),),
    ),
    Protocol(
        "epoch-restarts",
        "a live that is made anew begins at epoch one",
        ((ownership.lives, "next_generation", _epoch_from_one),),
    ),
    Protocol(
        "no-source-guard",
        "a move does not compare the owner that it was decided upon",
        ((ownership.generations, "commit_refusal", _any_source),),
    ),
    Protocol(
        "retry-without-id",
        "a move that was retried does not find itself",
        ((ownership.generations._CommitBody, "__call__", _retry_without_id),),
    ),
    Protocol(
        "capacity-without-conflict",
        "the free slot that was seen does not count as read",
        ((ownership.slots, "find_free", _slot_without_conflict),),
    ),
    Protocol(
        "slot-freed-at-once",
        "a slot is free before its runtime is confirmed gone",
        ((ownership.slots, "left_slot", _free_at_once),),
    ),
    Protocol(
        "same-worker-id",
        "a restarted node comes back under the id that it had",
        (
            (controller.incarnation, "IdMint", _SameIdMint),
            (controller.incarnation, "register_worker", _register_again),
        ),
    ),
    Protocol(
        "egress-without-binding",
        "the egress takes ticks of any binding and epoch",
        ((egress.SimEgress, "checks", False),),
    ),
    Protocol(
        "dispose-owned",
        "a custodian dead-letters records without looking whether somebody owns the live",
        ((ownership.custody, "dispose_refusal", _dispose_anything),),
    ),
    Protocol(
        "created-from-watermark",
        "a live that is made anew forgets where its last one stopped",
        ((ownership.lives, "first_cursor", _from_the_start),),
    ),
    Protocol(
        "no-answer-is-yes",
        "a worker that hears nothing of the store takes its releases for committed",
        (_spied(outage_mutants.release_guessed),),
    ),
    *(Protocol(*one) for one in outage_mutants.REPLACEMENTS),
)

PROTOCOLS = {one.name: one for one in (GENERATION, *WEAK, *MUTANTS)}
