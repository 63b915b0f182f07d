"""Lives: creation with its first generation, idempotency, closing, re-creation."""

import asyncio

import pytest

from ownership import keys
from ownership.custody import raise_watermark
from ownership.generations import commit_generation, confirm_gone, owned_by
from ownership.kv import StoreCorrupt, Transaction, add_int64
from ownership.lives import (
    close_live,
    create_live,
    expire_idempotency,
    get_live,
    list_lives,
    lives_of_partition,
)
from ownership.model import (
    AlreadyClosed,
    Closed,
    CommitGeneration,
    Created,
    Existing,
    Generation,
    IdempotencyMismatch,
    LiveExists,
    NoFreeSlot,
    StaleGeneration,
    UnknownLive,
    WorkerNotReady,
)
from ownership.release import release
from ownership.rules import IDEMPOTENCY_MS
from ownership.workers import mark_dead, set_draining
from schemas.store_values import Cursor, LiveStatus
from tests.unit.ownership.world import (
    counts,
    create,
    created,
    fresh,
    item,
    lost_answer,
    with_workers,
    worker,
)


async def test_one_transaction_opens_a_live_and_gives_it_an_owner() -> None:
    db = await with_workers(worker("w"))
    before = db.store.version
    assert await create_live(db, create("a", "w", partition=3)) == Created(Generation("w", 1))
    assert db.store.version == before + 1
    view = await get_live(db, "a")
    assert view is not None
    assert view.open
    assert view.generation == Generation("w", 1)
    assert (view.cursor, view.checkpoint, view.claim) == (Cursor(0), None, None)
    assert view.owner == worker("w")
    assert await owned_by(db, "w") == [("a", Generation("w", 1))]
    assert await lives_of_partition(db, 3) == ["a"]
    assert await counts(db, "w") == (1, 0, 0)


async def test_refusals_of_a_creation() -> None:
    db = await with_workers(worker("w", 1), worker("v", 1))
    assert await create_live(db, create("a", "nobody")) == WorkerNotReady("nobody")
    generation = await created(db, "a", "w")
    again = create("a", "v", create_id="another")
    assert await create_live(db, again) == LiveExists(generation)
    assert await create_live(db, create("b", "w")) == NoFreeSlot("w")
    await set_draining(db, "v")
    assert await create_live(db, create("b", "v")) == WorkerNotReady("v")
    assert await get_live(db, "b") is None
    with pytest.raises(ValueError, match="create_id"):
        await create_live(db, create("b", "v", create_id=""))


async def test_the_others_are_asked_in_their_order_in_the_same_transaction() -> None:
    db = await with_workers(worker("full", 1), worker("w", 1), worker("v", 1))
    await created(db, "a", "full")
    before = db.store.version
    others = create("b", "full", others=("nobody", "w", "v"))
    assert await create_live(db, others) == Created(Generation("w", 1))
    assert db.store.version == before + 1
    assert await counts(db, "w") == (1, 0, 0)
    again = create("c", "full", others=("w", "v"))
    assert await create_live(db, again) == Created(Generation("v", 1))
    assert await create_live(db, create("d", "nobody", others=("full", "v"))) == NoFreeSlot("v")
    assert await create_live(db, create("d", "v", others=("nobody",))) == WorkerNotReady("nobody")
    assert await get_live(db, "d") is None


async def test_the_same_creation_twice_is_one() -> None:
    db = await with_workers(worker("w"), worker("v"))
    assert await create_live(db, create("a", "w")) == Created(Generation("w", 1))
    assert await create_live(db, create("a", "v")) == Created(Generation("w", 1))
    assert await counts(db, "v") == (0, 0, 0)


async def test_an_answer_that_was_lost() -> None:
    db = await with_workers(worker("w"))
    assert await lost_answer(db, lambda: create_live(db, create("a", "w"))) == Created(
        Generation("w", 1)
    )
    assert await counts(db, "w") == (1, 0, 0)


