"""Lives that records open: races with custodians, creations and closes; and no room anywhere."""

import asyncio
import itertools
from typing import Any

import pytest

from ownership.auto_create import open_for_record
from ownership.custody import dispose_unowned, pending_disposals, raise_watermark
from ownership.generations import commit_generation, owned_by
from ownership.kv import Database
from ownership.lives import close_live, create_live, get_live, lives_of_partition
from ownership.model import (
    AlreadyDisposed,
    BelongsToOpenLive,
    CommitGeneration,
    CommittedGeneration,
    Created,
    Disposed,
    Generation,
    LivedBefore,
    LiveExists,
    OpenedForRecord,
    OpenForRecord,
)
from ownership.recovery import list_orphans
from ownership.workers import mark_dead, set_draining
from schemas.options import LiveOptions
from schemas.store_values import Cursor
from tests.unit.ownership.world import counts, create, created, fresh, lost_answer, with_workers
from tests.unit.ownership.world import worker as ready

_numbers = itertools.count()


def asked(live_id: str = "a", offset: int = 5, *targets: str, **more: Any) -> OpenForRecord:
    """A request with ids of its own, as every custodian mints them."""
    number = next(_numbers)
    given = {
        "options": LiveOptions(look="studio"),
        "partition": 0,
        "commit_id": f"commit {number}",
        "create_id": f"create {number}",
        "now_ms": 10,
        **more,
    }
    return OpenForRecord(live_id=live_id, offset=offset, targets=targets, **given)


async def test_a_record_opens_a_live_where_there_is_room() -> None:
    db = await with_workers(ready("full", 1), ready("roomy", 1))
    await created(db, "other", "full")
    assert await open_for_record(db, asked("a", 5, "full", "roomy")) == OpenedForRecord(
        Generation("roomy", 1)
    )
    view = await get_live(db, "a")
    assert view is not None
    assert view.open
    assert view.live.options == LiveOptions(look="studio")
    assert view.cursor == Cursor(0)
    assert await owned_by(db, "roomy") == [("a", Generation("roomy", 1))]
    assert await counts(db, "roomy") == (1, 0, 0)
    assert await lives_of_partition(db, 0) == ["a", "other"]


async def test_an_answer_that_was_lost_opens_one_live() -> None:
    db = await with_workers(ready("w", 2))
    request = asked("a", 5, "w")
    opened = OpenedForRecord(Generation("w", 1))
    assert await lost_answer(db, lambda: open_for_record(db, request)) == opened
    assert await open_for_record(db, request) == opened
    assert await counts(db, "w") == (1, 0, 0)


async def test_without_room_it_waits_for_dispatch_guarded_by_nobody() -> None:
    db = await with_workers(ready("full", 1), ready("drains", 1), ready("dead", 1))
    await created(db, "other", "full")
    await set_draining(db, "drains")
    await mark_dead(db, "dead", 1)
    request = asked("a", 5, "full", "drains", "dead", "never-was")
    assert await open_for_record(db, request) == OpenedForRecord(None)
    (orphan,) = await list_orphans(db, None, 10)
    assert (orphan.live_id, orphan.generation) == ("a", None)
    assert await dispose_unowned(db, "a", 0, 5) == BelongsToOpenLive(None)
    await set_draining(db, "drains", draining=False)
    placed = await commit_generation(db, CommitGeneration("a", None, "drains", "place", 20))
    assert placed == CommittedGeneration(Generation("drains", 1))
    assert await list_orphans(db, None, 10) == []


async def test_an_orphan_that_was_closed_waits_no_more() -> None:
    db = fresh()
    assert await open_for_record(db, asked()) == OpenedForRecord(None)
    await close_live(db, "a", None, "api", 20)
    assert await list_orphans(db, None, 10) == []
    assert await open_for_record(db, asked()) == LivedBefore("a")


