"""The pipeline of four trivial stages, in real processes, as the controller sees it."""

import asyncio
import gc
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gpu_stages.config import BUNDLED, StageConfig, StagesConfig
from gpu_stages.runtime import (
    Binding,
    BoundLive,
    NoLiveSlot,
    NotBound,
    PipelineRuntime,
    RingFull,
    Segment,
    SegmentFailed,
    StageFailedToStart,
    StageGaveUp,
    StageLost,
    StageRuntime,
    StageTrouble,
    VideoTooLarge,
)
from gpu_stages.supervisor import SupervisorLimits
from schemas.media import TICK_SAMPLES, MediaTick, TickFlag
from schemas.options import LiveOptions
from tests.support.processes import alive, holdings, shared_memory_names
from tests.support.wait import until

KIT = Path(__file__).with_name("stage_kit.py")
LIMITS = SupervisorLimits(ping_s=0.1, backoff_s_min=0.01, backoff_s_max=0.05)
CONFIG = StagesConfig(
    stages=tuple(
        StageConfig(name, f"{KIT}:Kit{name.capitalize()}")
        for name in ("speech", "motion", "render", "encode")
    ),
    live_slots=3,
    width_px_max=64,
    height_px_max=64,
)


class Worker:
    """The controller's place: keeps what comes. `paced` bindings get credit as ticks arrive."""

    def __init__(self, config: StagesConfig = CONFIG) -> None:
        self.runtime = PipelineRuntime(config, limits=LIMITS)
        self.ticks: list[MediaTick] = []
        self.troubles: list[StageTrouble] = []
        self.paced: set[int] = set()

    async def start(self) -> None:
        await self.runtime.start(self.on_tick, self.troubles.append)

    def on_tick(self, tick: MediaTick) -> None:
        self.ticks.append(tick)
        if tick.binding in self.paced:
            self.runtime.set_credit(tick.live_slot, tick.frame_index + 4)

    def bind_paced(self, bound_live: BoundLive) -> Binding:
        bound = self.runtime.bind(bound_live)
        self.paced.add(bound.binding)
        self.runtime.set_credit(bound.live_slot, bound_live.start_frame + 3)
        return bound

    def spoken(self, binding: int) -> str:
        ticks = [t for t in self.ticks if t.binding == binding and t.segment_id]
        return b"".join(tick.opus[0] for tick in ticks).decode()

    async def until_spoken(self, binding: int, text: str) -> None:
        try:
            await until(lambda: text in self.spoken(binding))
        except AssertionError as error:
            raise AssertionError(f"{text!r} is not in {self.spoken(binding)!r}") from error


def live(live_id: str = "anna", epoch: int = 5, start_frame: int = 100) -> BoundLive:
    options = LiveOptions(width_px=64, height_px=64)
    return BoundLive(live_id, epoch, options, seed=9, start_frame=start_frame)


def segment(text: str, segment_id: int = 1, utterance: int = 0) -> Segment:
    return Segment(segment_id, utterance, text, skip_samples=0, seed=77)


Start = Callable[..., Awaitable[Worker]]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    workers: list[Worker] = []

    async def started(config: StagesConfig = CONFIG) -> Worker:
        workers.append(Worker(config))
        await workers[-1].start()
        return workers[-1]

    yield started
    for worker in workers:
        await worker.runtime.close()


async def test_text_becomes_ticks(start: Start) -> None:
    worker = await start()
    bound = worker.bind_paced(live())
    assert (bound.live_slot, bound.binding) == (0, 1)
    assert worker.ticks == [], "never inside a call"
    runtime: StageRuntime = worker.runtime
    assert runtime.room(0)
    runtime.feed(0, segment("hello", segment_id=2**63))
    await worker.until_spoken(1, "hello")
    assert worker.spoken(1) == "hello"
    frames = [tick.frame_index for tick in worker.ticks]
    assert frames == list(range(100, 100 + len(frames)))
    speaking = [tick for tick in worker.ticks if tick.segment_id]
    assert {(t.live_slot, t.binding, t.epoch, t.segment_id) for t in speaking} == {(0, 1, 5, 2**63)}
    assert [t.sample_start for t in speaking] == [TICK_SAMPLES * i for i in range(5)]
    assert [bool(t.flags & TickFlag.LAST_OF_SEGMENT) for t in speaking] == [False] * 4 + [True]
    assert speaking[0].opus == (b"h", b"H")