async def test_an_idempotency_key_stands_for_one_request() -> None:
    db = await with_workers(worker("w", 5))
    first = create("a", "w", idempotency_key="k", request_hash="h")
    assert isinstance(await create_live(db, first), Created)
    # Without an id from the client, the second try minted another live id.
    second = create("b", "w", idempotency_key="k", request_hash="h")
    existing = await create_live(db, second)
    assert isinstance(existing, Existing)
    assert existing.view.live_id == "a"
    other = create("c", "w", idempotency_key="k", request_hash="x")
    assert await create_live(db, other) == IdempotencyMismatch("a")
    assert await counts(db, "w") == (1, 0, 0)
    late = create("d", "w", idempotency_key="k", request_hash="x", now_ms=IDEMPOTENCY_MS + 11)
    assert isinstance(await create_live(db, late), Created)


async def test_idempotency_keys_expire() -> None:
    db = await with_workers(worker("w", 9))
    for i in range(5):
        await create_live(db, create(f"a{i}", "w", idempotency_key=f"k{i}", now_ms=i * 1000))
    at: bytes | None = None
    steps = 0
    while steps == 0 or at is not None:
        at = await expire_idempotency(db, at, 2, IDEMPOTENCY_MS + 2500)
        steps += 1
    assert steps == 3
    kept = await create_live(db, create("b", "w", idempotency_key="k3", now_ms=3001))
    assert isinstance(kept, Existing)
    free = await create_live(db, create("c", "w", idempotency_key="k2", now_ms=3001))
    assert isinstance(free, Created)


async def test_two_creations_of_one_id_at_once() -> None:
    db = await with_workers(worker("w", 5))
    requests = [
        create("a", "w", create_id=f"c{i}", commit_id=f"g{i}", slot_draw=i) for i in range(4)
    ]
    done = await asyncio.gather(*(create_live(db, request) for request in requests))
    assert sorted(type(result).__name__ for result in done) == ["Created"] + ["LiveExists"] * 3
    assert await counts(db, "w") == (1, 0, 0)


@pytest.mark.parametrize("same_draw", [True, False])
async def test_many_creations_at_once_fill_a_worker_and_no_more(same_draw: bool) -> None:
    db = await with_workers(worker("w", 10))
    requests = [create(f"a{i}", "w", slot_draw=0 if same_draw else i) for i in range(15)]
    done = await asyncio.gather(*(create_live(db, request) for request in requests))
    names = sorted(type(result).__name__ for result in done)
    assert names == ["Created"] * 10 + ["NoFreeSlot"] * 5
    slots = [view.generation_value.slot for view in await list_lives(db, None, 0) if view.open]
    assert sorted(slots) == list(range(10))
    assert await counts(db, "w") == (10, 0, 0)


@pytest.mark.parametrize("mark", [0, -1])
async def test_a_map_of_slots_that_is_wrong_refuses_nothing_and_admits_nothing(mark: int) -> None:
    db = await with_workers(worker("w", 70))

    def spoil(tr: Transaction) -> None:
        for number in range(2):
            tr.set(keys.taken("w", number), add_int64(None, mark))

    for i in range(70):
        await db.run(spoil)
        assert isinstance(await create_live(db, create(f"a{i}", "w", slot_draw=i)), Created)
    assert await create_live(db, create("b", "w")) == NoFreeSlot("w")
    assert await counts(db, "w") == (70, 0, 0)


async def test_text_before_the_creation_is_spoken_unless_it_is_finished() -> None:
    db = await with_workers(worker("w", 5))
    await raise_watermark(db, 0, 40, range(40))
    await created(db, "a", "w", partition=0)
    await created(db, "b", "w", partition=1)
    a, b = await get_live(db, "a"), await get_live(db, "b")
    assert a is not None
    assert b is not None
    assert (a.cursor, b.cursor) == (Cursor(40), Cursor(0))