async def test_a_closed_live_is_not_brought_back() -> None:
    db = await with_workers(ready("w", 2))
    await created(db, "a", "w")
    await close_live(db, "a", None, "api", 20)
    assert await open_for_record(db, asked("a", 5, "w")) == LivedBefore("a")
    assert await dispose_unowned(db, "a", 0, 5) == Disposed()


async def test_what_was_disposed_of_is_not_spoken() -> None:
    """The policy was changed: what the stricter one has begun stays as it is."""
    db = await with_workers(ready("w", 2))
    assert await dispose_unowned(db, "a", 0, 5) == Disposed()
    assert await open_for_record(db, asked("a", 5, "w")) == Disposed()
    assert await open_for_record(db, asked("a", 4, "w")) == AlreadyDisposed(6)
    assert await open_for_record(db, asked("a", 6, "w")) == OpenedForRecord(Generation("w", 1))
    view = await get_live(db, "a")
    assert view is not None
    assert view.cursor == Cursor(6)
    assert await pending_disposals(db, 0) == [(5, "a")]


async def test_what_lies_below_the_watermark_opens_nothing() -> None:
    db = await with_workers(ready("w", 2))
    await raise_watermark(db, 0, 10, range(10))
    assert await open_for_record(db, asked("a", 9, "w")) == AlreadyDisposed(10)
    assert await get_live(db, "a") is None


async def test_two_custodians_open_one_live_for_both_their_records() -> None:
    """One of them is a zombie far ahead of the other; both see the same id."""
    for first in (0, 1):
        db = await with_workers(ready("one", 4), ready("two", 4))
        requests = [asked("a", 5, "one", "two"), asked("a", 9, "two", "one")]
        done = await asyncio.gather(
            *(open_for_record(db, request) for request in (requests, requests[::-1])[first])
        )
        (opened,) = [one for one in done if isinstance(one, OpenedForRecord)]
        assert opened.generation is not None
        assert [one for one in done if one is not opened] == [BelongsToOpenLive(opened.generation)]
        view = await get_live(db, "a")
        assert view is not None
        assert view.cursor == Cursor(0), "the earlier record is the live's, too"
        held = [(await counts(db, name))[0] for name in ("one", "two")]
        assert sorted(held) == [0, 1]


@pytest.mark.parametrize("first", [0, 1])
async def test_a_custodian_and_a_dispatcher_at_once_agree(first: int) -> None:
    db = await with_workers(ready("one", 4), ready("two", 4))

    async def record(db: Database = db) -> object:
        return await open_for_record(db, asked("a", 5, "one"))

    async def dispatch(db: Database = db) -> object:
        return await create_live(db, create("a", "two"))

    calls = [record, dispatch]
    done = await asyncio.gather(*(call() for call in (calls, calls[::-1])[first]))
    by_record, by_dispatch = (done, done[::-1])[first]
    assert (by_record, by_dispatch) in [
        (OpenedForRecord(Generation("one", 1)), LiveExists(Generation("one", 1))),
        (BelongsToOpenLive(Generation("two", 1)), Created(Generation("two", 1))),
    ]
    held = [(await counts(db, name))[0] for name in ("one", "two")]
    assert sum(held) == 1


async def test_a_strict_custodian_and_a_generous_one_agree() -> None:
    """Two workers with different policies: the record is spoken or in the dead-letter topic."""
    for first in (0, 1):
        db = await with_workers(ready("w", 4))
        calls = [
            lambda db=db: open_for_record(db, asked("a", 5, "w")),
            lambda db=db: dispose_unowned(db, "a", 0, 5),
        ]
        done = await asyncio.gather(*(call() for call in (calls, calls[::-1])[first]))
        generous, strict = (done, done[::-1])[first]
        assert (generous, strict) in [
            (OpenedForRecord(Generation("w", 1)), BelongsToOpenLive(Generation("w", 1))),
            (Disposed(), Disposed()),
        ]


async def test_ids_are_needed() -> None:
    with pytest.raises(ValueError, match="must not be empty"):
        await open_for_record(fresh(), asked(create_id=""))
