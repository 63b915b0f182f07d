"""Where custody of a partition begins, while the group's reader believes something else."""

import asyncio
from random import Random

from controller.counters import Counters
from controller.custody import Custody
from controller.limits import ReadingLimits
from controller.partition_feed import PartitionFeed, Source
from controller.records import Decoder
from controller.store_calls import StoreCalls
from controller.tasks import Tasks
from stream.transport import Assignment, KafkaRecord, OffsetOutOfLog
from tests.unit.controller.custodian import Desk, SlowLog, record, store

LOG_START = 6


class Reader:
    """A `GroupReader` of one partition whose log begins at 6; the group's own place is below."""

    def __init__(self) -> None:
        self.assignment = Assignment(1, frozenset({0}))
        self.position = 1
        self.polls = 0
        self.seeks: list[int] = []
        self.refused = asyncio.Event()
        self.given = asyncio.Event()

    async def poll(self, **_: int) -> list[KafkaRecord]:
        await asyncio.sleep(0)
        self.polls += 1
        if self.polls == 1:
            return []
        if self.position < LOG_START:
            self.refused.set()
            raise OffsetOutOfLog(0, self.position, LOG_START, LOG_START + 1)
        if self.position > LOG_START:
            self.given.set()
            return []
        self.position = LOG_START + 1
        return [record(LOG_START)]

    def seek(self, partition: int, offset: int) -> None:
        self.seeks.append(offset)
        self.position = offset


async def test_what_was_deleted_while_custody_began_is_told_of() -> None:
    """The log is found to begin at 6 before the store says that all is finished below 0 only."""
    desk, reader, tasks = Desk(store(), SlowLog(record(LOG_START))), Reader(), Tasks()
    counters, known = Counters(), asyncio.Event()
    feed = PartitionFeed(0, Decoder(), counters)

    async def finished_below(partition: int) -> int:
        await known.wait()
        return 0

    custody = Custody(
        reader,  # type: ignore[arg-type]
        desk.db,
        StoreCalls(Random(3), counters),
        desk.unowned,
        tasks,
        ReadingLimits(back_off_ms_min=1, back_off_ms_max=2),
        Random(4),
        counters,
        feed_of=lambda partition: feed,
        lost=lambda feed: None,
        moved=lambda feed: None,
        finished_below=finished_below,
    )
    polling = tasks.spawn(custody.run(), "custody")
    await reader.refused.wait()
    known.set()
    await reader.given.wait()
    assert feed.source is Source.CUSTODY
    assert reader.seeks == [0, LOG_START]
    assert desk.letters.offsets[0] == LOG_START - 1, "offsets 0 to 5 were passed over in silence"
    polling.cancel()
    await tasks.close()