async def test_no_tick_is_made_above_the_credit(start: Start) -> None:
    worker = await start()
    worker.runtime.bind(live())
    worker.bind_paced(live("berta"))
    await until(lambda: len(worker.ticks) > 50, what="ticks of the other live")
    assert not [tick for tick in worker.ticks if tick.live_slot == 0]
    worker.runtime.set_credit(0, 119)
    worker.runtime.set_credit(0, 110)
    await until(lambda: sum(tick.live_slot == 0 for tick in worker.ticks) == 20)
    seen = len(worker.ticks)
    await until(lambda: len(worker.ticks) > seen + 50, what="more ticks of the other live")
    mine = [tick.frame_index for tick in worker.ticks if tick.live_slot == 0]
    assert mine == list(range(100, 120))


async def test_lives_are_kept_apart(start: Start) -> None:
    worker = await start()
    bound = [worker.bind_paced(live(name)) for name in ("anna", "berta", "carl")]
    with pytest.raises(NoLiveSlot):
        worker.runtime.bind(live("dora"))
    for i, binding in enumerate(bound):
        worker.runtime.feed(binding.live_slot, segment(f"text{i}"))
    for i, binding in enumerate(bound):
        await worker.until_spoken(binding.binding, f"text{i}")
        frames = [t.frame_index for t in worker.ticks if t.binding == binding.binding]
        assert frames == list(range(100, 100 + len(frames)))


async def test_an_unbind_holds_for_everything_on_its_way(start: Start) -> None:
    worker = await start()
    first = worker.bind_paced(live())
    worker.runtime.feed(first.live_slot, segment("a long text " * 20))
    await until(lambda: len(worker.ticks) > 50, what="ticks")
    worker.runtime.unbind(first.live_slot)
    after = len(worker.ticks)
    assert not worker.runtime.room(first.live_slot)
    with pytest.raises(NotBound):
        worker.runtime.feed(first.live_slot, segment("late"))
    for harmless in (worker.runtime.unbind, worker.runtime.request_keyframe):
        harmless(first.live_slot)
    worker.runtime.set_credit(first.live_slot, 20_000)
    second = worker.bind_paced(live("berta", epoch=1))
    worker.runtime.feed(second.live_slot, segment("new"))
    await worker.until_spoken(second.binding, "new")
    assert {tick.binding for tick in worker.ticks[after:]} == {second.binding}


async def test_a_slot_that_is_bound_again_is_fresh_in_every_stage(start: Start) -> None:
    worker = await start(replace(CONFIG, live_slots=1))
    bindings: list[int] = []
    for n in range(5):
        bound = worker.bind_paced(live(f"live{n}", start_frame=n * 10))
        bindings.append(bound.binding)
        worker.runtime.feed(0, segment("never heard to its end " * 4))
        await worker.until_spoken(bound.binding, "never")
        worker.runtime.unbind(0)
    for n, binding in enumerate(bindings):
        frames = [t.frame_index for t in worker.ticks if t.binding == binding]
        assert frames[0] == n * 10
        assert worker.spoken(binding).startswith("never")


async def test_a_live_cannot_take_another_one_s_room(start: Start) -> None:
    worker = await start()
    one, other = worker.runtime.bind(live("anna")), worker.runtime.bind(live("berta"))
    os.kill(worker.runtime.pids()["speech"], signal.SIGSTOP)
    for _ in range(4):
        worker.runtime.feed(one.live_slot, segment("x"))
    with pytest.raises(RingFull):
        worker.runtime.feed(one.live_slot, segment("x"))
    assert worker.runtime.room(other.live_slot)
    os.kill(worker.runtime.pids()["speech"], signal.SIGCONT)
    await until(lambda: worker.runtime.room(one.live_slot), what="room again")


async def test_a_later_utterance_drops_what_was_fed_before(start: Start) -> None:
    worker = await start()
    bound = worker.bind_paced(live())
    worker.runtime.interrupt(bound.live_slot, 2)
    worker.runtime.feed(bound.live_slot, segment("old", 1, utterance=1))
    worker.runtime.feed(bound.live_slot, segment("new", 2, utterance=2))
    await worker.until_spoken(bound.binding, "new")
    assert "old" not in worker.spoken(bound.binding)


async def test_a_key_frame_request_reaches_the_stages(start: Start) -> None:
    worker = await start()
    bound = worker.runtime.bind(live())
    worker.runtime.set_credit(bound.live_slot, 101)
    await until(lambda: len(worker.ticks) == 2)
    assert worker.ticks[-1].video[0] == 0
    worker.runtime.request_keyframe(bound.live_slot)
    worker.runtime.set_credit(bound.live_slot, 103)
    await until(lambda: len(worker.ticks) == 4)
    assert worker.ticks[-1].video[0] == 1


