"""The stub keeps the runtime's promises, by the loop's clock and without any other."""

import asyncio
import heapq
import itertools
from collections.abc import Callable
from typing import Any

import pytest

from gpu_stages.runtime_contract import (
    BoundLive,
    NoLiveSlot,
    NotBound,
    RingFull,
    Segment,
    SegmentFailed,
    StageLost,
    StageRuntime,
    StageTrouble,
)
from gpu_stages.stub import LEAD_FRAMES, SEGMENTS_PER_LIVE_MAX, StubRuntime, spoken_samples
from schemas.media import TICK_SAMPLES, MediaTick, TickFlag
from schemas.options import LiveOptions


class VirtualLoop(asyncio.SelectorEventLoop):
    """Time jumps to the next timer instead of passing."""

    def __init__(self) -> None:
        super().__init__()
        self.virtual_s = 0.0

    def time(self) -> float:
        return self.virtual_s

    def _run_once(self) -> None:
        scheduled: list[Any] = self._scheduled  # type: ignore[attr-defined]
        while scheduled and scheduled[0]._cancelled:
            heapq.heappop(scheduled)._scheduled = False
            self._timer_cancelled_count = max(0, self._timer_cancelled_count - 1)  # type: ignore[attr-defined]
        if not self._ready and scheduled:  # type: ignore[attr-defined]
            self.virtual_s = max(self.virtual_s, scheduled[0]._when)
        super()._run_once()  # type: ignore[misc]


class Driver:
    """A stub and everything that it told."""

    def __init__(self, **options: Any) -> None:
        self.stub = StubRuntime(**options)
        self.ticks: list[MediaTick] = []
        self.times_s: list[float] = []
        self.troubles: list[StageTrouble] = []

    async def start(self) -> None:
        runtime: StageRuntime = self.stub
        await runtime.start(self.on_tick, self.troubles.append)

    def on_tick(self, tick: MediaTick) -> None:
        self.ticks.append(tick)
        self.times_s.append(asyncio.get_running_loop().time())

    def speaking(self) -> list[MediaTick]:
        return [tick for tick in self.ticks if tick.segment_id]


def live(start_frame: int = 0, epoch: int = 3) -> BoundLive:
    return BoundLive("anna", epoch, LiveOptions(), 1, start_frame)


def segment(text: str, segment_id: int = 1, utterance: int = 0, skip_samples: int = 0) -> Segment:
    return Segment(segment_id, utterance, text, skip_samples, 5)


def run(body: Callable[[Driver], Any], **options: Any) -> Driver:
    """Run a test body in virtual time."""

    async def main() -> Driver:
        driver = Driver(**options)
        await driver.start()
        await body(driver)
        await driver.stub.close()
        return driver

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main())


def test_ticks_come_by_the_clock_a_little_ahead() -> None:
    async def body(driver: Driver) -> None:
        driver.stub.bind(live(start_frame=50))
        driver.stub.set_credit(0, 10_000)
        await asyncio.sleep(1.0)

    driver = run(body)
    assert [tick.frame_index for tick in driver.ticks] == list(range(50, 50 + 25 + LEAD_FRAMES + 1))
    assert driver.times_s[LEAD_FRAMES] == 0
    assert driver.times_s[LEAD_FRAMES + 10] == pytest.approx(0.4)
    assert {(t.live_slot, t.binding, t.epoch, t.sample_start) for t in driver.ticks} == {
        (0, 1, 3, -1)
    }


def test_a_text_lasts_60_ms_a_character_and_every_sample_is_counted() -> None:
    async def body(driver: Driver) -> None:
        driver.stub.bind(live())
        driver.stub.set_credit(0, 10_000)
        driver.stub.feed(0, segment("five!", 1))
        driver.stub.feed(0, segment("abc", 2))
        await asyncio.sleep(2.0)

    driver = run(body)
    assert spoken_samples("five!") == 7200
    for segment_id, text in ((1, "five!"), (2, "abc")):
        ticks = [tick for tick in driver.ticks if tick.segment_id == segment_id]
        assert [t.sample_start for t in ticks] == [i * TICK_SAMPLES for i in range(len(ticks))]
        assert sum(t.speech_samples for t in ticks) == spoken_samples(text)
        assert ticks[0].flags & TickFlag.FIRST_OF_SEGMENT
        assert ticks[-1].flags & TickFlag.LAST_OF_SEGMENT
        assert not any(t.flags & TickFlag.LAST_OF_SEGMENT for t in ticks[:-1])
    assert [t.segment_id for t in driver.speaking()] == [1] * 8 + [2] * 5
    assert driver.ticks[-1].segment_id == 0


@pytest.mark.parametrize("skip_samples", [1, 960, 3000, 7199, 7200, 99_999])
def test_what_was_emitted_before_is_skipped_exactly(skip_samples: int) -> None:
    async def body(driver: Driver) -> None:
        driver.stub.bind(live())
        driver.stub.set_credit(0, 10_000)
        driver.stub.feed(0, segment("five!", skip_samples=skip_samples))
        await asyncio.sleep(1.0)

    ticks = run(body).speaking()
    assert ticks[0].sample_start == min(skip_samples, 7200)
    assert sum(t.speech_samples for t in ticks) == max(0, 7200 - skip_samples)
    assert ticks[-1].flags & TickFlag.LAST_OF_SEGMENT


def test_credit_holds_back() -> None:
    async def body(driver: Driver) -> None:
        driver.stub.bind(live())
        driver.stub.set_credit(0, 2)
        await asyncio.sleep(5.0)
        assert [tick.frame_index for tick in driver.ticks] == [0, 1, 2]
        driver.stub.set_credit(0, 1)
        driver.stub.set_credit(0, 4)
        assert len(driver.ticks) == 3, "never inside a call"
        await asyncio.sleep(1.0)
        assert [tick.frame_index for tick in driver.ticks] == [0, 1, 2, 3, 4]

    run(body)


