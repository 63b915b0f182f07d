"""The release: fenced by generation, in order, in batches, once."""

import asyncio

import pytest

from ownership.generations import commit_generation
from ownership.kv import CommitUnknown
from ownership.lives import close_live, get_live
from ownership.memory import Faults, MemoryDatabase
from ownership.model import (
    CommitGeneration,
    CommittedGeneration,
    CursorMoved,
    Generation,
    Released,
    Stale,
)
from ownership.release import release
from ownership.retry import Retry
from schemas.store_values import Checkpoint, Cursor
from tests.unit.ownership.world import CHECKPOINT, created, item, lost_answer, with_workers, worker


async def cursor(db: MemoryDatabase, live_id: str) -> Cursor | None:
    view = await get_live(db, live_id)
    assert view is not None
    return view.cursor


async def test_a_batch_is_one_transaction_and_every_item_is_judged_alone() -> None:
    db = await with_workers(worker("w", 9), worker("v", 9))
    owned = {name: await created(db, name, "w") for name in "abcd"}
    await commit_generation(db, CommitGeneration("b", owned["b"], "v", "m", 20))
    await close_live(db, "c", None, "api", 20)
    before = db.store.version
    items = [
        item("a", owned["a"], 0, 3, checkpoint=CHECKPOINT, last_seq=5),
        item("b", owned["b"], 0, 1),
        item("c", owned["c"], 0, 1),
        item("d", owned["d"], 2, 3),
        item("none", owned["d"], 0, 1),
    ]
    results = await release(db, items)
    assert results == [
        Released(items[0]),
        Stale(items[1], Generation("v", 2)),
        Stale(items[2], None),
        CursorMoved(items[3], Cursor(0)),
        Stale(items[4], None),
    ]
    assert db.store.version == before + 1
    view = await get_live(db, "a")
    assert view is not None
    assert view.cursor == Cursor(3, 5, items[0].release_id)
    assert view.checkpoint == CHECKPOINT
    assert await cursor(db, "b") == await cursor(db, "d") == Cursor(0)


async def test_an_empty_batch() -> None:
    assert await release(await with_workers(), []) == []


async def test_what_is_refused_writes_nothing() -> None:
    db = await with_workers(worker("w"))
    await created(db, "a", "w")
    before = dict(db.store.contents.values)
    await release(db, [item("a", Generation("w", 2), 0, 1, checkpoint=CHECKPOINT)])
    await release(db, [item("a", Generation("w", 1), 1, 2, checkpoint=CHECKPOINT)])
    assert db.store.contents.values == before


async def test_a_lost_answer_is_found_again_and_counts_once() -> None:
    db = await with_workers(worker("w"))
    generation = await created(db, "a", "w")
    asked = item("a", generation, 0, 1, checkpoint=CHECKPOINT)
    assert await lost_answer(db, lambda: release(db, [asked])) == [Released(asked)]
    assert await release(db, [asked]) == [Released(asked)]
    # Another intent for the same place is refused.
    other = item("a", generation, 0, 1, "another")
    assert await release(db, [other]) == [CursorMoved(other, Cursor(1, None, asked.release_id))]


async def test_further_segments_of_one_record_keep_the_cursor() -> None:
    db = await with_workers(worker("w"))
    generation = await created(db, "a", "w")
    await release(db, [item("a", generation, 0, 1, "first", last_seq=4)])
    later = Checkpoint(samples_emitted=99)
    second = item("a", generation, 1, 1, "second", checkpoint=later)
    assert await release(db, [second]) == [Released(second)]
    view = await get_live(db, "a")
    assert view is not None
    assert (view.cursor, view.checkpoint) == (Cursor(1, 4, "second"), later)


async def test_an_interrupt_records_what_it_skips() -> None:
    db = await with_workers(worker("w"))
    generation = await created(db, "a", "w")
    await release(db, [item("a", generation, 0, 8, "i", skipped=(0, 7))])
    assert await cursor(db, "a") == Cursor(8, None, "i", 0, 7)
    await release(db, [item("a", generation, 8, 9, "next")])
    assert await cursor(db, "a") == Cursor(9, None, "next")


async def test_mistakes_of_the_caller_are_no_refusals() -> None:
    db = await with_workers(worker("w"))
    generation = await created(db, "a", "w")
    with pytest.raises(ValueError, match="one item per live"):
        await release(db, [item("a", generation, 0, 1), item("a", generation, 1, 2)])
    with pytest.raises(ValueError, match="back"):
        await release(db, [item("a", generation, 2, 1)])
    from dataclasses import replace

    with pytest.raises(ValueError, match="release_id"):
        await release(db, [replace(item("a", generation, 0, 1), release_id="")])


async def test_a_release_and_a_move_at_once_are_in_one_order() -> None:
    """Either the release is before the generation, and the claim has it, or it is refused."""
    for order in (0, 1):
        db = await with_workers(worker("w"), worker("v"))
        first = await created(db, "a", "w")
        asked = item("a", first, 0, 1)
        calls = [
            lambda db=db, asked=asked: release(db, [asked]),
            lambda db=db, g=first: commit_generation(db, CommitGeneration("a", g, "v", "m", 20)),
        ]
        done = await asyncio.gather(*(call() for call in (calls, calls[::-1])[order]))
        released, moved = (done, done[::-1])[order]
        assert moved == CommittedGeneration(Generation("v", 2))
        after = await cursor(db, "a")
        if released == [Released(asked)]:
            assert after == Cursor(1, None, asked.release_id)
        else:
            assert released == [Stale(asked, Generation("v", 2))]
            assert after == Cursor(0)


async def test_a_late_commit_of_an_old_owner_never_lands() -> None:
    """A release is on its way when the live moves; it arrives afterwards."""
    db = await with_workers(worker("w"), worker("v"))
    first = await created(db, "a", "w")
    slow = MemoryDatabase(
        db.store, faults=Faults(unknown_late=1, late_s=(0.05, 0.05)), retry=Retry(attempts_max=1)
    )
    with pytest.raises(CommitUnknown):
        await release(slow, [item("a", first, 0, 1)])
    await commit_generation(db, CommitGeneration("a", first, "v", "m", 20))
    await slow.close()
    assert await cursor(db, "a") == Cursor(0)


async def test_a_late_commit_before_the_move_is_seen_by_it() -> None:
    db = await with_workers(worker("w"), worker("v"))
    first = await created(db, "a", "w")
    slow = MemoryDatabase(
        db.store, faults=Faults(unknown_late=1, late_s=(0.01, 0.01)), retry=Retry(attempts_max=1)
    )
    asked = item("a", first, 0, 1)
    with pytest.raises(CommitUnknown):
        await release(slow, [asked])
    await slow.close()
    assert await release(db, [asked]) == [Released(asked)]
    await commit_generation(db, CommitGeneration("a", first, "v", "m", 20))
    # Asked again after the move: it was released, by the owner of that time.
    assert await release(db, [asked]) == [Released(asked)]
