"""What becomes of records that nobody here owns, where looks at them overlap."""

import asyncio
from random import Random

from controller.counters import Counters
from controller.dead_letters import DeadLetters
from controller.limits import ReadingLimits
from controller.store_calls import StoreCalls
from controller.unowned import Unowned, UnownedBook
from ownership.memory import MemoryDatabase
from ownership.memory_store import MemoryStore
from schemas.dead_letter import DeadLetter
from stream.transport import KafkaRecord, Sent


class Clock:
    def now_ms(self) -> int:
        return 1

    def now_us(self) -> int:
        return 1_000

    def wall_ms(self) -> int:
        return 1_800_000_000_000


class Letters:
    """A `Producer` that keeps the offsets of which it was told."""

    def __init__(self) -> None:
        self.offsets: list[int] = []

    async def send(self, topic: str, *, value: bytes, **_: object) -> Sent:
        self.offsets.append(DeadLetter.decode(value).offset)
        return Sent(0, len(self.offsets))


class SlowLog:
    """A `RangeReader` over one log, that answers when it is told to."""

    def __init__(self, records: list[KafkaRecord]) -> None:
        self.records = records
        self.asked = asyncio.Event()
        self.go_on = asyncio.Event()

    async def read(self, partition: int, from_offset: int, **_: int) -> list[KafkaRecord]:
        self.asked.set()
        await self.go_on.wait()
        return [raw for raw in self.records if raw.offset >= from_offset]


def record(offset: int) -> KafkaRecord:
    return KafkaRecord("dhsched.text", 0, offset, b"anna", b"{}", (), 1_800_000_000_000)


def test_what_a_closed_live_left_behind_comes_before_what_is_in_hand() -> None:
    """Its later record is taken in hand while the earlier ones are read again."""
    left, later = [record(2), record(3), record(4)], record(9)
    letters = Letters()

    async def run() -> None:
        counters, log = Counters(), SlowLog([*left, later])
        db = MemoryDatabase(MemoryStore(), Random(0))
        calls = StoreCalls(Random(1), counters)
        sends = DeadLetters(letters, Clock(), Random(2), counters, 1_000)  # type: ignore[arg-type]
        unowned = Unowned(
            db,
            calls,
            sends,
            log,  # type: ignore[arg-type]
            ReadingLimits(),
            counters,
            1,
            None,
            lambda live_id, offset, detail: None,
        )
        book = UnownedBook(0, [])
        book.note("anna", 2, 4)  # as long as somebody owned it
        revisiting = asyncio.create_task(unowned.revisit(book))
        await log.asked.wait()
        book.waiting.append(later)
        # The work begins first: the record is in hand, and is looked at a turn later.
        working = asyncio.create_task(unowned.work(book))
        log.go_on.set()
        await asyncio.gather(revisiting, working)
        await unowned.revisit(book)
        await unowned.work(book)
        assert book.low is None, "something is not finished"
        await db.close()

    asyncio.run(run())
    assert letters.offsets == [2, 3, 4, 9]
