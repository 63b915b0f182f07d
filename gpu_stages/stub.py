"""`StubRuntime`: the stages' contract without media, in process, driven by the loop's own clock.

For tests of the controller, for the simulator and for replay of decisions: no process, no thread,
no randomness, and time only from `loop.time()`, so a loop with virtual time makes it deterministic.
Speech lasts a fixed time per character; ticks have empty payloads and right numbers.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from gpu_stages.runtime_contract import (
    Binding,
    BoundLive,
    NoLiveSlot,
    NotBound,
    RingFull,
    Segment,
    SegmentFailed,
    StageLost,
    StageTrouble,
)
from schemas.media import SAMPLE_RATE_HZ, TICK_MS, TICK_SAMPLES, MediaTick, TickFlag

MS_PER_CHARACTER = 60
SEGMENTS_PER_LIVE_MAX = 4
LEAD_FRAMES = 4
_TICKS_PER_TURN_MAX = 256
_TOO_EARLY_S = 1e-6
# As plain numbers while a tick is made: `Flag` makes an object for every `|`.
_FIRST, _LAST = int(TickFlag.FIRST_OF_SEGMENT), int(TickFlag.LAST_OF_SEGMENT)
_KEYFRAME = int(TickFlag.KEYFRAME)
_FLAGS = [TickFlag(number) for number in range((_FIRST | _LAST | _KEYFRAME) + 1)]


def spoken_samples(text: str, ms_per_character: int = MS_PER_CHARACTER) -> int:
    """How many 24 kHz samples the stub speaks a text for."""
    return len(text) * ms_per_character * SAMPLE_RATE_HZ // 1000


@dataclass(slots=True)
class _Speech:
    """A fed segment. `next_sample` starts at what is skipped and ends at `samples`."""

    segment: Segment
    samples: int
    next_sample: int
    begun: bool = False


@dataclass(slots=True)
class _Live:
    """One binding. `next_frame` is the first frame that no tick was made for."""

    live: BoundLive
    binding: int
    bound_at_s: float
    next_frame: int
    credit_frame: int
    utterance: int = 0
    keyframe: bool = True
    queue: deque[_Speech] = field(default_factory=deque[_Speech])
    timer: asyncio.Handle | None = None


class StubRuntime:
    """A `StageRuntime` of arithmetic.

    `tick_frames` N makes one tick for up to N frames of one segment (or of idling), whose
    `speech_samples` may then exceed a tick's 960: coarse progress for a simulator. `idle_ticks`
    False makes no ticks while nothing is spoken; frame numbers follow the clock all the same.
    A tick is made no earlier than `LEAD_FRAMES` before its time, and never above the credit.
    """

    def __init__(
        self,
        *,
        live_slots: int = 16,
        ms_per_character: int = MS_PER_CHARACTER,
        tick_frames: int = 1,
        idle_ticks: bool = True,
    ) -> None:
        self._live_slots = live_slots
        self._ms_per_character = ms_per_character
        self._tick_frames = tick_frames
        self._idle_ticks = idle_ticks
        self._free = deque(range(live_slots))
        self._lives: dict[int, _Live] = {}
        self._bindings = 0
        self._counts: Counter[str] = Counter()

    async def start(
        self,
        on_tick: Callable[[MediaTick], None],
        on_trouble: Callable[[StageTrouble], None],
    ) -> None:
        """See `StageRuntime`."""
        self._loop = asyncio.get_running_loop()
        self._on_tick = on_tick
        self._on_trouble = on_trouble

    async def close(self) -> None:
        """See `StageRuntime`."""
        for live_slot in list(self._lives):
            self.unbind(live_slot)

    def bind(self, live: BoundLive) -> Binding:
        """See `StageRuntime`."""
        if not self._free:
            raise NoLiveSlot(f"all {self._live_slots} are bound")
        live_slot = self._free.popleft()
        self._bindings += 1
        self._lives[live_slot] = _Live(
            live, self._bindings, self._loop.time(), live.start_frame, live.start_frame - 1
        )
        return Binding(live_slot, self._bindings)

    def unbind(self, live_slot: int) -> None:
        """See `StageRuntime`."""
        live = self._lives.pop(live_slot, None)
        if live is not None:
            self._free.append(live_slot)
            if live.timer is not None:
                live.timer.cancel()

    def room(self, live_slot: int) -> bool:
        """See `StageRuntime`."""
        live = self._lives.get(live_slot)
        return live is not None and len(live.queue) < SEGMENTS_PER_LIVE_MAX

    def feed(self, live_slot: int, segment: Segment) -> None:
        """See `StageRuntime`."""
        live = self._lives.get(live_slot)
        if live is None:
            raise NotBound(f"live slot {live_slot}")
        if not self.room(live_slot):
            raise RingFull(f"live slot {live_slot} has {len(live.queue)} segments waiting")
        self._counts["segments_fed"] += 1
        if segment.utterance < live.utterance:
            return
        samples = spoken_samples(segment.text, self._ms_per_character)
        if not live.queue and not self._idle_ticks:
            elapsed_s = self._loop.time() - live.bound_at_s + _TOO_EARLY_S
            ahead = int(elapsed_s * 1000 / TICK_MS) + LEAD_FRAMES
            live.next_frame = max(live.next_frame, live.live.start_frame + ahead)
        live.queue.append(_Speech(segment, samples, min(segment.skip_samples, samples)))
        self._arm(live_slot, live)

    def interrupt(self, live_slot: int, utterance: int) -> None:
        """See `StageRuntime`."""
        live = self._lives.get(live_slot)
        if live is not None and utterance > live.utterance:
            live.utterance = utterance
            live.queue = deque(s for s in live.queue if s.segment.utterance >= utterance)

    def set_credit(self, live_slot: int, credit_frame: int) -> None:
        """See `StageRuntime`."""
        live = self._lives.get(live_slot)
        if live is not None and credit_frame > live.credit_frame:
            live.credit_frame = credit_frame
            self._arm(live_slot, live)

    def request_keyframe(self, live_slot: int) -> None:
        """See `StageRuntime`."""
        live = self._lives.get(live_slot)
        if live is not None:
            live.keyframe = True

    def stats(self) -> Mapping[str, object]:
        """See `StageRuntime`."""
        return {"live_slots": self._live_slots, "bound": len(self._lives), **self._counts}

    # -- troubles on demand ----------------------------------------------------------------------

    def lose_stage(self, stage: str = "render", reason: str = "lost on demand") -> None:
        """What a stage's crash looks like: every binding is void, then `StageLost`."""
        for live_slot in list(self._lives):
            self.unbind(live_slot)
        self._loop.call_soon(self._on_trouble, StageLost(stage, reason))

    def fail_segment(self, live_slot: int, reason: str = "failed on demand") -> None:
        """Fail the segment that is spoken or next; without effect when there is none."""
        live = self._lives.get(live_slot)
        if live is None or not live.queue:
            return
        failed = live.queue.popleft().segment
        trouble = SegmentFailed(live_slot, live.binding, failed.segment_id, reason)
        self._loop.call_soon(self._on_trouble, trouble)

    # -- ticks -----------------------------------------------------------------------------------

    def _arm(self, live_slot: int, live: _Live) -> None:
        """Set the timer for the next tick; none while credit or work is missing."""
        if live.timer is not None:
            live.timer.cancel()
            live.timer = None
        due_s = self._due_s(live)
        if due_s is not None:
            live.timer = self._loop.call_at(due_s, self._turn, live_slot, live)

    def _frames(self, live: _Live) -> int:
        """How many frames the next tick covers."""
        if not live.queue or self._tick_frames == 1:
            return self._tick_frames
        speech = live.queue[0]
        left = -(-(speech.samples - speech.next_sample) // TICK_SAMPLES)
        return min(self._tick_frames, max(1, left))

    def _due_s(self, live: _Live) -> float | None:
        if not live.queue and not self._idle_ticks:
            return None
        last = live.next_frame + self._frames(live) - 1
        if last > live.credit_frame:
            return None
        ahead_frames = last - live.live.start_frame - LEAD_FRAMES
        return live.bound_at_s + max(0, ahead_frames) * TICK_MS / 1000

    def _turn(self, live_slot: int, live: _Live) -> None:
        live.timer = None
        for _ in range(_TICKS_PER_TURN_MAX):
            due_s = self._due_s(live)
            if due_s is None or due_s > self._loop.time() + _TOO_EARLY_S:
                break
            self._on_tick(self._make_tick(live_slot, live))
            if self._lives.get(live_slot) is not live:
                return
        self._arm(live_slot, live)

    def _make_tick(self, live_slot: int, live: _Live) -> MediaTick:
        frames = self._frames(live)
        flags = _KEYFRAME if live.keyframe else 0
        live.keyframe = False
        segment_id, sample_start, speech_samples, utterance = 0, -1, 0, live.utterance
        if live.queue:
            speech = live.queue[0]
            segment_id, utterance = speech.segment.segment_id, speech.segment.utterance
            sample_start = speech.next_sample
            speech_samples = min(frames * TICK_SAMPLES, speech.samples - sample_start)
            flags |= 0 if speech.begun else _FIRST
            speech.begun = True
            speech.next_sample += speech_samples
            if speech.next_sample >= speech.samples:
                flags |= _LAST
                live.queue.popleft()
        frame_index = live.next_frame
        live.next_frame += frames
        self._counts["ticks"] += 1
        return MediaTick(
            live_slot=live_slot,
            binding=live.binding,
            epoch=live.live.epoch,
            utterance=utterance,
            frame_index=frame_index,
            segment_id=segment_id,
            sample_start=sample_start,
            speech_samples=speech_samples,
            flags=_FLAGS[flags],
            opus=(b"", b""),
            video=b"",
            stamps_us=(0, 0, 0, 0),
        )
