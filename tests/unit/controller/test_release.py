"""The batcher: every outcome of the store, and the way into the ring."""

import asyncio
from dataclasses import dataclass, field
from random import Random

import pytest

from controller import events as ev
from controller.counters import Counters
from controller.fence import PermitMisused, mint
from controller.instructions import RequestRelease, SpokenSegment
from controller.release import ReleaseBatcher, feed
from controller.store_calls import StoreCalls
from gpu_stages.runtime_contract import BoundLive
from gpu_stages.stub import StubRuntime
from ownership import keys
from ownership.lives import create_live, get_live
from ownership.memory import Faults, MemoryDatabase
from ownership.model import Created, CreateLive, Released, ReleaseItem
from ownership.workers import register_worker
from schemas.options import LiveOptions
from schemas.store_values import (
    Checkpoint,
    Cursor,
    Generation,
    GenerationValue,
    SegmentBounds,
    WorkerState,
    WorkerValue,
)
from tests.support.wait import until
from tests.unit.controller.clock import Clock


@dataclass
class Sink:
    live_id: str
    generation: Generation
    got: list[ev.Event] = field(default_factory=list)

    def post(self, event: ev.Event) -> None:
        self.got.append(event)


def segment(number: int) -> SpokenSegment:
    return SpokenSegment(number, SegmentBounds(number, 0, number, 1), "a", 7, 0)


def request(name: str, expected: int, new: int, *segments: SpokenSegment) -> RequestRelease:
    return RequestRelease(name, expected, new, None, Checkpoint(), None, segments)


class Bench:
    """A store with lives of one worker, and a batcher that runs."""

    def __init__(self, faults: Faults | None = None, items_max: int = 100) -> None:
        self.db = MemoryDatabase(rng=Random(3), faults=None)
        self.faults = faults
        self.counters = Counters()
        calls = StoreCalls(Random(4), self.counters)
        self.batcher = ReleaseBatcher(self.db, calls, Clock(), self.counters, items_max)

    async def lives(self, count: int) -> list[Sink]:
        worker = WorkerValue("one-1", "one", count, "http://one", WorkerState.READY, 0)
        await register_worker(self.db, worker)
        sinks: list[Sink] = []
        for number in range(count):
            name = f"live-{number}"
            answer = await create_live(
                self.db, CreateLive(name, LiveOptions(), 0, "one-1", f"m-{name}", f"c-{name}", 0)
            )
            assert isinstance(answer, Created)
            sinks.append(Sink(name, answer.generation))
        self.db.faults = self.faults
        return sinks

    async def cursor(self, live_id: str) -> Cursor:
        self.db.faults = None
        view = await get_live(self.db, live_id)
        assert view is not None
        assert view.cursor is not None
        return view.cursor

    async def until_answered(self, sinks: list[Sink], count: int = 1) -> None:
        running = asyncio.ensure_future(self.batcher.run())
        try:
            await until(lambda: all(len(sink.got) >= count for sink in sinks))
        finally:
            running.cancel()


async def test_many_lives_share_one_transaction() -> None:
    bench = Bench()
    sinks = await bench.lives(50)
    for sink in sinks:
        bench.batcher.submit(sink, request(f"r/{sink.live_id}", 0, 3, segment(1)))
    await bench.until_answered(sinks)
    assert bench.counters.release_batches == 1
    assert bench.counters.releases == 50
    for sink in sinks:
        (event,) = sink.got
        assert isinstance(event, ev.ReleaseDone)
        assert event.permit.unspent == {1}
        assert event.permit.next_offset == 3
        assert (await bench.cursor(sink.live_id)).next_offset == 3


@dataclass
class Planner(Sink):
    """Says at its turn what it releases, as a session does; or nothing."""

    batcher: ReleaseBatcher | None = None
    asks: list[RequestRelease] = field(default_factory=list)

    def post(self, event: ev.Event) -> None:
        self.got.append(event)
        if isinstance(event, ev.ReleaseTurn) and self.asks and self.batcher is not None:
            self.batcher.submit(self, self.asks.pop(0))


async def test_what_is_asked_at_a_turn_goes_with_the_commit_that_the_turn_was_for() -> None:
    bench = Bench()
    one, two, three = await bench.lives(3)
    asks = Planner(one.live_id, one.generation, batcher=bench.batcher, asks=[request("r1", 0, 2)])
    asks_not = Planner(two.live_id, two.generation, batcher=bench.batcher)
    for sink in (asks_not, asks):
        bench.batcher.want(sink)
    bench.batcher.submit(three, request("r3", 0, 1))
    assert len(bench.batcher) == 3
    await bench.until_answered([three, asks_not])
    await bench.until_answered([asks], count=2)
    assert [type(event) for event in asks.got] == [ev.ReleaseTurn, ev.ReleaseDone]
    assert asks_not.got == [ev.ReleaseTurn()]
    assert bench.counters.release_batches == 1
    assert len(bench.batcher) == 0