def test_an_interrupt_silences_at_once() -> None:
    async def body(driver: Driver) -> None:
        driver.stub.bind(live())
        driver.stub.set_credit(0, 10_000)
        driver.stub.feed(0, segment("a rather long text to speak", 1))
        driver.stub.feed(0, segment("more of it", 2))
        await asyncio.sleep(0.2)
        driver.stub.interrupt(0, 1)
        before = len(driver.speaking())
        driver.stub.feed(0, segment("late", 3, utterance=0))
        driver.stub.feed(0, segment("new", 4, utterance=1))
        await asyncio.sleep(2.0)
        after = driver.speaking()[before:]
        assert {(t.segment_id, t.utterance) for t in after} == {(4, 1)}
        assert driver.ticks[-1].utterance == 1

    run(body)


def test_unbound_slots_refuse_and_bindings_grow() -> None:
    async def body(driver: Driver) -> None:
        stub = driver.stub
        first = stub.bind(live())
        with pytest.raises(NoLiveSlot):
            stub.bind(live())
        stub.set_credit(0, 100)
        await asyncio.sleep(0.1)
        stub.unbind(0)
        seen = len(driver.ticks)
        stub.unbind(0)
        stub.set_credit(0, 1000)
        stub.interrupt(0, 5)
        stub.request_keyframe(0)
        assert not stub.room(0)
        with pytest.raises(NotBound):
            stub.feed(0, segment("x"))
        await asyncio.sleep(1.0)
        assert len(driver.ticks) == seen
        assert stub.bind(live()).binding == first.binding + 1

    run(body, live_slots=1)


def test_room_is_bounded() -> None:
    async def body(driver: Driver) -> None:
        driver.stub.bind(live())
        for n in range(SEGMENTS_PER_LIVE_MAX):
            assert driver.stub.room(0)
            driver.stub.feed(0, segment("x", n + 1))
        assert not driver.stub.room(0)
        with pytest.raises(RingFull):
            driver.stub.feed(0, segment("x", 9))

    run(body)


def test_key_frames_are_made_first_and_on_request() -> None:
    async def body(driver: Driver) -> None:
        driver.stub.bind(live())
        driver.stub.set_credit(0, 3)
        await asyncio.sleep(1.0)
        driver.stub.request_keyframe(0)
        driver.stub.set_credit(0, 6)
        await asyncio.sleep(1.0)

    assert [t.keyframe for t in run(body).ticks] == [True, False, False, False, True, False, False]


@pytest.mark.parametrize("tick_frames", [5, 25])
def test_coarse_progress_says_the_same_with_fewer_ticks(tick_frames: int) -> None:
    async def body(driver: Driver) -> None:
        driver.stub.bind(live())
        driver.stub.set_credit(0, 10_000)
        driver.stub.feed(0, segment("a text of some length", 1, skip_samples=500))
        driver.stub.feed(0, segment("short", 2))
        await asyncio.sleep(4.0)

    fine, coarse = run(body), run(body, tick_frames=tick_frames)
    assert len(coarse.ticks) < len(fine.ticks) / 3
    for driver in (fine, coarse):
        mine = [t for t in driver.ticks if t.segment_id == 1]
        assert sum(t.speech_samples for t in mine) == spoken_samples("a text of some length") - 500
        for earlier, later in itertools.pairwise(mine):
            assert later.sample_start == earlier.sample_start + earlier.speech_samples
    ends = [next(t.frame_index for t in d.ticks if t.segment_id == 2) for d in (fine, coarse)]
    assert ends[0] == ends[1], "the second segment begins at the same frame"


def test_without_idle_ticks_frames_follow_the_clock() -> None:
    async def body(driver: Driver) -> None:
        driver.stub.bind(live(start_frame=7))
        driver.stub.set_credit(0, 10_000)
        await asyncio.sleep(10.0)
        assert driver.ticks == []
        driver.stub.feed(0, segment("five!"))
        await asyncio.sleep(1.0)

    driver = run(body, idle_ticks=False)
    assert [t.frame_index for t in driver.ticks] == list(range(7 + 254, 7 + 254 + 8))
    assert driver.times_s[0] == pytest.approx(10.0)


def test_troubles_can_be_made() -> None:
    async def body(driver: Driver) -> None:
        driver.stub.bind(live())
        driver.stub.set_credit(0, 10_000)
        driver.stub.feed(0, segment("first", 1))
        driver.stub.feed(0, segment("second", 2))
        driver.stub.fail_segment(0, "no voice")
        assert driver.troubles == [], "never inside a call"
        await asyncio.sleep(2.0)
        assert driver.troubles == [SegmentFailed(0, 1, 1, "no voice")]
        assert {t.segment_id for t in driver.speaking()} == {2}
        driver.stub.lose_stage("motion", "gone")
        seen = len(driver.ticks)
        await asyncio.sleep(1.0)
        assert driver.troubles[1] == StageLost("motion", "gone")
        assert len(driver.ticks) == seen

    run(body)


def test_the_same_calls_give_the_same_ticks() -> None:
    async def body(driver: Driver) -> None:
        for n in range(5):
            driver.stub.bind(live(start_frame=n))
            driver.stub.set_credit(n, 100 + n)
            driver.stub.feed(n, segment("text " * n, n + 1))
            await asyncio.sleep(0.333)
        await asyncio.sleep(3)

    one, other = run(body), run(body)
    assert one.ticks == other.ticks
    assert one.times_s == other.times_s
