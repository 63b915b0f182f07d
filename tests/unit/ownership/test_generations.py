"""Generations: the guard, the slots on both sides, claims, hand-over, reservations."""

import asyncio

import pytest

from ownership.generations import (
    claim,
    claim_standby,
    commit_generation,
    confirm_gone,
    free_reserved,
    hand_over,
    owned_by,
    reserve,
)
from ownership.kv import StoreCorrupt, int64
from ownership.lives import close_live, get_live
from ownership.memory import MemoryDatabase
from ownership.model import (
    Claimed,
    Closed,
    CommitGeneration,
    CommittedGeneration,
    Generation,
    LiveNotOpen,
    NoFreeSlot,
    Reservation,
    ReservationGone,
    Reserved,
    SourceMoved,
    StaleGeneration,
    Standby,
    WorkerNotReady,
)
from ownership.release import release
from ownership.standing import standing
from ownership.workers import mark_dead, set_draining, worker_signal_key
from schemas.store_values import Cursor
from tests.unit.ownership.world import (
    CHECKPOINT,
    counts,
    created,
    item,
    lost_answer,
    with_workers,
    worker,
)


def move(
    live_id: str, expected: Generation | None, target: str, **more: object
) -> CommitGeneration:
    commit_id = str(more.pop("commit_id", f"move {live_id} to {target}"))
    return CommitGeneration(live_id, expected, target, commit_id, 30, **more)  # type: ignore[arg-type]


async def signal(db: MemoryDatabase, worker_id: str) -> int:
    return int64(await db.read(lambda tr: tr.get(worker_signal_key(worker_id))))


async def test_a_move_advances_the_epoch_and_both_slots() -> None:
    db = await with_workers(worker("w"), worker("v"))
    first = await created(db, "a", "w")
    before = await signal(db, "w"), await signal(db, "v")
    assert await commit_generation(db, move("a", first, "v")) == CommittedGeneration(
        Generation("v", 2)
    )
    assert (await signal(db, "w"), await signal(db, "v")) == (before[0] + 1, before[1] + 1)
    assert (await counts(db, "w"), await counts(db, "v")) == ((0, 1, 0), (1, 0, 0))
    assert await owned_by(db, "w") == []
    assert await owned_by(db, "v") == [("a", Generation("v", 2))]
    assert (await standing(db, "w")).leaving == [("a", first)]


async def test_the_guard_lets_one_of_many_through() -> None:
    db = await with_workers(worker("w"), *(worker(f"t{i}") for i in range(5)))
    first = await created(db, "a", "w")
    done = await asyncio.gather(
        *(commit_generation(db, move("a", first, f"t{i}")) for i in range(5))
    )
    winners = [result for result in done if isinstance(result, CommittedGeneration)]
    assert len(winners) == 1
    assert winners[0].generation.epoch == 2
    others = [result for result in done if result is not winners[0]]
    assert others == [SourceMoved(winners[0].generation)] * 4
    held = [await counts(db, f"t{i}") for i in range(5)]
    assert sorted(held) == [(0, 0, 0)] * 4 + [(1, 0, 0)]


async def test_refusals_of_a_move() -> None:
    db = await with_workers(worker("w", 3), worker("v", 1))
    first = await created(db, "a", "w")
    await created(db, "b", "v")
    assert await commit_generation(db, move("a", first, "v")) == NoFreeSlot("v")
    assert await commit_generation(db, move("a", first, "x")) == WorkerNotReady("x")
    assert await commit_generation(db, move("a", None, "w")) == SourceMoved(first)
    assert await commit_generation(db, move("a", Generation("w", 2), "w")) == SourceMoved(first)
    assert await commit_generation(db, move("none", first, "w")) == LiveNotOpen("none")
    gone = move("a", first, "w", reserved_token="t")
    assert await commit_generation(db, gone) == ReservationGone("t")
    with pytest.raises(ValueError, match="commit_id"):
        await commit_generation(db, move("a", first, "w", commit_id=""))
    await close_live(db, "a", first, "x", 20)
    assert await commit_generation(db, move("a", first, "w")) == LiveNotOpen("a")
    assert await commit_generation(db, move("a", None, "w")) == LiveNotOpen("a")


async def test_a_repeated_move_is_the_first_one() -> None:
    db = await with_workers(worker("w"), worker("v"))
    first = await created(db, "a", "w")
    wanted = CommittedGeneration(Generation("v", 2))
    assert await lost_answer(db, lambda: commit_generation(db, move("a", first, "v"))) == wanted
    assert await commit_generation(db, move("a", first, "v")) == wanted
    assert await counts(db, "v") == (1, 0, 0)
    # Once the live has gone on, the repeat learns that.
    back = await commit_generation(db, move("a", Generation("v", 2), "w"))
    assert back == CommittedGeneration(Generation("w", 3))
    assert await commit_generation(db, move("a", first, "v")) == SourceMoved(Generation("w", 3))