async def test_closing_from_outside_and_by_the_owner() -> None:
    db = await with_workers(worker("w"))
    generation = await created(db, "a", "w")
    assert await close_live(db, "a", Generation("w", 9), "x", 20) == StaleGeneration(generation)
    assert await close_live(db, "a", generation, "idle", 20) == Closed(generation)
    assert await close_live(db, "a", None, "api", 21) == AlreadyClosed("idle")
    assert await close_live(db, "nobody", None, "api", 21) == UnknownLive("nobody")
    view = await get_live(db, "a")
    assert view is not None
    assert (view.live.state, view.live.closed_at_ms, view.live.close_reason) == (
        LiveStatus.CLOSED,
        20,
        "idle",
    )
    assert (view.generation, view.owner, view.claim) == (None, None, None)
    assert await owned_by(db, "w") == []
    assert await lives_of_partition(db, 0) == []
    # The runtime may still be there: its slot waits for the worker's word.
    assert await counts(db, "w") == (0, 1, 0)
    assert await confirm_gone(db, "a", generation)
    assert await counts(db, "w") == (0, 0, 0)


async def test_closing_frees_the_slot_of_a_dead_worker_at_once() -> None:
    db = await with_workers(worker("w"))
    await created(db, "a", "w")
    await mark_dead(db, "w", 1)
    assert await close_live(db, "a", None, "api", 20) == Closed(Generation("w", 1))
    assert await counts(db, "w") == (0, 0, 0)


async def test_an_answer_to_a_close_that_was_lost() -> None:
    db = await with_workers(worker("w"))
    generation = await created(db, "a", "w")
    again = await lost_answer(db, lambda: close_live(db, "a", generation, "idle", 20))
    assert again == Closed(generation)


async def test_epochs_and_cursors_go_on_over_re_creation() -> None:
    db = await with_workers(worker("w", 5))
    first = await created(db, "a", "w")
    await release(db, [item("a", first, 0, 7, last_seq=3)])
    await close_live(db, "a", None, "api", 20)
    second = await created(db, "a", "w", create_id="again", commit_id="again")
    assert second == Generation("w", 2)
    view = await get_live(db, "a")
    assert view is not None
    assert (view.cursor, view.checkpoint) == (Cursor(7), None)
    # The first incarnation's owner is fenced, though worker and live are the same.
    (refused,) = await release(db, [item("a", first, 7, 8)])
    assert type(refused).__name__ == "Stale"


async def test_a_repeated_close_never_closes_the_next_live() -> None:
    """The close was applied, its answer lost, and the id was used again before the repeat."""
    from ownership.memory import Faults, MemoryDatabase

    db = await with_workers(worker("w", 5))
    generation = await created(db, "a", "w")
    lossy = MemoryDatabase(db.store, faults=Faults(unknown_applied=1))
    closing = asyncio.create_task(close_live(lossy, "a", None, "api", 20))
    while True:
        view = await get_live(db, "a")
        if view is not None and not view.open:
            break
    await created(db, "a", "w", create_id="again", commit_id="again")
    lossy.faults = None
    assert await closing == AlreadyClosed("")
    view = await get_live(db, "a")
    assert view is not None
    assert view.open
    assert view.generation == Generation("w", generation.epoch + 1)


async def test_lists_are_in_order_and_go_on() -> None:
    db = await with_workers(worker("w", 9))
    for name in "bdace":
        await created(db, name, "w")
    await close_live(db, "c", None, "api", 20)
    first = await list_lives(db, None, 2)
    assert [view.live_id for view in first] == ["a", "b"]
    rest = await list_lives(db, "b", 10)
    assert [(view.live_id, view.open) for view in rest] == [("c", False), ("d", True), ("e", True)]


async def test_a_live_on_another_partition_is_a_broken_store() -> None:
    db = await with_workers(worker("w"))
    await created(db, "a", "w", partition=1)
    await close_live(db, "a", None, "api", 20)
    with pytest.raises(StoreCorrupt, match="partition"):
        await create_live(db, create("a", "w", partition=2, create_id="again"))


async def test_a_value_that_cannot_be_read_stops() -> None:
    db = fresh()
    from ownership import keys

    await db.run(lambda tr: tr.set(keys.live("a"), b"garbage"))
    with pytest.raises(StoreCorrupt, match="LiveState"):
        await get_live(db, "a")


async def test_a_created_live_that_moved_answers_where_it_is() -> None:
    db = await with_workers(worker("w"), worker("v"))
    generation = await created(db, "a", "w")
    await commit_generation(db, CommitGeneration("a", generation, "v", "m", 20))
    assert await create_live(db, create("a", "w")) == Created(Generation("v", 2))
