"""What stands around a custodian in unit tests: a log, a place for dead letters, a book."""

import asyncio
from collections.abc import Coroutine
from random import Random
from typing import Any

from controller.counters import Counters
from controller.dead_letters import DeadLetters
from controller.limits import ReadingLimits
from controller.store_calls import StoreCalls
from controller.unowned import Unowned, UnownedBook
from ownership.memory import MemoryDatabase
from ownership.memory_store import MemoryStore
from schemas.dead_letter import DeadLetter
from stream.transport import KafkaRecord, LogRecord, OffsetOutOfLog, Sent
from tests.unit.controller.clock import Clock


class Letters:
    """A `Producer` that keeps the offsets of which it was told."""

    def __init__(self) -> None:
        self.offsets: list[int] = []

    async def send(self, topic: str, *, value: bytes, **_: object) -> Sent:
        self.offsets.append(DeadLetter.decode(value).offset)
        return Sent(0, len(self.offsets))


class SlowLog:
    """A `RangeReader` over one log, that answers when it is told to."""

    def __init__(self, *records: KafkaRecord) -> None:
        self.records = records
        self.asked = asyncio.Event()
        self.go_on = asyncio.Event()

    async def read(self, partition: int, from_offset: int, **_: int) -> list[KafkaRecord]:
        self.asked.set()
        await self.go_on.wait()
        log_end = self.records[-1].offset + 1
        if from_offset < self.records[0].offset:
            raise OffsetOutOfLog(partition, from_offset, self.records[0].offset, log_end)
        return [raw for raw in self.records if raw.offset >= from_offset]

    async def log_range(self, partition: int) -> tuple[int, int]:
        return self.records[0].offset, self.records[-1].offset + 1


def record(offset: int) -> KafkaRecord:
    return LogRecord("dhsched.text", 0, offset, b"anna", b"{}", (), 1_800_000_000_000)


class Desk:
    """One custodian's work on unowned records, over a store that others may share."""

    def __init__(self, db: MemoryDatabase, log: SlowLog) -> None:
        counters = Counters()
        self.db = db
        self.letters = Letters()
        self.book = UnownedBook(0, [])
        self.unowned = Unowned(
            db,
            StoreCalls(Random(1), counters),
            DeadLetters(self.letters, Clock(), Random(2), counters, 1_000),  # type: ignore[arg-type]
            log,  # type: ignore[arg-type]
            ReadingLimits(),
            counters,
            1,
            None,
            lambda live_id, offset, detail: None,
        )

    def work(self) -> Coroutine[Any, Any, None]:
        return self.unowned.work(self.book)

    def revisit(self) -> Coroutine[Any, Any, None]:
        return self.unowned.revisit(self.book)

    def adopt(self) -> Coroutine[Any, Any, None]:
        return self.unowned.adopt(self.book)


def store() -> MemoryDatabase:
    return MemoryDatabase(MemoryStore(), Random(0))
