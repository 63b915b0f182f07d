"""Records in this worker's custody whose live is not owned here.

What becomes of each, decided by the store in the transaction that looks at the live:

- nobody will ever release it (the live was never created, or is closed): `dispose_unowned`, then
  its dead letter, and only then it counts as finished;
- the live is open and somebody else's, or waits for an owner: it is theirs. Until their cursor has
  passed it, it keeps the partition's watermark back;
- it lies below the live's cursor: finished before;
- it lies in a partition that is not its key's: a dead letter, whatever the live's state;
- the id never lived and the policy is `create`: its text opens the live (`auto_create`).

Of one live the records are looked at in order, because a disposal moves the floor past everything
before it. Lives known to be open elsewhere are not asked about record by record; `revisit` looks
where their cursors are, and at what they left behind when they were closed.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import assert_never

import structlog

from controller.auto_create import AutoCreate
from controller.counters import Counters
from controller.dead_letters import DeadLetters
from controller.limits import ReadingLimits
from controller.store_calls import StoreCalls
from ownership.custody import dispose_unowned, pending_disposals
from ownership.kv import Database, Reads
from ownership.lives import get_live, view_live
from ownership.model import (
    AlreadyDisposed,
    BelongsToOpenLive,
    Disposed,
    LivedBefore,
    LiveView,
    OpenedForRecord,
)
from schemas.bad_record import BadRecord, DeadLetterReason
from schemas.live_id import decode_key
from schemas.partition import partition_of
from stream.transport import BrokerAway, KafkaRecord, OffsetOutOfLog, RangeReader

_log = structlog.get_logger(__name__)
_offset_of: Callable[[KafkaRecord], int] = attrgetter("offset")

LIVES_PER_LOOK = 256
READ_LEFT_TRIES = 8
READ_LEFT_MS = 500


@dataclass(slots=True)
class _Elsewhere:
    """Known records of a live that others own: none below `first` is unfinished, none above
    `last` is known."""

    first: int
    last: int


class UnownedBook:
    """One partition's unowned records, from when its custody began."""

    def __init__(self, partition: int, begun: Iterable[tuple[int, str]]) -> None:
        self.partition = partition
        self.begun = dict(begun)
        """Offsets, and their lives, whose disposal an earlier custodian began: their dead letters
        may be missing."""
        self.lettered: set[int] = set()
        """Offsets whose dead letters are in the log, and that the watermark has not passed yet."""
        self.deleted_below = 0
        """Retention deleted records below it before this custodian saw them."""
        self.told: set[str] = set()
        """Lives that were told so."""
        self.waiting: deque[KafkaRecord] = deque()
        """In offset order."""
        self.elsewhere: dict[str, _Elsewhere] = {}
        self.in_hand: int | None = None
        """The lowest offset that is being looked at."""
        self.keys_in_hand: set[bytes | None] = set()
        """The keys of which records are being looked at, or are about to be."""

    def take(
        self,
        records: Sequence[KafkaRecord],
        route: Callable[[Sequence[KafkaRecord]], list[KafkaRecord]],
    ) -> bool:
        """What a poll brought: the records whose disposal was begun are this book's, whoever owns
        the live by now, and so are those that `route` leaves; true when it left any. They go in
        together, so that none of them hides one before it from `low`."""
        if not self.begun:
            others = route(records)
            self.waiting.extend(others)
            return bool(others)
        begun = [raw for raw in records if raw.offset in self.begun]
        others = route([raw for raw in records if raw.offset not in self.begun])
        self.waiting.extend(sorted((*begun, *others), key=_offset_of))
        return bool(others)

    def note(self, live_id: str, first: int, last: int) -> None:
        """Records of this live in [first, last] are somebody else's to finish."""
        known = self.elsewhere.get(live_id)
        if known is None:
            self.elsewhere[live_id] = _Elsewhere(first, last)
        else:
            known.first = min(known.first, first)
            known.last = max(known.last, last)

    @property
    def low(self) -> int | None:
        """Everything unowned below it is finished; None: everything that was read."""
        lows = [one.first for one in self.elsewhere.values()]
        if self.in_hand is not None:
            lows.append(self.in_hand)
        if self.waiting:
            lows.append(self.waiting[0].offset)
        return min(lows, default=None)

    def put_back(self, records: Sequence[KafkaRecord]) -> None:
        """Records that were read again: in their place among those that wait."""
        merged = sorted((*records, *self.waiting), key=_offset_of)
        self.waiting = deque(merged)


