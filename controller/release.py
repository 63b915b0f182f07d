"""The release: group commit, and the only way into the first ring.

Lives that want to release gather while one transaction is under way. When the next one is about to
begin each gets its turn, and says what it releases: all that came meanwhile, an INTERRUPT before
anything else. The outcomes, per request:

- Released: committed under the generation it names. The fence mints the permit, and without any
  await the machine answers with Feed instructions that go to the ring through `feed` below.
- Stale: the live has another owner. The session is revoked.
- CursorMoved: the generation is ours and the cursor is not where we left it: what the session knows
  is not the truth, and it claims anew.
- Unknown (the store went away in the middle): the whole batch is asked again with the same release
  ids; the transaction finds what it had applied. Nothing is answered before it is known.
"""

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Protocol, assert_never

from controller.clock import Clock
from controller.counters import Counters
from controller.events import CursorFound, Event, ReleaseDone, ReleaseStale, ReleaseTurn
from controller.fence import Permit, mint, spend
from controller.instructions import RequestRelease, SpokenSegment
from controller.store_calls import StoreCalls
from gpu_stages.runtime_contract import NotBound, RingFull, Segment, StageRuntime
from ownership.kv import Database
from ownership.model import CursorMoved, Released, ReleaseItem, Stale
from ownership.release import release
from schemas.quick_init import quick_init
from schemas.store_values import Checkpoint, Generation


class ReleaseSink(Protocol):
    """Who asked: a live's session."""

    live_id: str
    generation: Generation

    def post(self, event: Event) -> None:
        """Takes the answer, synchronously."""
        ...


@quick_init
@dataclass(frozen=True, slots=True)
class _Waiting:
    sink: ReleaseSink
    request: RequestRelease

    def item(self, wall_ms: int) -> ReleaseItem:
        request = self.request
        return ReleaseItem(
            live_id=self.sink.live_id,
            generation=self.sink.generation,
            expected_next_offset=request.expected_next_offset,
            new_next_offset=request.new_next_offset,
            release_id=request.release_id,
            last_seq=request.last_seq,
            checkpoint=_dated(request.checkpoint, wall_ms),
            skipped=request.skipped,
        )


def _dated(checkpoint: Checkpoint, at_ms: int) -> Checkpoint:
    """`replace(checkpoint, at_ms=at_ms)`, which would look every field up by its name."""
    return Checkpoint(
        checkpoint.segments,
        checkpoint.samples_emitted,
        checkpoint.next_char,
        checkpoint.utterance,
        checkpoint.media_frame,
        at_ms,
    )


class ReleaseBatcher:
    """One transaction under way at a time, over all lives of the worker."""

    def __init__(
        self, db: Database, calls: StoreCalls, clock: Clock, counters: Counters, items_max: int
    ) -> None:
        self._db = db
        self._calls = calls
        self._clock = clock
        self._counters = counters
        self._items_max = items_max
        self._wanting: deque[ReleaseSink] = deque()
        self._waiting: deque[_Waiting] = deque()
        self._has_work = asyncio.Event()
        self.in_flight = 0

    def __len__(self) -> int:
        return len(self._wanting) + len(self._waiting) + self.in_flight

    def want(self, sink: ReleaseSink) -> None:
        """Queue up for a turn, which comes by `sink.post`; what is asked then goes at once."""
        self._wanting.append(sink)
        self._has_work.set()

    def submit(self, sink: ReleaseSink, request: RequestRelease) -> None:
        """Queue a request; its answer comes by `sink.post`."""
        self._waiting.append(_Waiting(sink, request))
        self._has_work.set()

    async def run(self) -> None:
        """Commits batches until cancelled."""
        while True:
            await self._has_work.wait()
            # Whatever else is ready now may still ask: one turn of the loop gathers it.
            await asyncio.sleep(0)
            self._give_turns()
            batch = self._take()
            if not batch:
                continue
            self.in_flight = len(batch)
            wall_ms = self._clock.wall_ms()
            items = [one.item(wall_ms) for one in batch]
            results = await self._calls.insist(lambda i=items: release(self._db, i), "release")
            self.in_flight = 0
            self._counters.release_batches += 1
            for waiting, result in zip(batch, results, strict=True):
                self._answer(waiting, result)

    def _give_turns(self) -> None:
        while self._wanting and len(self._waiting) < self._items_max:
            self._wanting.popleft().post(ReleaseTurn())

    def _take(self) -> list[_Waiting]:
        """At most one request per live: a session may have followed another of the same live."""
        batch: dict[str, _Waiting] = {}
        later: list[_Waiting] = []
        while self._waiting and len(batch) < self._items_max:
            one = self._waiting.popleft()
            if one.sink.live_id in batch:
                later.append(one)
            else:
                batch[one.sink.live_id] = one
        self._waiting.extendleft(reversed(later))
        if not self._waiting and not self._wanting:
            self._has_work.clear()
        return list(batch.values())

    def _answer(self, waiting: _Waiting, result: Released | Stale | CursorMoved) -> None:
        sink, request = waiting.sink, waiting.request
        match result:
            case Released():
                self._counters.releases += 1
                permit = mint(result, [one.segment_id for one in request.segments])
                sink.post(ReleaseDone(permit))
            case Stale(actual=actual):
                self._counters.refused_stale += 1
                sink.post(ReleaseStale(request.release_id, actual))
            case CursorMoved(actual=actual):
                self._counters.cursor_moved += 1
                sink.post(CursorFound(request.release_id, actual))
            case _:
                assert_never(result)


def feed(
    runtime: StageRuntime,
    live_slot: int,
    permit: Permit,
    sink: ReleaseSink,
    segment: SpokenSegment,
) -> bool:
    """Let one segment into the first ring. False when there is no room; its permit is used up then.

    Raises PermitMisused.
    """
    spend(permit, sink.live_id, sink.generation, segment.segment_id)
    try:
        runtime.feed(
            live_slot,
            Segment(
                segment_id=segment.segment_id,
                utterance=segment.utterance,
                text=segment.text,
                skip_samples=segment.skip_samples,
                seed=segment.seed,
            ),
        )
    except (RingFull, NotBound):
        return False
    return True