async def test_a_slot_that_may_still_run_is_not_reused() -> None:
    db = await with_workers(worker("w", 1), worker("v", 2))
    first = await created(db, "a", "w")
    await commit_generation(db, move("a", first, "v"))
    second = await created(db, "b", "v")
    assert await commit_generation(db, move("b", second, "w")) == NoFreeSlot("w")
    assert not await confirm_gone(db, "a", Generation("w", 2))
    assert not await confirm_gone(db, "b", first)
    assert await confirm_gone(db, "a", first)
    assert not await confirm_gone(db, "a", first)
    assert isinstance(await commit_generation(db, move("b", second, "w")), CommittedGeneration)
    assert await counts(db, "w") == (1, 0, 0)


@pytest.mark.parametrize("named", [True, False])
async def test_confirming_does_not_free_what_is_held(named: bool) -> None:
    db = await with_workers(worker("w"))
    first = await created(db, "a", "w")
    claimed = await claim(db, "a", first, "c", 20)
    assert isinstance(claimed, Claimed)
    assert not await confirm_gone(db, "a", first, claimed.slot if named else None)
    await close_live(db, "a", first, "x", 20)
    other = 1 - claimed.slot
    assert not await confirm_gone(db, "a", first, other)
    assert await confirm_gone(db, "a", first, claimed.slot if named else None)


async def test_a_dead_workers_slot_ends_with_it() -> None:
    db = await with_workers(worker("w"), worker("v"))
    first = await created(db, "a", "w")
    await mark_dead(db, "w", 1)
    await commit_generation(db, move("a", first, "v"))
    assert await counts(db, "w") == (0, 0, 0)
    assert (await standing(db, "w")).leaving == []
    assert await commit_generation(db, move("a", Generation("v", 2), "w")) == WorkerNotReady("w")


async def test_a_live_may_be_rebuilt_on_its_own_worker() -> None:
    db = await with_workers(worker("w", 2))
    first = await created(db, "a", "w")
    again = await commit_generation(db, move("a", first, "w"))
    assert again == CommittedGeneration(Generation("w", 2))
    assert await owned_by(db, "w") == [("a", Generation("w", 2))]
    assert await counts(db, "w") == (1, 1, 0)
    assert (await standing(db, "w")).leaving == [("a", first)]


async def test_a_claim_gives_all_that_is_needed() -> None:
    db = await with_workers(worker("w"), worker("v"))
    first = await created(db, "a", "w")
    await release(db, [item("a", first, 0, 4, checkpoint=CHECKPOINT, last_seq=9)])
    await commit_generation(db, move("a", first, "v"))
    assert await claim(db, "a", first, "c", 30) == StaleGeneration(Generation("v", 2))
    claimed = await claim(db, "a", Generation("v", 2), "c", 30)
    assert isinstance(claimed, Claimed)
    assert (claimed.cursor.next_offset, claimed.cursor.last_seq) == (4, 9)
    assert claimed.checkpoint == CHECKPOINT
    view = await get_live(db, "a")
    assert view is not None
    assert view.claim is not None
    assert (view.claim.claim_id, view.claim.epoch, view.claim.at_ms) == ("c", 2, 30)
    assert view.generation_value is not None
    assert view.generation_value.slot == claimed.slot


async def test_a_repeated_claim_changes_nothing() -> None:
    db = await with_workers(worker("w"))
    first = await created(db, "a", "w")
    once = await lost_answer(db, lambda: claim(db, "a", first, "c", 30))
    before = dict(db.store.contents.values)
    assert await claim(db, "a", first, "c", 31) == once
    assert db.store.contents.values == before
    assert await claim(db, "nobody", first, "c", 30) == StaleGeneration(None)


async def test_an_owned_live_without_a_cursor_is_a_broken_store() -> None:
    from ownership import keys

    db = await with_workers(worker("w"))
    first = await created(db, "a", "w")
    await db.run(lambda tr: tr.clear(keys.cursor("a")))
    with pytest.raises(StoreCorrupt, match="cursor"):
        await claim(db, "a", first, "c", 30)
    await db.run(lambda tr: tr.clear_range(keys.slots_of("w"), keys.slots_of("w") + b"\xff"))
    with pytest.raises(StoreCorrupt, match="slot"):
        await commit_generation(db, move("a", first, "w"))


