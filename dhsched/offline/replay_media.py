"""The way out of a replayed live: every tick goes out exactly at its place on one media clock.

The clock is the live's, over all its owners: frame 0 is due when the live was first bound, every
frame 40 ms after the one before. A tick is asked for in the instant in which it is due, since
making it costs no time here; so what was heard, checkpointed and released at any moment does not
depend on how far stages run ahead, and an owner that takes over at frame n goes on with frame n.

An owner that has to begin at an earlier frame (it was given no exact position) makes the missing
ticks at once. They were heard before: they are compared with what was heard, and heard once.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from controller.media import Egress
from rtc_output.egress import SentPosition, TickRefusal
from rtc_output.units import TICK_US
from schemas.media import MediaTick, TickFlag


class Heard(Protocol):
    """Who listens to the live, over all its owners."""

    @property
    def next_frame(self) -> int:
        """The first frame that was not heard yet."""
        ...

    def hear(self, owner: str, tick: MediaTick) -> None:
        """A tick went out; MUTED ones without their sound."""
        ...


@dataclass(slots=True)
class MediaLine:
    """The live's media clock: when each frame is due, in microseconds of virtual time."""

    origin_us: int | None = None

    def due_us(self, frame: int) -> int:
        """When it goes out."""
        if self.origin_us is None:
            raise ValueError("the live was never bound")
        return self.origin_us + frame * TICK_US

    def frame_at(self, now_us: int) -> int:
        """The last frame that is due."""
        return (now_us - (self.origin_us or 0)) // TICK_US


class ReplayEgress:
    """One owner's way out; see `controller.media.Egress`."""

    def __init__(
        self,
        owner: str,
        line: MediaLine,
        heard: Heard,
        now_us: Callable[[], int],
        *,
        binding: int,
        epoch: int,
        start_frame: int,
        on_sent: Callable[[MediaTick, int], None],
        set_credit: Callable[[int], None],
        request_keyframe: Callable[[], None],
    ) -> None:
        self._owner = owner
        self._line = line
        self._heard = heard
        self._now_us = now_us
        self._on_sent = on_sent
        self._set_credit = set_credit
        self._request_keyframe = request_keyframe
        self._utterance = 0
        self._frozen = False
        self._closed = False
        self._held: deque[MediaTick] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self.begin(binding, epoch, start_frame)

    def begin(self, binding: int, epoch: int, start_frame: int) -> None:
        """Go on with a binding, from its first frame on."""
        self._binding = binding
        self._epoch = epoch
        self._next = start_frame
        self._frozen = False
        self._held.clear()
        if self._line.origin_us is None:
            self._line.origin_us = self._now_us() - start_frame * TICK_US
        self._due()

    # -- what the session asks

    def push(self, tick: MediaTick) -> TickRefusal | None:
        """Send it, unless it has no authority or the position must stay as it is."""
        if self._closed:
            return TickRefusal.CLOSED
        if tick.binding != self._binding:
            return TickRefusal.WRONG_BINDING
        if tick.epoch < self._epoch:
            return TickRefusal.LOWER_EPOCH
        if self._frozen:
            self._held.append(tick)
        else:
            self._send(tick)
        return None

    def interrupt(self, utterance: int) -> SentPosition:
        """What belongs to a lower utterance is silent from now on."""
        self._utterance = max(self._utterance, utterance)
        return self._position

    def freeze(self) -> SentPosition:
        """Send nothing, so that the position stays true."""
        self._frozen = True
        return self._position

    def thaw(self) -> None:
        """Go on."""
        self._frozen = False
        held, self._held = self._held, deque()
        for tick in held:
            self._send(tick)

    def close(self) -> None:
        """Nothing goes out any more."""
        self._closed = True
        self._held.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @property
    def _position(self) -> SentPosition:
        return SentPosition(self._next, 0, 0, self._utterance, self._now_us())

    # -- the clock

    def _due(self) -> None:
        """Ask for what is due now, and be here again at the next frame's time."""
        if self._timer is not None:
            self._timer.cancel()
        last = self._line.frame_at(self._now_us())
        before = self._heard.next_frame - 1
        # Up to where the viewer is first: only behind it a key frame is wanted.
        self._set_credit(min(last, before) if self._next <= before else last)
        loop = asyncio.get_running_loop()
        at_s = self._line.due_us(max(last, self._next - 1) + 1) / 1e6
        self._timer = loop.call_at(at_s, self._due)

    def _send(self, tick: MediaTick) -> None:
        self._next = tick.frame_index + 1
        if tick.utterance < self._utterance:
            tick = replace(tick, flags=tick.flags | TickFlag.MUTED)
        again = tick.frame_index < self._heard.next_frame
        self._heard.hear(self._owner, tick)
        self._on_sent(tick, self._now_us())
        if again and self._next == self._heard.next_frame:
            self._request_keyframe()
            self._set_credit(self._line.frame_at(self._now_us()))


class ReplayMedia:
    """Makes the egresses of one controller; see `controller.media.Media`."""

    def __init__(
        self, owner: str, line: MediaLine, heard: Heard, now_us: Callable[[], int]
    ) -> None:
        self._owner = owner
        self._line = line
        self._heard = heard
        self._now_us = now_us
        self._open: set[ReplayEgress] = set()

    def open(
        self,
        *,
        live_id: str,
        binding: int,
        epoch: int,
        start_frame: int,
        on_sent: Callable[[MediaTick, int], None],
        set_credit: Callable[[int], None],
        request_keyframe: Callable[[], None],
        on_viewers: Callable[[int], None],
    ) -> ReplayEgress:
        """A new way out; nobody watches it, so `on_viewers` is never called."""
        egress = ReplayEgress(
            self._owner,
            self._line,
            self._heard,
            self._now_us,
            binding=binding,
            epoch=epoch,
            start_frame=start_frame,
            on_sent=on_sent,
            set_credit=set_credit,
            request_keyframe=request_keyframe,
        )
        self._open.add(egress)
        return egress

    def rebind(self, egress: Egress, *, binding: int, epoch: int, start_frame: int) -> None:
        """Go on with another binding."""
        for own in self._open:
            if own is egress:
                own.begin(binding, epoch, start_frame)

    def shut(self, egress: Egress) -> None:
        """It sends nothing more."""
        for own in tuple(self._open):
            if own is egress:
                self._open.discard(own)
                own.close()

    def close(self) -> None:
        """All of them."""
        for egress in tuple(self._open):
            self.shut(egress)
