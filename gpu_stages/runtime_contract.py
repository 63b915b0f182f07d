"""What the controller sees of the stages: bind a live, feed segments, get ticks.

Order and authority:

- `bind` is first; the binding that it returns is in every message made under it. `unbind` and a
  `StageLost` void a binding at once, in every stage: its later messages are refused and counted.
- Callbacks run on the event loop, never inside a call of this interface.
- Only the controller's release calls `feed`, right after the commit that allows it.
- Nothing here waits for a stage, except `start` and `close`.
- A slot that is not bound is no error where the caller may not know yet that the binding is void:
  `unbind`, `interrupt`, `set_credit` and `request_keyframe` then do nothing.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from schemas.media import MediaTick
from schemas.options import LiveOptions
from schemas.quick_init import quick_init


@dataclass(frozen=True, slots=True)
class BoundLive:
    """A live to make media for. `start_frame` is the index of its first tick here (25 fps ticks
    since the live began, over all its moves); `seed` is the live's, for idle motion."""

    live_id: str
    epoch: int
    options: LiveOptions
    seed: int
    start_frame: int


@quick_init
@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of text to speak, about a sentence.

    `segment_id` (u64, not 0) is unique in its live; `skip_samples` (24 kHz) were already emitted
    by an earlier owner and are left out; `seed` (u64) makes the samples the same anywhere.
    """

    segment_id: int
    utterance: int
    text: str
    skip_samples: int
    seed: int


@dataclass(frozen=True, slots=True)
class Binding:
    """Where a live was bound. `binding` grows with every bind of this worker, from 1."""

    live_slot: int
    binding: int


@dataclass(frozen=True, slots=True)
class StageLost:
    """A stage process died and is being restarted. Every binding is void; bind again at once, from
    the checkpoints: what is fed waits in the ring until the stage is back."""

    stage: str
    reason: str


@dataclass(frozen=True, slots=True)
class StageGaveUp:
    """A stage died too often, or never became ready again. This runtime makes no more media."""

    stage: str
    reason: str


@quick_init
@dataclass(frozen=True, slots=True)
class SegmentFailed:
    """A stage could not make this segment; the live goes on with its next one."""

    live_slot: int
    binding: int
    segment_id: int
    reason: str


StageTrouble = StageLost | StageGaveUp | SegmentFailed


class NoLiveSlot(Exception):
    """Every live slot of this worker is bound."""


class VideoTooLarge(ValueError):
    """The live asks for a larger picture than the rings of this worker hold."""


class RingFull(Exception):
    """The first ring has no room for this live now; ask `room` first."""


class NotBound(Exception):
    """The slot holds no binding (unbound, or void after a `StageLost`)."""


class StageRuntime(Protocol):
    """The stages of one worker, as the controller uses them."""

    async def start(
        self,
        on_tick: Callable[[MediaTick], None],
        on_trouble: Callable[[StageTrouble], None],
    ) -> None:
        """Start the stages; returns when every one is ready. Raises `StageFailedToStart`."""
        ...

    def bind(self, live: BoundLive) -> Binding:
        """Give the live a slot; idle ticks follow as credits allow, from `start_frame` on.

        The first credit is `start_frame - 1`: nothing is made before `set_credit`. Raises
        `NoLiveSlot` and `VideoTooLarge`.
        """
        ...

    def unbind(self, live_slot: int) -> None:
        """At once: every later message of that binding is refused. Without effect when unbound."""
        ...

    def room(self, live_slot: int) -> bool:
        """Whether `feed` would take a segment of this live now. False when it is not bound."""
        ...

    def feed(self, live_slot: int, segment: Segment) -> None:
        """Let one segment into the first ring. Raises `RingFull` and `NotBound`."""
        ...

    def interrupt(self, live_slot: int, utterance: int) -> None:
        """Raise the live's utterance: what belongs to a lower one is silent within one tick."""
        ...

    def set_credit(self, live_slot: int, credit_frame: int) -> None:
        """Allow ticks up to and including this frame index. It grows; lower ones do nothing."""
        ...

    def request_keyframe(self, live_slot: int) -> None:
        """Ask the encoder for a key frame at the next tick."""
        ...

    def stats(self) -> Mapping[str, object]:
        """Figures for the worker's metrics, nested by stage; nothing here is authority."""
        ...

    async def close(self) -> None:
        """Stop everything, within a bounded time. No process, descriptor or thread is left."""
        ...
