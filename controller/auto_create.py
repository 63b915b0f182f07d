"""The policy `create`: text for an id that never lived opens a live, at this worker if it has room.

Only text that can be read does. Whatever else comes for an unknown id (a CLOSE, bytes of nobody's
schema) is a dead letter as ever, so that noise takes no slots. Custody is spread over the workers
by partition and ids over partitions by their hash, so taking a live where it is read spreads lives
as well; where this worker is full, the emptiest others are tried, and where nobody has room the
live waits as an orphan that Dispatch places.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import structlog

from controller.clock import Clock
from controller.counters import Counters
from controller.ids import IdMint
from controller.records import Decoder
from controller.store_calls import StoreCalls
from ownership.auto_create import OpenResult, open_for_record
from ownership.kv import Database
from ownership.model import Generation, OpenedForRecord, OpenForRecord, WorkerView
from ownership.workers import list_workers
from schemas.events import EventKind, LiveEvent
from schemas.options import LiveOptions
from schemas.store_values import WorkerState
from schemas.text_record import RecordKind, TextRecord
from stream.transport import KafkaRecord

_log = structlog.get_logger(__name__)

TARGETS_MAX = 8


@dataclass(frozen=True, slots=True)
class OpenedByRecord:
    """A live was opened here. `generation` None: it waits for capacity."""

    live_id: str
    partition: int
    offset: int
    generation: Generation | None
    options: LiveOptions


def events_of_opening(live: OpenedByRecord, mint: IdMint, at_ms: int) -> list[LiveEvent]:
    """What is said of it: as of a live that Dispatch opened, with its cause."""
    owner = live.generation or Generation("", 0)
    kinds: dict[EventKind, dict[str, str | int | float | bool | None]] = {
        EventKind.STATE_UPDATED: {
            "state": "open",
            "partition": live.partition,
            "options": live.options.as_json(),
        }
    }
    if live.generation is not None:
        kinds[EventKind.GENERATION_COMMITTED] = {
            "worker_id": owner.worker_id,
            "epoch": owner.epoch,
            "cause": "record",
        }
    return [
        LiveEvent(
            kind=kind,
            event_id=mint.new(),
            source_event_id="",
            live_id=live.live_id,
            worker_id=owner.worker_id,
            epoch=owner.epoch,
            at_ms=at_ms,
            offset=live.offset,
            data=data,
        )
        for kind, data in kinds.items()
    ]


class AutoCreate:
    """`options` are those of every live that is opened; `opened` is told of each."""

    def __init__(
        self,
        db: Database,
        calls: StoreCalls,
        decoder: Decoder,
        mint: IdMint,
        clock: Clock,
        rng: Random,
        counters: Counters,
        worker_id: str,
        options: LiveOptions,
        opened: Callable[[OpenedByRecord], None],
    ) -> None:
        self._db = db
        self._calls = calls
        self._decoder = decoder
        self._mint = mint
        self._clock = clock
        self._rng = rng
        self._counters = counters
        self._worker_id = worker_id
        self._options = options
        self._opened = opened

    def wants(self, raw: KafkaRecord) -> bool:
        """Whether this record may open a live."""
        record = self._decoder.decode(raw)
        return isinstance(record, TextRecord) and record.kind is RecordKind.TEXT

    async def open(self, live_id: str, raw: KafkaRecord) -> OpenResult:
        """The store's answer: the live is open by this record, or why it is not."""
        request = OpenForRecord(
            live_id=live_id,
            options=self._options,
            partition=raw.partition,
            offset=raw.offset,
            targets=await self._targets(),
            commit_id=self._mint.new(),
            create_id=self._mint.new(),
            now_ms=self._clock.wall_ms(),
            slot_draw=self._rng.getrandbits(32),
        )
        outcome = await self._calls.insist(lambda: open_for_record(self._db, request), "open")
        if isinstance(outcome, OpenedForRecord):
            self._counters.lives_auto_created += 1
            _log.info(
                "live_opened_by_record",
                live_id=live_id,
                partition=raw.partition,
                offset=raw.offset,
                owner=outcome.generation and outcome.generation.worker_id,
            )
            self._opened(
                OpenedByRecord(
                    live_id, raw.partition, raw.offset, outcome.generation, self._options
                )
            )
        return outcome

    async def _targets(self) -> tuple[str, ...]:
        """This worker, then the emptiest others. The views are hints: the store admits."""

        def order(view: WorkerView) -> tuple[bool, int, str]:
            worker_id = view.value.worker_id
            return worker_id != self._worker_id, -view.free_slots, worker_id

        views = await self._calls.insist(lambda: list_workers(self._db), "list_workers")
        ready = [view for view in views if view.value.state is WorkerState.READY]
        roomy = [view for view in ready if view.free_slots > 0]
        return tuple(view.value.worker_id for view in sorted(roomy, key=order)[:TARGETS_MAX])
