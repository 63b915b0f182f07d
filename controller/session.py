"""One live's shell: carries out what its machine says, and tells it what came of it.

Everything here runs on the event loop and returns at once. What waits for the outside is begun
through `SessionHost` and comes back as an event. Events that arise while instructions are carried
out are handled right after them, in order.
"""

import asyncio
from collections import deque
from dataclasses import dataclass
from hashlib import blake2b
from typing import Protocol, assert_never

from controller import events as ev
from controller import instructions as do
from controller.clock import Clock
from controller.counters import Counters
from controller.media import Egress, Media
from controller.partition_feed import Route
from controller.release import ReleaseBatcher, feed
from controller.session_machine import SessionLimits, SessionMachine
from controller.session_states import State
from gpu_stages.runtime_contract import (
    Binding,
    BoundLive,
    NoLiveSlot,
    StageRuntime,
    VideoTooLarge,
)
from schemas.events import EventKind
from schemas.media import MediaTick, TickFlag
from schemas.store_values import Generation

_LAST = int(TickFlag.LAST_OF_SEGMENT)
_MUTED = int(TickFlag.MUTED)


class SessionHost(Protocol):
    """What a session asks of its worker. Everything returns at once."""

    def read_from(self, session: "Session", order: do.ReadFrom) -> None: ...

    def stop_reading(self, session: "Session") -> None: ...

    def refill(self, session: "Session") -> None:
        """There is room again for records that were passed over."""
        ...

    def claim(self, session: "Session", order: do.Claim) -> None: ...

    def send_letter(self, session: "Session", order: do.SendLetter) -> None: ...

    def hand_over(self, session: "Session", order: do.HandOver) -> None: ...

    def close_live(self, session: "Session", order: do.CloseLive) -> None: ...

    def confirm_gone(self, session: "Session") -> None: ...

    def check_refusal(self, session: "Session") -> None: ...

    def publish(self, session: "Session", order: do.Publish) -> None: ...

    def ended(self, session: "Session") -> None:
        """Nothing is left of it."""
        ...

    def broke(self, session: "Session", error: Exception) -> None:
        """A broken invariant: the worker stops."""
        ...


@dataclass(frozen=True, slots=True)
class SessionParts:
    """What every session of a worker shares."""

    runtime: StageRuntime
    media: Media
    batcher: ReleaseBatcher
    clock: Clock
    counters: Counters
    limits: SessionLimits
    bound: dict[int, "Session"]
    """By live slot: where ticks and troubles of the stages go."""


