"""What becomes of records that nobody here owns, where looks at them overlap."""

import asyncio

from ownership.custody import dispose_unowned, raise_watermark
from ownership.model import Disposed
from tests.unit.controller.custodian import Desk, SlowLog, record, store


async def test_what_a_closed_live_left_behind_comes_before_what_is_in_hand() -> None:
    """Its later record is taken in hand while the earlier ones are read again."""
    log = SlowLog(record(2), record(3), record(4), record(9))
    desk = Desk(store(), log)
    desk.book.note("anna", 2, 4)  # as long as somebody owned it
    revisiting = asyncio.create_task(desk.revisit())
    await log.asked.wait()
    desk.book.waiting.append(record(9))
    # The work begins first: the record is in hand, and is looked at a turn later.
    working = asyncio.create_task(desk.work())
    log.go_on.set()
    await asyncio.gather(revisiting, working)
    await desk.revisit()
    await desk.work()
    assert desk.book.low is None, "something is not finished"
    assert desk.letters.offsets == [2, 3, 4, 9]


async def test_a_disposal_of_a_custodian_that_died_is_told_by_the_next_one() -> None:
    """It was begun when this one's custody had begun already: the cursor alone tells nothing."""
    db, log = store(), SlowLog(record(2), record(4))
    log.go_on.set()
    desk = Desk(db, log)
    for offset in (2, 4):
        assert isinstance(await dispose_unowned(db, "anna", 0, offset), Disposed)
    assert await raise_watermark(db, 0, 5, desk.book.lettered) == 2
    await desk.adopt()
    assert desk.book.low == 2
    await desk.work()
    assert desk.letters.offsets == [2, 4]
    assert await raise_watermark(db, 0, 5, desk.book.lettered) == 5


async def test_a_disposal_whose_record_was_deleted_since_is_told_by_its_offset() -> None:
    db, log = store(), SlowLog(record(9))
    log.go_on.set()
    desk = Desk(db, log)
    await dispose_unowned(db, "anna", 0, 4)
    await desk.adopt()
    assert desk.letters.offsets == [8, 4], "up to 8 all is gone, and 4 was to be told of"
    assert await raise_watermark(db, 0, 9, desk.book.lettered) == 9