async def test_a_segment_that_fails_is_surfaced_and_the_live_goes_on(start: Start) -> None:
    worker = await start()
    bound = worker.bind_paced(live())
    worker.runtime.feed(bound.live_slot, segment("boom", 11))
    await until(lambda: worker.troubles, what="the failure")
    worker.runtime.feed(bound.live_slot, segment("fine", 12))
    await worker.until_spoken(bound.binding, "fine")
    (trouble,) = worker.troubles
    assert isinstance(trouble, SegmentFailed)
    assert (trouble.live_slot, trouble.binding, trouble.segment_id) == (0, 1, 11)
    assert "cannot be spoken" in trouble.reason


@pytest.mark.parametrize("stage", ["speech", "motion", "render", "encode"])
async def test_a_killed_stage_voids_all_bindings_and_is_back(start: Start, stage: str) -> None:
    worker = await start()
    runtime = worker.runtime
    first = worker.bind_paced(live())
    runtime.feed(first.live_slot, segment("a long text " * 50))
    await until(lambda: len(worker.ticks) > 20, what="ticks")
    os.kill(runtime.pids()[stage], signal.SIGKILL)
    await until(lambda: worker.troubles, what="the loss")
    assert worker.troubles == [StageLost(stage, "killed by SIGKILL")]
    with pytest.raises(NotBound):
        runtime.feed(first.live_slot, segment("late"))
    heard = len(worker.ticks)
    second = worker.bind_paced(live(epoch=6, start_frame=500))
    await until(lambda: runtime.room(second.live_slot), what="room in the new generation")
    runtime.feed(second.live_slot, segment("and on"))
    await worker.until_spoken(second.binding, "and on")
    new = worker.ticks[heard:]
    assert {tick.binding for tick in new} == {second.binding}
    assert [tick.frame_index for tick in new] == list(range(500, 500 + len(new)))
    assert worker.troubles == [StageLost(stage, "killed by SIGKILL")]


async def test_a_stage_that_is_given_up_is_told(start: Start) -> None:
    worker = Worker()
    worker.runtime = PipelineRuntime(CONFIG, limits=replace(LIMITS, restarts_max=0))
    await worker.start()
    try:
        os.kill(worker.runtime.pids()["render"], signal.SIGKILL)
        await until(lambda: len(worker.troubles) == 2, what="the end")
        assert worker.troubles[1] == StageGaveUp("render", "killed by SIGKILL")
    finally:
        await worker.runtime.close()


async def test_a_picture_that_no_slot_holds_is_refused(start: Start) -> None:
    worker = await start()
    large = replace(live(), options=LiveOptions(width_px=128, height_px=64))
    with pytest.raises(VideoTooLarge, match=r"128x64 px; .* up to 64x64"):
        worker.runtime.bind(large)
    assert worker.runtime.bind(live()).live_slot == 0


async def test_a_start_that_fails_names_the_stage_and_leaves_nothing() -> None:
    gc.collect()
    before = holdings(os.getpid())
    broken = replace(CONFIG.stages[2], class_path="no_such_module:Render")
    worker = Worker(replace(CONFIG, stages=(*CONFIG.stages[:2], broken, CONFIG.stages[3])))
    with pytest.raises(StageFailedToStart, match=r"stage render did not start.*no_such_module"):
        await worker.start()
    await worker.runtime.close()
    gc.collect()
    assert holdings(os.getpid()) == before


async def test_nothing_is_left_after_close() -> None:
    gc.collect()
    before, names = holdings(os.getpid()), shared_memory_names()
    worker = Worker()
    await worker.start()
    worker.bind_paced(live())
    await until(lambda: len(worker.ticks) > 10, what="ticks")
    pids = set(worker.runtime.pids().values())
    assert len(pids) == 4
    await worker.runtime.close()
    await worker.runtime.close()
    assert not alive(pids)
    gc.collect()
    assert holdings(os.getpid()) == before
    assert shared_memory_names() == names
    assert worker.troubles == []


async def test_the_figures_of_every_stage_are_there(start: Start) -> None:
    worker = await start()
    worker.runtime.bind(live())
    worker.runtime.set_credit(0, 150)

    def drawn() -> bool:
        stages = worker.runtime.stats()["stages"]
        assert isinstance(stages, dict)
        return stages["render"].get("messages", 0) == 51

    await until(drawn, what="the figures")
    assert worker.runtime.stats()["bound"] == 1
    dumps = await worker.runtime.dump()
    assert dumps["motion"]["bindings"] == {"0": 1}


def test_a_runtime_that_was_never_started_can_be_closed() -> None:
    asyncio.run(PipelineRuntime(BUNDLED).close())
