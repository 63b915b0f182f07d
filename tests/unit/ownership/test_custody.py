"""Custody: disposals, floors, watermarks."""

import asyncio

import pytest

from ownership import custody, keys
from ownership.custody import (
    dispose_unowned,
    pending_disposals,
    raise_past_deleted,
    raise_watermark,
    watermark,
)
from ownership.lives import close_live, get_live
from ownership.model import AlreadyDisposed, BelongsToOpenLive, Disposed, Generation, Released
from ownership.release import release
from schemas.store_values import Cursor
from tests.unit.ownership.world import (
    created,
    fresh,
    item,
    lost_answer,
    with_workers,
    worker,
)

ALL = range(100)
"""Every dead letter is in the log."""


async def test_a_record_of_an_unknown_live_is_taken_from_every_later_one() -> None:
    db = await with_workers(worker("w"))
    assert await dispose_unowned(db, "a", 0, 5) == Disposed()
    assert await pending_disposals(db, 0) == [(5, "a")]
    await created(db, "a", "w")
    view = await get_live(db, "a")
    assert view is not None
    assert view.cursor == Cursor(6)


async def test_a_record_of_an_open_live_is_its_owners() -> None:
    db = await with_workers(worker("w"))
    generation = await created(db, "a", "w")
    assert await dispose_unowned(db, "a", 0, 5) == BelongsToOpenLive(generation)
    assert await pending_disposals(db, 0) == []


async def test_a_disposal_is_repeated_until_its_dead_letter_is_known_to_be_there() -> None:
    db = await with_workers(worker("w"))
    assert await lost_answer(db, lambda: dispose_unowned(db, "a", 0, 5)) == Disposed()
    assert await dispose_unowned(db, "a", 0, 5) == Disposed()
    # Even when the live was created in between: the record is not the live's.
    await created(db, "a", "w")
    assert await dispose_unowned(db, "a", 0, 5) == Disposed()
    await raise_watermark(db, 0, 6, ALL)
    assert await pending_disposals(db, 0) == []
    assert await dispose_unowned(db, "a", 0, 5) == BelongsToOpenLive(Generation("w", 1))


async def test_what_was_released_is_not_disposed_of() -> None:
    db = await with_workers(worker("w"))
    generation = await created(db, "a", "w")
    await release(db, [item("a", generation, 0, 8, last_seq=3)])
    await close_live(db, "a", None, "api", 20)
    assert await dispose_unowned(db, "a", 0, 7) == AlreadyDisposed(8)
    assert await dispose_unowned(db, "a", 0, 9) == Disposed()
    view = await get_live(db, "a")
    assert view is not None
    assert view.cursor == Cursor(10, 3)


async def test_a_creation_and_a_disposal_at_once_agree() -> None:
    for order in (0, 1):
        db = await with_workers(worker("w"))
        calls = [
            lambda db=db: created(db, "a", "w"),
            lambda db=db: dispose_unowned(db, "a", 0, 5),
        ]
        done = await asyncio.gather(*(call() for call in (calls, calls[::-1])[order]))
        disposed = (done, done[::-1])[order][1]
        view = await get_live(db, "a")
        assert view is not None
        floor = view.cursor.next_offset if view.cursor else -1
        assert (disposed, floor) in [(Disposed(), 6), (BelongsToOpenLive(Generation("w", 1)), 0)]


async def test_a_release_after_a_disposal_begins_above_it() -> None:
    db = await with_workers(worker("w"))
    await dispose_unowned(db, "a", 0, 5)
    generation = await created(db, "a", "w")
    (low,) = await release(db, [item("a", generation, 5, 6)])
    assert not isinstance(low, Released)
    (high,) = await release(db, [item("a", generation, 6, 7)])
    assert isinstance(high, Released)


async def test_a_watermark_only_grows() -> None:
    db = fresh()
    assert await watermark(db, 3) == 0
    assert await raise_watermark(db, 3, 10, ALL) == 10
    assert await raise_watermark(db, 3, 7, ALL) == 10
    assert await lost_answer(db, lambda: raise_watermark(db, 3, 12, ALL)) == 12
    assert (await watermark(db, 3), await watermark(db, 4)) == (12, 0)


