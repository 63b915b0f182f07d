"""Records of a capture through the controller, without stages: every segment counts as spoken.

What is production's: decoder, session machine, release batcher, the release transaction over the
memory store, the fence's permits, `feed` as the only way into the first ring. What is missing: the
routing of partitions, events to the topic, and whatever makes sound and picture.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from random import Random
from typing import cast

from controller import events as ev
from controller import instructions as do
from controller.clock import SystemClock
from controller.counters import Counters
from controller.release import ReleaseBatcher, feed
from controller.session_core import SessionLimits
from controller.session_machine import SessionMachine
from controller.store_calls import StoreCalls
from controller.text_queue import QueueLimits
from dhsched.offline.entries import CapturedRecord
from gpu_stages.runtime_contract import Segment, StageRuntime
from ownership.generations import claim
from ownership.kv import Database
from ownership.lives import create_live
from ownership.memory import MemoryDatabase
from ownership.memory_store import MemoryStore
from ownership.model import Claimed, Created, CreateLive
from ownership.workers import register_worker
from schemas.options import LiveOptions
from schemas.store_values import Generation, WorkerState, WorkerValue
from schemas.text_record import decode_text_record

RELEASE_ITEMS_MAX = 512
# Nothing has to be made ahead of a viewer: a commit takes as many segments as one may.
LIMITS = SessionLimits(segments_ahead_max=QueueLimits().cuts_per_step_max)
BATCH = 1_024
NOW_MS = 1_764_000_000_000


class Ring:
    """The first ring's place: counts what comes out of it."""

    def __init__(self) -> None:
        self.segments = 0
        self.characters = 0

    def feed(self, _live_slot: int, segment: Segment) -> None:
        self.segments += 1
        self.characters += len(segment.text)


class FencedLive:
    """A session machine, and the least of a shell around it."""

    def __init__(
        self, live_id: str, generation: Generation, batcher: ReleaseBatcher, ring: Ring
    ) -> None:
        self.live_id = live_id
        self.generation = generation
        self.machine = SessionMachine(live_id, generation, LIMITS)
        self._batcher = batcher
        self._ring = cast(StageRuntime, ring)
        self._inbox: deque[ev.Event] = deque()
        self._busy = False

    def post(self, event: ev.Event) -> None:
        """As `Session.post`: what follows from an event is handled right after it."""
        self._inbox.append(event)
        if self._busy:
            return
        self._busy = True
        while self._inbox:
            for order in self.machine.handle(self._inbox.popleft(), NOW_MS):
                match order:
                    case do.WantRelease():
                        self._batcher.want(self)
                    case do.RequestRelease():
                        self._batcher.submit(self, order)
                    case do.Feed(permit=permit, segment=segment):
                        assert feed(self._ring, 0, permit, self, segment)
                        spoken = ev.TickSent(segment.segment_id, 1, last=True, muted=False)
                        self._inbox.append(spoken)
                    case do.Bind():
                        self._inbox.append(ev.Bound(0, 1))
                    case do.Claim() | do.ReadFrom() | do.Publish():
                        pass
                    case _:
                        raise AssertionError(f"{order} has no place here")
        self._busy = False

    @property
    def room(self) -> int:
        """How many records its queue takes."""
        assert self.machine.queue is not None
        records, chars = self.machine.queue.room
        return min(records, chars // 100)


async def read_fenced(records: Iterable[CapturedRecord], live_ids: list[str]) -> Ring:
    """All records, as fast as they go; the ring that their segments came to."""
    db = MemoryDatabase(MemoryStore(), Random(0))
    counters, ring = Counters(), Ring()
    calls = StoreCalls(Random(1), counters)
    batcher = ReleaseBatcher(db, calls, SystemClock(), counters, RELEASE_ITEMS_MAX)
    releasing = asyncio.create_task(batcher.run())
    try:
        worker = WorkerValue("worker", "node", len(live_ids), "", WorkerState.READY, NOW_MS)
        await register_worker(db, worker)
        lives = {
            live_id.encode(): await _claimed(db, live_id, batcher, ring) for live_id in live_ids
        }
        for batch in _batches(records):
            await _take(batch, lives, batcher)
        while len(batcher):  # noqa: ASYNC110, the batcher has no event for it
            await asyncio.sleep(0)
    finally:
        releasing.cancel()
        await asyncio.gather(releasing, return_exceptions=True)
        await db.close()
    for live in lives.values():
        assert live.machine.queue is not None
        assert live.machine.queue.empty, f"something is left of {live.live_id}"
    assert counters.refused_stale == 0
    return ring


def _batches(records: Iterable[CapturedRecord]) -> Iterator[list[CapturedRecord]]:
    left = iter(records)
    while batch := list(islice(left, BATCH)):
        yield batch


async def _take(
    batch: list[CapturedRecord], lives: Mapping[bytes, FencedLive], batcher: ReleaseBatcher
) -> None:
    """One batch, as a worker routes it: at most one event for each live."""
    by_live: dict[bytes | None, list[ev.Incoming]] = {}
    for record in batch:
        accepted = ev.Accepted(record.offset, decode_text_record(record.value))
        by_live.setdefault(record.key, []).append(accepted)
    read_to = batch[-1].offset + 1
    for key, incoming in by_live.items():
        live = lives[key or b""]
        while live.room < len(incoming):
            assert len(batcher), f"{live.live_id} has no room and waits for nothing"
            await asyncio.sleep(0)
        live.post(ev.RecordsRead(tuple(incoming), read_to))


async def _claimed(db: Database, live_id: str, batcher: ReleaseBatcher, ring: Ring) -> FencedLive:
    made = await create_live(
        db, CreateLive(live_id, LiveOptions(), 0, "worker", live_id, live_id, NOW_MS)
    )
    assert isinstance(made, Created), made
    claimed = await claim(db, live_id, made.generation, "claim", NOW_MS)
    assert isinstance(claimed, Claimed), claimed
    live = FencedLive(live_id, made.generation, batcher, ring)
    live.post(ev.Started("claim"))
    live.post(ev.ClaimDone(LiveOptions(), claimed.cursor, claimed.checkpoint, 0))
    return live