class Unowned:
    """Works on the books."""

    def __init__(
        self,
        db: Database,
        calls: StoreCalls,
        letters: DeadLetters,
        reader: RangeReader,
        limits: ReadingLimits,
        counters: Counters,
        partition_count: int,
        auto_create: AutoCreate | None,
        lost: Callable[[str, int, str], None],
    ) -> None:
        """`lost(live_id, offset, detail)` tells an open live that records of it were deleted."""
        self._lost = lost
        self._partition_count = partition_count
        self._auto_create = auto_create
        self._db = db
        self._calls = calls
        self._letters = letters
        self._reader = reader
        self._limits = limits
        self._counters = counters

    async def work(self, book: UnownedBook) -> None:
        """Look at everything that waits in this book."""
        while book.waiting:
            batch = [
                book.waiting.popleft()
                for _ in range(min(len(book.waiting), self._limits.unowned_at_once))
            ]
            book.in_hand = batch[0].offset
            by_key: dict[bytes | None, list[KafkaRecord]] = {}
            for raw in batch:
                by_key.setdefault(raw.key, []).append(raw)
            book.keys_in_hand.update(by_key)
            await asyncio.gather(*(self._work_key(book, mine) for mine in by_key.values()))
            book.in_hand = None

    async def _work_key(self, book: UnownedBook, records: list[KafkaRecord]) -> None:
        """The records of one key, which is in hand until they are dealt with."""
        await self._look_at(book, records)
        book.keys_in_hand.discard(records[0].key)

    async def _look_at(self, book: UnownedBook, records: list[KafkaRecord]) -> None:
        """The records of one key, in order; their dead letters go together at the end."""
        letters: list[KafkaRecord] = []
        try:
            live_id = decode_key(records[0].key)
        except BadRecord as error:
            await self._send(records, error.reason, error.detail)
            return
        belongs = partition_of(live_id.encode(), self._partition_count)
        if belongs != book.partition:
            # No owner reads here, and the offset would mean nothing to the live's cursor.
            await self._send(
                records,
                DeadLetterReason.WRONG_PARTITION,
                f"this key belongs to partition {belongs}: produce with the Java client's default "
                "partitioner (murmur2_random in librdkafka)",
            )
            return
        for raw in records:
            if live_id in book.elsewhere and raw.offset not in book.begun:
                book.note(live_id, raw.offset, raw.offset)
                continue
            outcome = await self._take(live_id, raw)
            match outcome:
                case Disposed():
                    letters.append(raw)
                case BelongsToOpenLive() | OpenedForRecord():
                    book.note(live_id, raw.offset, raw.offset)
                case AlreadyDisposed():
                    pass
                case _:
                    assert_never(outcome)
        if letters:
            await self._send_disposed(book, live_id, letters)

    async def _take(
        self, live_id: str, raw: KafkaRecord
    ) -> Disposed | BelongsToOpenLive | OpenedForRecord | AlreadyDisposed:
        """What the store makes of one record: the policy's live, or what a disposal answers."""
        auto_create = self._auto_create
        if auto_create is not None and auto_create.wants(raw):
            opened = await auto_create.open(live_id, raw)
            if not isinstance(opened, LivedBefore):
                return opened
        return await self._calls.insist(
            lambda: dispose_unowned(self._db, live_id, raw.partition, raw.offset), "dispose"
        )

    async def _send_disposed(
        self, book: UnownedBook, live_id: str, records: list[KafkaRecord]
    ) -> None:
        view = await self._calls.insist(lambda: get_live(self._db, live_id), "look")
        if view is None:
            reason, detail = DeadLetterReason.UNKNOWN_LIVE, "no live of this id was ever created"
        elif view.open:
            reason, detail = DeadLetterReason.LIVE_CLOSED, "it came before this live was created"
        else:
            reason = DeadLetterReason.LIVE_CLOSED
            detail = f"the live was closed: {view.live.close_reason}"
        await self._send(records, reason, detail)
        for raw in records:
            book.begun.pop(raw.offset, None)
            book.lettered.add(raw.offset)

    async def _send(
        self, records: list[KafkaRecord], reason: DeadLetterReason, detail: str
    ) -> None:
        await asyncio.gather(
            *(
                self._letters.send(raw.partition, raw.offset, reason, detail, raw.key, raw.value)
                for raw in records
            )
        )

    # -- what retention deleted before it was seen

    async def tell_deleted(self, book: UnownedBook, lost_from: int, log_start: int) -> None:
        """Say that [lost_from, log_start) is gone. Before the watermark passes it, open lives are
        told by name (`tell_lives`); whoever else had records there is not known any more."""
        gone = [(offset, live_id) for offset, live_id in book.begun.items() if offset < log_start]
        detail = "it was deleted before its dead letter was in the log"
        await asyncio.gather(
            *(self._tell(book, offset, live_id, detail) for offset, live_id in gone),
            self._tell(
                book,
                log_start - 1,
                None,
                f"offsets {lost_from} to {log_start - 1} were deleted before their custodian saw "
                "them; what was there of lives without an owner is lost",
            ),
        )
        for offset, _ in gone:
            book.begun.pop(offset, None)
            book.lettered.add(offset)
        book.deleted_below = max(book.deleted_below, log_start)

    async def tell_lives(self, book: UnownedBook, live_ids: Sequence[str]) -> None:
        """Tell these lives that records of theirs may have been among the deleted ones."""
        last = book.deleted_below - 1
        detail = f"records up to offset {last} were deleted before anybody read them"
        await asyncio.gather(*(self._tell(book, last, one, detail) for one in live_ids))
        for live_id in live_ids:
            self._lost(live_id, last, detail)
        book.told.update(live_ids)

    async def _tell(self, book: UnownedBook, offset: int, live_id: str | None, detail: str) -> None:
        key = None if live_id is None else live_id.encode()
        reason = DeadLetterReason.BEFORE_LOG_START
        _log.error("deleted_unseen", partition=book.partition, live_id=live_id, detail=detail)
        await self._letters.send(book.partition, offset, reason, detail, key, None)

    # -- what another custodian began

    async def adopt(self, book: UnownedBook) -> None:
        """Look here at disposals that somebody else began meanwhile and that hold the watermark
        back: that custodian may have died before its dead letters were in the log."""
        pending = await self._calls.insist(
            lambda: pending_disposals(self._db, book.partition), "disposals"
        )
        low = book.low
        for offset, live_id in pending:
            if offset in book.lettered or (low is not None and offset >= low):
                continue  # done here, or about to be looked at here
            left = await self._read_left(book, live_id, offset, offset)
            if left is None:
                return
            _log.warning(
                "disposal_adopted", partition=book.partition, offset=offset, live_id=live_id
            )
            if left:
                book.begun[offset] = live_id
                book.put_back(left)
            else:
                detail = "it was gone from the log before its dead letter was in it"
                await self._tell(book, offset, live_id, detail)
                book.lettered.add(offset)

    # -- lives that others own

    async def revisit(self, book: UnownedBook) -> None:
        """Forget what their owners finished; take back what closed lives left behind."""
        names = list(book.elsewhere)
        for begin in range(0, len(names), LIVES_PER_LOOK):
            chunk = names[begin : begin + LIVES_PER_LOOK]

            def look(tr: Reads, chunk: list[str] = chunk) -> list[LiveView | None]:
                return [view_live(tr, name) for name in chunk]

            views = await self._calls.insist(lambda body=look: self._db.read(body), "look")
            for name, view in zip(chunk, views, strict=True):
                await self._settle(book, name, view)

    async def _settle(self, book: UnownedBook, live_id: str, view: LiveView | None) -> None:
        known = book.elsewhere.get(live_id)
        if known is None:
            return
        cursor = None if view is None else view.cursor
        if cursor is not None:
            known.first = max(known.first, cursor.next_offset)
        if known.first > known.last:
            del book.elsewhere[live_id]
        elif view is None or not view.open:
            await self._take_back(book, live_id, known)

    async def _take_back(self, book: UnownedBook, live_id: str, known: _Elsewhere) -> None:
        """Read again what a closed live left behind, so that it is looked at here.

        The live stays noted until none of its records is in hand: a later one disposed of first
        would move the floor past these. If more of it came while it was read, it is read once more.
        """
        for _ in range(READ_LEFT_TRIES):
            first, last = known.first, known.last
            left = await self._read_left(book, live_id, first, last)
            if left is None or book.elsewhere.get(live_id) is not known:
                return
            if live_id.encode() in book.keys_in_hand:
                return  # the next round finds them looked at, and so noted
            if (known.first, known.last) == (first, last):
                del book.elsewhere[live_id]
                book.put_back(left)
                return

    async def _read_left(
        self, book: UnownedBook, live_id: str, first: int, last: int
    ) -> list[KafkaRecord] | None:
        """The records of this live in [first, last]; None when the log cannot be read now."""
        partition, key, at = book.partition, live_id.encode(), first
        left: list[KafkaRecord] = []
        while at <= last:
            try:
                records = await self._reader.read(
                    partition, at, records_max=self._limits.records_max, timeout_ms=READ_LEFT_MS
                )
                _, log_end = (0, at) if records else await self._reader.log_range(partition)
            except OffsetOutOfLog as error:
                if at >= error.log_start:
                    return None
                gone = error.log_start - 1
                detail = f"offsets {at} to {gone} were deleted before the closed live's were read"
                await self._tell(book, gone, live_id, detail)
                at = error.log_start
                continue
            except BrokerAway:
                return None
            if not records and log_end > at:
                # Not to be read in time is no proof that nothing is there: the next round asks.
                return None
            if not records:
                break
            left += [raw for raw in records if raw.key == key and raw.offset <= last]
            at = records[-1].offset + 1
        return left