async def test_a_watermark_stops_at_a_dead_letter_that_nobody_vouches_for() -> None:
    """A second custodian sees the cursor that the first one moved, and not its dead letter."""
    db = await with_workers(worker("w"))
    for offset in (2, 4, 6):
        assert await dispose_unowned(db, "a", 0, offset) == Disposed()
    assert await raise_watermark(db, 0, 9, {2, 6}) == 4
    assert await pending_disposals(db, 0) == [(4, "a"), (6, "a")]
    # The first one, whose answer was lost, still hears that the record is its to tell of.
    assert await dispose_unowned(db, "a", 0, 4) == Disposed()
    assert await raise_watermark(db, 0, 9, ()) == 4
    assert await raise_past_deleted(db, 0, 9, (), 5, ()) == 4
    assert await raise_watermark(db, 0, 9, {4, 6}) == 9
    assert await pending_disposals(db, 0) == []


async def test_ids_that_never_lived_leave_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(custody, "FINISHED_AT_ONCE", 4)
    db = await with_workers(worker("w"))
    before = set(db.store.contents.values)
    for offset in range(10):
        assert await dispose_unowned(db, f"spam{offset}", 0, offset) == Disposed()
    assert await dispose_unowned(db, "spam3", 0, 12) == Disposed()
    assert await raise_watermark(db, 0, 11, ALL) == 11
    left = set(db.store.contents.values) - before
    assert left == {keys.watermark(0), keys.disposing(0, 12), keys.cursor("spam3")}
    assert await pending_disposals(db, 0) == [(12, "spam3")]
    # Below the watermark the floor is the watermark.
    assert await dispose_unowned(db, "spam5", 0, 5) == AlreadyDisposed(11)
    await created(db, "spam5", "w")
    view = await get_live(db, "spam5")
    assert view is not None
    assert view.cursor == Cursor(11)
    assert await raise_watermark(db, 0, 13, ALL) == 13
    assert set(db.store.contents.values) >= before
    assert keys.cursor("spam3") not in db.store.contents.values


async def test_the_floor_of_a_live_that_was_closed_stays() -> None:
    db = await with_workers(worker("w"))
    await created(db, "a", "w")
    await close_live(db, "a", None, "api", 20)
    await dispose_unowned(db, "a", 0, 5)
    await raise_watermark(db, 0, 6, ALL)
    assert keys.cursor("a") in db.store.contents.values
    assert keys.gen("a") in db.store.contents.values


async def test_a_watermark_in_steps_stops_below_the_unfinished(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A custodian that dies between two steps has raised it only past what was finished."""
    monkeypatch.setattr(custody, "FINISHED_AT_ONCE", 2)
    db = fresh()
    for offset in (3, 5, 8):
        await dispose_unowned(db, f"x{offset}", 0, offset)
    assert await db.run(lambda tr: custody._raise(tr, 0, 20, ALL)) == (6, False)
    assert await watermark(db, 0) == 6
    assert await pending_disposals(db, 0) == [(8, "x8")]


async def test_the_watermark_passes_what_was_deleted_only_when_every_open_live_was_told() -> None:
    db = await with_workers(worker("w", capacity=3))
    behind = await created(db, "behind", "w")
    await created(db, "told", "w")
    await created(db, "closed", "w")
    await close_live(db, "closed", None, "asked", 20)
    assert await raise_past_deleted(db, 0, 9, ALL, 5, {"told"}) == ["behind"]
    assert await watermark(db, 0) == 0
    await release(db, [item("behind", behind, 0, 5)])
    assert await raise_past_deleted(db, 0, 9, ALL, 5, {"told"}) == 9
    assert await watermark(db, 0) == 9
    assert await raise_past_deleted(db, 0, 4, ALL, 5, {"told"}) == 9


async def test_a_live_opened_while_the_watermark_passes_is_told_or_begins_behind_it() -> None:
    for order in (0, 1):
        db = await with_workers(worker("w"))
        calls = [
            lambda db=db: created(db, "new", "w"),
            lambda db=db: raise_past_deleted(db, 0, 9, ALL, 5, ()),
        ]
        answers = await asyncio.gather(*(calls[(order + at) % 2]() for at in range(2)))
        view = await get_live(db, "new")
        assert view is not None
        assert view.cursor is not None
        assert (answers[1 - order], view.cursor.next_offset) in ((9, 9), (["new"], 0))