async def test_turns_that_nobody_uses_commit_nothing() -> None:
    bench = Bench()
    (sink,) = await bench.lives(1)
    silent = Planner(sink.live_id, sink.generation, batcher=bench.batcher)
    bench.batcher.want(silent)
    await bench.until_answered([silent])
    assert bench.counters.release_batches == 0
    silent.asks = [request("r1", 0, 1)]
    bench.batcher.want(silent)
    await bench.until_answered([silent], count=3)
    assert bench.counters.release_batches == 1


async def test_one_request_per_live_and_batch_and_no_larger_batches() -> None:
    bench = Bench(items_max=3)
    sinks = await bench.lives(5)
    for sink in sinks:
        bench.batcher.submit(sink, request(f"r1/{sink.live_id}", 0, 1))
        bench.batcher.submit(sink, request(f"r2/{sink.live_id}", 1, 2))
    await bench.until_answered(sinks, count=2)
    assert all(isinstance(event, ev.ReleaseDone) for sink in sinks for event in sink.got)
    assert bench.counters.release_batches >= 4


async def test_a_stale_request_does_not_hinder_the_others() -> None:
    bench = Bench()
    good, stale = await bench.lives(2)
    other = GenerationValue("two-1", 9)
    await bench.db.run(lambda tr: tr.set(keys.gen(stale.live_id), other.encode()))
    bench.batcher.submit(good, request("r/1", 0, 1))
    bench.batcher.submit(stale, request("r/2", 0, 1, segment(5)))
    await bench.until_answered([good, stale])
    assert isinstance(good.got[0], ev.ReleaseDone)
    assert stale.got == [ev.ReleaseStale("r/2", Generation("two-1", 9))]
    assert bench.counters.refused_stale == 1
    assert (await bench.cursor(stale.live_id)).next_offset == 0


async def test_a_cursor_that_stands_elsewhere_is_told() -> None:
    bench = Bench()
    (sink,) = await bench.lives(1)
    bench.batcher.submit(sink, request("r/1", 7, 8))
    await bench.until_answered([sink])
    (event,) = sink.got
    assert isinstance(event, ev.CursorFound)
    assert event.actual is not None
    assert event.actual.next_offset == 0


@pytest.mark.parametrize("kind", ["conflict", "unknown_applied", "unknown_dropped", "away"])
async def test_nothing_is_applied_twice_or_lost_whatever_the_outcome(kind: str) -> None:
    faults = Faults(**{kind: 0.6}, late_s=(0.0, 0.01))
    bench = Bench(faults)
    sinks = await bench.lives(4)
    for at in range(12):
        for sink in sinks:
            asked = request(f"r{at}/{sink.live_id}", at, at + 1, segment(at))
            bench.batcher.submit(sink, asked)
        await bench.until_answered(sinks, count=at + 1)
    for sink in sinks:
        permits = [event.permit for event in sink.got if isinstance(event, ev.ReleaseDone)]
        assert [permit.release_id for permit in permits] == [
            f"r{at}/{sink.live_id}" for at in range(12)
        ]
        assert (await bench.cursor(sink.live_id)).next_offset == 12


async def test_an_outcome_that_comes_later_counts_once() -> None:
    bench = Bench(Faults(unknown_late=0.5, late_s=(0.0, 0.05)))
    (sink,) = await bench.lives(1)
    for at in range(20):
        bench.batcher.submit(sink, request(f"r{at}", at, at + 1))
        await bench.until_answered([sink], count=at + 1)
    assert all(isinstance(event, ev.ReleaseDone) for event in sink.got)
    assert (await bench.cursor(sink.live_id)).next_offset == 20


async def test_a_full_ring_uses_the_permit_up() -> None:
    runtime = StubRuntime(live_slots=1)
    await runtime.start(lambda tick: None, lambda trouble: None)
    slot = runtime.bind(BoundLive("live-0", 1, LiveOptions(), 0, 0)).live_slot
    sink = Sink("live-0", Generation("one-1", 1))
    item = ReleaseItem("live-0", sink.generation, 0, 1, "r/1")
    permit = mint(Released(item), range(1, 9))
    taken = [feed(runtime, slot, permit, sink, segment(number)) for number in range(1, 9)]
    assert taken[0]
    assert not taken[-1]
    with pytest.raises(PermitMisused):
        feed(runtime, slot, permit, sink, segment(8))
    await runtime.close()