async def test_a_hand_over_writes_the_checkpoint_with_the_generation() -> None:
    db = await with_workers(worker("w"), worker("v"))
    first = await created(db, "a", "w")
    call = lambda: hand_over(db, "a", first, "v", CHECKPOINT, "h", 40)  # noqa: E731
    assert await lost_answer(db, call) == CommittedGeneration(Generation("v", 2))
    claimed = await claim(db, "a", Generation("v", 2), "c", 41)
    assert isinstance(claimed, Claimed)
    assert (claimed.cursor, claimed.checkpoint) == (Cursor(0), CHECKPOINT)
    refused = await hand_over(db, "a", first, "w", CHECKPOINT, "h2", 42)
    assert refused == SourceMoved(Generation("v", 2))


async def test_a_planned_move_uses_its_reserved_slot() -> None:
    db = await with_workers(worker("w"), worker("v", 1))
    first = await created(db, "a", "w")
    before = await signal(db, "v")
    assert await reserve(db, "v", "t", 20, live_id="a") == Reserved(0)
    assert await signal(db, "v") == before + 1
    assert await reserve(db, "v", "t", 21, live_id="a") == Reserved(0)
    assert await reserve(db, "v", "u", 20) == NoFreeSlot("v")
    assert await commit_generation(db, move("a", first, "v")) == NoFreeSlot("v")
    kept = Reservation("t", "a", 0, 20)
    assert (await standing(db, "v")).reserved == [kept]
    assert (await standing(db, "w")).elsewhere == [("v", kept)]
    standby = await claim_standby(db, "a", "v", "t")
    assert isinstance(standby, Standby)
    assert (standby.generation, standby.cursor, standby.checkpoint) == (first, Cursor(0), None)
    assert await counts(db, "v") == (0, 0, 1)
    done = await hand_over(db, "a", first, "v", CHECKPOINT, "h", 40, "t")
    assert done == CommittedGeneration(Generation("v", 2))
    assert await counts(db, "v") == (1, 0, 0)
    assert (await standing(db, "v")).reserved == []
    assert await claim_standby(db, "a", "v", "t") == ReservationGone("t")
    assert await free_reserved(db, "v", "t") is False


async def test_a_reservation_that_is_not_used_is_freed() -> None:
    db = await with_workers(worker("w"), worker("v", 1))
    first = await created(db, "a", "w")
    await lost_answer(db, lambda: reserve(db, "v", "t", 20, live_id="a"))
    assert await counts(db, "v") == (0, 0, 1)
    assert await free_reserved(db, "v", "t") is True
    assert await free_reserved(db, "v", "t") is False
    assert await counts(db, "v") == (0, 0, 0)
    gone = await hand_over(db, "a", first, "v", CHECKPOINT, "h", 40, "t")
    assert gone == ReservationGone("t")
    view = await get_live(db, "a")
    assert view is not None
    assert (view.generation, view.checkpoint) == (first, None)


async def test_refusals_of_a_reservation() -> None:
    db = await with_workers(worker("w"))
    assert await reserve(db, "x", "t", 20) == WorkerNotReady("x")
    await set_draining(db, "w")
    assert await reserve(db, "w", "t", 20) == WorkerNotReady("w")
    with pytest.raises(ValueError, match="token"):
        await reserve(db, "w", "", 20)
    await set_draining(db, "w", draining=False)
    await reserve(db, "w", "t", 20)
    assert await claim_standby(db, "nobody", "w", "t") == LiveNotOpen("nobody")


async def test_a_reservation_and_its_freeing_at_once() -> None:
    """The worker gives the slot back at the moment at which it is used: one of the two happens."""
    for order in (0, 1):
        db = await with_workers(worker("w"), worker("v", 1))
        first = await created(db, "a", "w")
        await reserve(db, "v", "t", 20)
        calls = [
            lambda db=db: free_reserved(db, "v", "t"),
            lambda db=db, g=first: hand_over(db, "a", g, "v", CHECKPOINT, "h", 40, "t"),
        ]
        done = await asyncio.gather(*(call() for call in (calls, calls[::-1])[order]))
        freed, moved = (done, done[::-1])[order]
        assert (freed, type(moved)) in [(True, ReservationGone), (False, CommittedGeneration)]
        assert await counts(db, "v") == ((0, 0, 0) if freed else (1, 0, 0))


async def test_a_close_and_a_move_at_once() -> None:
    for order in (0, 1):
        db = await with_workers(worker("w"), worker("v"))
        first = await created(db, "a", "w")
        calls = [
            lambda db=db, g=first: close_live(db, "a", g, "idle", 40),
            lambda db=db, g=first: commit_generation(db, move("a", g, "v")),
        ]
        done = await asyncio.gather(*(call() for call in (calls, calls[::-1])[order]))
        closed, moved = (done, done[::-1])[order]
        if isinstance(closed, Closed):
            assert moved == LiveNotOpen("a")
            assert await counts(db, "v") == (0, 0, 0)
        else:
            assert closed == StaleGeneration(Generation("v", 2))
            assert moved == CommittedGeneration(Generation("v", 2))