class Session:
    """See the module. `partition` is known from the claim on."""

    def __init__(
        self,
        live_id: str,
        generation: Generation,
        host: SessionHost,
        parts: SessionParts,
    ) -> None:
        self.live_id = live_id
        self.generation = generation
        self.partition = -1
        self.machine = SessionMachine(live_id, generation, parts.limits)
        self.egress: Egress | None = None
        self.route: Route | None = None
        """Where its records come from, while it reads."""
        self._host = host
        self._parts = parts
        self._binding: Binding | None = None
        self._inbox: deque[ev.Event] = deque()
        self._busy = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._refused_permit: do.Feed | None = None

    # -- events in

    def post(self, event: ev.Event) -> None:
        """Handle an event, and all that follow from it."""
        self._inbox.append(event)
        if self._busy:
            return
        self._busy = True
        try:
            while self._inbox:
                now_ms = self._parts.clock.now_ms()
                for instruction in self.machine.handle(self._inbox.popleft(), now_ms):
                    self._do(instruction)
        except Exception as error:
            self._inbox.clear()
            self._host.broke(self, error)
        finally:
            self._busy = False
        route = self.route
        if route is not None and route.ahead.holed and self.roomy:
            self._host.refill(self)
        self._arm()

    def push_tick(self, tick: MediaTick) -> None:
        """A tick from the encode stage."""
        if self.egress is not None:
            self.egress.push(tick)

    def trouble(self, binding: int, event: ev.SegmentBroken) -> None:
        """A stage's complaint, if it is about the present binding."""
        if self._binding is not None and self._binding.binding == binding:
            self.post(event)

    def stages_lost(self, reason: str) -> None:
        """The binding is void."""
        if self._binding is not None:
            self._leave_slot(self._binding.live_slot)
            self._binding = None
        self.post(ev.StagesLost(reason))

    def _leave_slot(self, live_slot: int) -> None:
        """Take no more ticks from it, unless it is another session's by now: when all bindings are
        void at once, a session that bound again may have got the slot of one that did not yet."""
        if self._parts.bound.get(live_slot) is self:
            del self._parts.bound[live_slot]

    @property
    def room(self) -> tuple[int, int]:
        """How many records and characters may still be kept."""
        queue = self.machine.queue
        return (0, 0) if queue is None else queue.room

    @property
    def roomy(self) -> bool:
        """Whether half of what may be kept is free."""
        queue = self.machine.queue
        return queue is not None and queue.roomy

    @property
    def first_unreleased(self) -> int | None:
        """The lowest offset that is known and not disposed of."""
        return self.machine.first_unreleased

    @property
    def speaking(self) -> bool:
        return self.machine.state is State.SPEAKING

    def _sent(self, tick: MediaTick, _now_us: int) -> None:
        machine = self.machine
        machine.next_frame = max(machine.next_frame, tick.frame_index + 1)
        if tick.segment_id:
            # As plain numbers: `Flag` makes an object for every `&`, at every tick of every live.
            flags = int(tick.flags)
            self.post(
                ev.TickSent(
                    tick.segment_id,
                    tick.sample_start + tick.speech_samples,
                    flags & _LAST != 0,
                    flags & _MUTED != 0,
                )
            )

    # -- instructions out

    def _do(self, order: do.Instruction) -> None:
        host = self._host
        match order:
            case do.WantRelease():
                self._parts.batcher.want(self)
            case do.RequestRelease():
                self._parts.batcher.submit(self, order)
            case do.Feed():
                self._feed(order)
            case do.Publish():
                host.publish(self, order)
            case do.Claim():
                host.claim(self, order)
            case do.ReadFrom():
                host.read_from(self, order)
            case do.StopReading():
                host.stop_reading(self)
            case do.Bind():
                self._bind(order)
            case do.Unbind():
                self._unbind()
            case do.SendLetter():
                host.send_letter(self, order)
            case do.Silence(utterance):
                self._silence(utterance)
            case do.Freeze():
                if self.egress is not None:
                    self.egress.freeze()
            case do.Thaw():
                if self.egress is not None:
                    self.egress.thaw()
            case do.HandOver():
                host.hand_over(self, order)
            case do.CloseLive():
                host.close_live(self, order)
            case do.ConfirmGone():
                host.confirm_gone(self)
            case do.CheckRefusal():
                host.check_refusal(self)
            case _:
                assert_never(order)

    def _feed(self, order: do.Feed) -> None:
        """In order or not at all: behind a segment that found no room none of its permit goes."""
        refused = self._refused_permit
        blocked = refused is not None and refused.permit is order.permit
        binding = self._binding
        counters = self._parts.counters
        if (
            not blocked
            and binding is not None
            and feed(self._parts.runtime, binding.live_slot, order.permit, self, order.segment)
        ):
            counters.segments_fed += 1
            return
        counters.feeds_refused += 1
        self._refused_permit = order
        self._inbox.append(ev.FeedRefused(order.segment.segment_id))

    def _bind(self, order: do.Bind) -> None:
        parts = self._parts
        options = order.options
        seed = options.seed if options.seed is not None else _seed(self.live_id)
        live = BoundLive(self.live_id, self.generation.epoch, options, seed, order.start_frame)
        try:
            binding = parts.runtime.bind(live)
        except NoLiveSlot as error:
            self._inbox.append(ev.BindRefused(str(error), retryable=True))
            return
        except VideoTooLarge as error:
            self._inbox.append(ev.BindRefused(str(error), retryable=False))
            return
        self._binding = binding
        slot = binding.live_slot
        parts.bound[slot] = self
        if order.utterance:
            parts.runtime.interrupt(slot, order.utterance)
        where = {
            "binding": binding.binding,
            "epoch": self.generation.epoch,
            "start_frame": order.start_frame,
        }
        self._inbox.append(ev.Bound(slot, binding.binding))
        if self.egress is not None:
            parts.media.rebind(self.egress, **where)
            return
        self.egress = parts.media.open(
            live_id=self.live_id,
            on_sent=self._sent,
            set_credit=self._set_credit,
            request_keyframe=self._request_keyframe,
            on_viewers=self._viewers_changed,
            **where,
        )

    def _set_credit(self, frame: int) -> None:
        if self._binding is not None:
            self._parts.runtime.set_credit(self._binding.live_slot, frame)

    def _request_keyframe(self) -> None:
        if self._binding is not None:
            self._parts.runtime.request_keyframe(self._binding.live_slot)

    def _viewers_changed(self, viewers: int) -> None:
        """Dispatch counts on it to end lives that nobody watches."""
        self._host.publish(self, do.Publish(EventKind.STATE_UPDATED, data={"viewers": viewers}))

    def _unbind(self) -> None:
        binding, self._binding = self._binding, None
        if binding is not None:
            self._leave_slot(binding.live_slot)
            self._parts.runtime.unbind(binding.live_slot)
        egress, self.egress = self.egress, None
        if egress is not None:
            self._parts.media.shut(egress)

    def _silence(self, utterance: int) -> None:
        self._parts.counters.interrupts += 1
        if self._binding is not None:
            self._parts.runtime.interrupt(self._binding.live_slot, utterance)
        if self.egress is not None:
            self.egress.interrupt(utterance)

    # -- time

    def _arm(self) -> None:
        """One timer. It is only ever set earlier; one that fires too early sets itself again."""
        if self.machine.state is State.GONE:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            self._host.ended(self)
            return
        deadline_ms = self.machine.deadline_ms
        if deadline_ms is None or (self._timer is not None and self._timer_ms <= deadline_ms):
            return
        if self._timer is not None:
            self._timer.cancel()
        wait_ms = max(0, deadline_ms - self._parts.clock.now_ms())
        self._timer_ms = deadline_ms
        self._timer = asyncio.get_running_loop().call_later(wait_ms / 1000, self._fire)

    def _fire(self) -> None:
        self._timer = None
        deadline_ms = self.machine.deadline_ms
        if deadline_ms is not None and deadline_ms <= self._parts.clock.now_ms():
            self.post(ev.TimeReached())
        else:
            self._arm()

    def drop(self) -> None:
        """Forget everything at once, telling nobody: the incarnation is dead."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._unbind()


def _seed(live_id: str) -> int:
    """u64: a live without a seed of its own looks and moves the same on every owner."""
    return int.from_bytes(blake2b(live_id.encode(), digest_size=8).digest(), "little")
