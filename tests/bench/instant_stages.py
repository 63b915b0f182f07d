"""Stages and a way out that take no time: every segment is spoken the moment it is fed.

What is left of a worker is what its controller does: consume, gather, fence, release, tell. Each
segment comes back as one tick that carries all of it, in the next turn of the loop, because the
contract lets no callback run inside a call.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from controller.media import Egress
from gpu_stages.runtime_contract import (
    Binding,
    BoundLive,
    NoLiveSlot,
    NotBound,
    Segment,
    StageTrouble,
)
from rtc_output.egress import SentPosition, TickRefusal
from schemas.media import SAMPLE_RATE_HZ, MediaTick, TickFlag

MS_PER_CHARACTER = 60
WHOLE = TickFlag.FIRST_OF_SEGMENT | TickFlag.LAST_OF_SEGMENT


class InstantStages:
    """A `StageRuntime`. `fed(live, segment)` is called at every segment, right after its commit."""

    def __init__(self, live_slots: int, fed: Callable[[BoundLive, Segment], None]) -> None:
        self._free = deque(range(live_slots))
        self._lives: dict[int, tuple[BoundLive, int]] = {}
        self._frames: dict[int, int] = {}
        self._bindings = 0
        self._ticks: list[MediaTick] = []
        self._fed = fed

    async def start(
        self,
        on_tick: Callable[[MediaTick], None],
        on_trouble: Callable[[StageTrouble], None],
    ) -> None:
        """See `StageRuntime`."""
        self._loop = asyncio.get_running_loop()
        self._on_tick = on_tick

    async def close(self) -> None:
        """See `StageRuntime`."""
        self._lives.clear()

    def bind(self, live: BoundLive) -> Binding:
        """See `StageRuntime`."""
        if not self._free:
            raise NoLiveSlot("all are bound")
        live_slot = self._free.popleft()
        self._bindings += 1
        self._lives[live_slot] = (live, self._bindings)
        self._frames[live_slot] = live.start_frame
        return Binding(live_slot, self._bindings)

    def unbind(self, live_slot: int) -> None:
        """See `StageRuntime`."""
        if self._lives.pop(live_slot, None) is not None:
            self._free.append(live_slot)

    def room(self, live_slot: int) -> bool:
        """See `StageRuntime`."""
        return live_slot in self._lives

    def feed(self, live_slot: int, segment: Segment) -> None:
        """See `StageRuntime`."""
        bound = self._lives.get(live_slot)
        if bound is None:
            raise NotBound(f"live slot {live_slot}")
        live, binding = bound
        self._fed(live, segment)
        frame = self._frames[live_slot]
        self._frames[live_slot] = frame + 1
        if not self._ticks:
            self._loop.call_soon(self._tick_all)
        samples = len(segment.text) * MS_PER_CHARACTER * SAMPLE_RATE_HZ // 1000
        self._ticks.append(
            MediaTick(
                live_slot,
                binding,
                live.epoch,
                segment.utterance,
                frame,
                segment.segment_id,
                segment.skip_samples,
                max(0, samples - segment.skip_samples),
                WHOLE,
                (b"", b""),
                b"",
                (0, 0, 0, 0),
            )
        )

    def _tick_all(self) -> None:
        ticks, self._ticks = self._ticks, []
        for tick in ticks:
            self._on_tick(tick)

    def interrupt(self, live_slot: int, utterance: int) -> None:
        """Everything fed was spoken."""

    def set_credit(self, live_slot: int, credit_frame: int) -> None:
        """Nothing is ahead of anything."""

    def request_keyframe(self, live_slot: int) -> None:
        """There are no pictures."""

    def stats(self) -> Mapping[str, object]:
        """See `StageRuntime`."""
        return {"bound": len(self._lives)}


class DirectEgress:
    """Sends a tick when it comes, under the binding and epoch that it has."""

    def __init__(
        self, binding: int, epoch: int, start_frame: int, on_sent: Callable[[MediaTick, int], None]
    ) -> None:
        self.binding = binding
        self.epoch = epoch
        self._next_frame = start_frame
        self._on_sent = on_sent
        self._held: list[MediaTick] | None = None

    def push(self, tick: MediaTick) -> TickRefusal | None:
        """See `Egress`."""
        if tick.binding != self.binding:
            return TickRefusal.WRONG_BINDING
        if tick.epoch < self.epoch:
            return TickRefusal.LOWER_EPOCH
        if self._held is not None:
            self._held.append(tick)
            return None
        self._next_frame = tick.frame_index + 1
        self._on_sent(tick, 0)
        return None

    def interrupt(self, utterance: int) -> SentPosition:
        """See `Egress`."""
        return SentPosition(self._next_frame, 0, 0, utterance, 0)

    def freeze(self) -> SentPosition:
        """See `Egress`."""
        self._held = []
        return SentPosition(self._next_frame, 0, 0, 0, 0)

    def thaw(self) -> None:
        """See `Egress`."""
        held, self._held = self._held or [], None
        for tick in held:
            self.push(tick)


class DirectMedia:
    """A `Media` without pacing."""

    def open(self, *, binding: int, epoch: int, start_frame: int, **made: Any) -> Egress:
        """See `Media`."""
        return DirectEgress(binding, epoch, start_frame, made["on_sent"])

    def rebind(self, egress: Egress, *, binding: int, epoch: int, start_frame: int) -> None:
        """See `Media`."""
        assert isinstance(egress, DirectEgress)
        egress.binding, egress.epoch = binding, epoch
        egress.thaw()

    def shut(self, egress: Egress) -> None:
        """Nothing is kept."""

    def close(self) -> None:
        """Nothing is kept."""
