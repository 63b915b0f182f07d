"""The last gate of a live on this worker: authority, pace and fan-out of its encoded media.

A tick is refused when it was made under another binding or a lower epoch, at its arrival and again
when it is due, so that a generation revoked meanwhile sends nothing more. A tick of a lower
utterance keeps its picture and loses its sound. `on_sent` is called exactly once per tick that was
sent, in order, when its first packet goes out, whether or not anybody watches.
"""

import logging
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum

from rtc_output.keyframes import KeyframeGate
from rtc_output.pacer import LatenessHistogram, LatenessSummary, Pacer, PacerSettings
from rtc_output.silence import silent_opus
from rtc_output.units import MediaUnit, Subscriber
from schemas.media import OPUS_PACKETS_PER_TICK, MediaTick, TickFlag

log = logging.getLogger(__name__)

QUEUE_TICKS_MAX = 64
RECENT_UNITS_MAX = 24


class TickRefusal(StrEnum):
    """Why a tick was not taken, or was dropped before it was sent."""

    WRONG_BINDING = "wrong_binding"
    LOWER_EPOCH = "lower_epoch"
    OUT_OF_ORDER = "out_of_order"
    BACKLOG_FULL = "backlog_full"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class SentPosition:
    """How far a live was heard.

    `next_frame` follows the last tick sent: the frame that a new owner makes first. `segment_id`
    and `sample_end` say how far speech was heard: the 24 kHz sample of that segment up to which it
    was spoken (exclusive, whole ticks); muted ticks do not count. Segment 0 means idle.
    """

    next_frame: int
    segment_id: int
    sample_end: int
    utterance: int
    at_us: int


@dataclass(frozen=True, slots=True)
class EgressStats:
    """Counters since the egress was made. Times in microseconds."""

    ticks_sent: int
    ticks_muted: int
    refused: dict[TickRefusal, int]
    lateness: LatenessSummary
    reanchors: int
    slipped_us: int
    lead_frames: int
    subscribers: int
    keyframes_requested: int
    queued: int


class LiveEgress:
    """One bound live's way out. Everything runs on the event loop, nothing waits.

    The callbacks are the controller's: `on_sent(tick, now_us)` gets the tick as it went out (with
    the flag MUTED where its sound was replaced), `set_credit(frame)` and `request_keyframe()` go to
    the stages. `now_us` reads CLOCK_MONOTONIC.
    """

    def __init__(
        self,
        *,
        live_id: str,
        binding: int,
        epoch: int,
        start_frame: int,
        on_sent: Callable[[MediaTick, int], None],
        set_credit: Callable[[int], None],
        request_keyframe: Callable[[], None],
        now_us: Callable[[], int],
        settings: PacerSettings | None = None,
        on_subscribers: Callable[[int], None] | None = None,
    ) -> None:
        self.live_id = live_id
        self._binding = binding
        self._epoch = epoch
        self._utterance = 0
        self._on_sent = on_sent
        self._on_subscribers = on_subscribers
        self._set_credit = set_credit
        self._ask_encoder = request_keyframe
        self._now_us = now_us
        self._pacer = Pacer(settings or PacerSettings(), start_frame)
        self._gate = KeyframeGate()
        self._queue: deque[MediaTick] = deque()
        self._half = 0
        self._last_pushed = start_frame - 1
        self._credit: int | None = None
        self._subscribers: list[Subscriber] = []
        self._recent: list[MediaUnit] = []
        self._refused: Counter[TickRefusal] = Counter()
        self._sent = 0
        self._muted = 0
        self._cut = False
        self._frozen = False
        self._closed = False
        self._advancing = False
        self._heard = (0, 0, 0)
        self._sent_at_us = 0
        self.on_push: Callable[[], None] | None = None

    @property
    def closed(self) -> bool:
        """Whether it sends nothing any more."""
        return self._closed

    @property
    def epoch(self) -> int:
        """The lowest epoch whose ticks are taken."""
        return self._epoch

    def push(self, tick: MediaTick) -> TickRefusal | None:
        """Take a tick from the encode stage; None when it was accepted."""
        refusal = self._check(tick)
        if refusal is not None:
            self._refused[refusal] += 1
            return refusal
        self._last_pushed = tick.frame_index
        self._queue.append(tick)
        speech = tick.sample_start >= 0 and tick.utterance >= self._utterance
        self._pacer.arrived(tick.frame_index, self._now_us(), speech=speech)
        if self.on_push is not None and not self._advancing:
            self.on_push()
        return None

    def _check(self, tick: MediaTick) -> TickRefusal | None:
        if self._closed:
            return TickRefusal.CLOSED
        if tick.binding != self._binding:
            return TickRefusal.WRONG_BINDING
        if tick.epoch < self._epoch:
            return TickRefusal.LOWER_EPOCH
        if tick.frame_index <= self._last_pushed:
            return TickRefusal.OUT_OF_ORDER
        if len(self._queue) >= QUEUE_TICKS_MAX:
            return TickRefusal.BACKLOG_FULL
        return None

    def interrupt(self, utterance: int) -> SentPosition:
        """Silence every tick of a lower utterance from now on, queued ones included."""
        self._utterance = max(self._utterance, utterance)
        return self.position

    def raise_epoch(self, epoch: int) -> None:
        """Refuse every tick of a lower epoch from now on, queued ones included."""
        self._epoch = max(self._epoch, epoch)

    def rebind(self, *, binding: int, epoch: int, start_frame: int) -> None:
        """Go on with a new binding, as after a stage was lost; the viewers stay."""
        self._finish_tick()
        self._queue.clear()
        self._binding = binding
        self.raise_epoch(epoch)
        self._last_pushed = start_frame - 1
        self._frozen = False
        self._recent = []
        self._pacer.restart(start_frame)
        self._credit = None

    def freeze(self) -> SentPosition:
        """Send no further tick, so that the position stays true while a hand-over commits."""
        self._frozen = True
        return self.position

    def thaw(self) -> None:
        """The hand-over did not happen: go on."""
        self._frozen = False
        if self.on_push is not None:
            self.on_push()

    def subscribe(self, subscriber: Subscriber) -> tuple[MediaUnit, ...]:
        """Send every later unit to `subscriber`.

        Returns what was sent since the last key frame, where that is less than half a second ago:
        with it a decoder can begin at once. Otherwise it returns nothing and asks for a key frame.
        """
        if self._closed:
            subscriber.ended()
            return ()
        self._subscribers.append(subscriber)
        self._told_subscribers()
        if not self._recent:
            self.request_keyframe()
        return tuple(self._recent)

    def unsubscribe(self, subscriber: Subscriber) -> None:
        """Forget `subscriber`; harmless when it is not known."""
        if subscriber in self._subscribers:
            self._subscribers.remove(subscriber)
            self._told_subscribers()

    def _told_subscribers(self) -> None:
        if self._on_subscribers is not None:
            self._on_subscribers(len(self._subscribers))

    def request_keyframe(self) -> None:
        """A viewer cannot decode: ask the encoder, with all others that ask at about this time."""
        if not self._closed and self._gate.ask(self._now_us()):
            self._ask_encoder()

    def advance(self, now_us: int) -> int | None:
        """Send all that is due; returns when to call again (None: after the next push)."""
        if self._closed or self._advancing:
            return None
        self._advancing = True
        try:
            while (at_us := self._send_due(now_us)) is not None and at_us <= now_us:
                pass
        finally:
            self._advancing = False
        if self._gate.poll(now_us):
            self._ask_encoder()
        return at_us

    def _send_due(self, now_us: int) -> int | None:
        """One pass: send, then pass the credit on, which may bring more ticks at once."""
        at_us = None
        while self._queue:
            tick = self._queue[0]
            if self._half == 0 and tick.epoch < self._epoch:
                self._queue.popleft()
                self._refused[TickRefusal.LOWER_EPOCH] += 1
                continue
            if self._half == 0 and self._frozen:
                return None
            at_us = self._pacer.send_at_us(tick.frame_index, self._half, now_us)
            if at_us > now_us:
                break
            self._send(tick, now_us)
            at_us = None
        queued = len(self._queue)
        credit = self._pacer.credit(now_us)
        if self._credit is None or credit > self._credit:
            self._credit = credit
            self._set_credit(credit)
        if at_us is not None:
            return at_us
        if len(self._queue) > queued:
            return now_us
        due = self._pacer.next_due_us()
        return due if due is not None and due > now_us else None

    def _send(self, tick: MediaTick, now_us: int) -> None:
        half = self._half
        muted = tick.utterance < self._utterance
        # The stages fade a cut turn out at the start of the next one, which is where it ends unless
        # it was cut here: then silence came between, and the rest of it would be heard as a click.
        silent = muted or (self._cut and tick.sample_start < 0)
        first = half == 0
        timing = self._pacer.sent(tick.frame_index, half, now_us)
        unit = MediaUnit(
            frame_index=tick.frame_index,
            half=half,
            opus=silent_opus() if silent else tick.opus[half],
            video=tick.video if first else b"",
            keyframe=first and tick.keyframe,
            media_us=timing.media_us,
            stream_us=timing.stream_us,
            due_us=timing.due_us,
        )
        self._half = (half + 1) % OPUS_PACKETS_PER_TICK
        if self._half == 0:
            self._cut = muted
            self._queue.popleft()
        self._remember(unit)
        for subscriber in tuple(self._subscribers):
            self._give(subscriber, unit)
        if not first:
            return
        self._sent += 1
        self._sent_at_us = now_us
        if muted:
            self._muted += 1
            tick = replace(
                tick,
                flags=tick.flags | TickFlag.MUTED,
                opus=(silent_opus(),) * OPUS_PACKETS_PER_TICK,
            )
        else:
            end = tick.sample_start + tick.speech_samples if tick.sample_start >= 0 else 0
            self._heard = (tick.segment_id, end, tick.utterance)
        self._on_sent(tick, now_us)

    def _remember(self, unit: MediaUnit) -> None:
        """Units since a young key frame; none where it is too old for a newcomer."""
        if unit.keyframe:
            self._gate.sent()
            self._recent = [unit]
        elif self._recent:
            self._recent.append(unit)
            if len(self._recent) > RECENT_UNITS_MAX:
                self._recent = []

    def _give(self, subscriber: Subscriber, unit: MediaUnit) -> None:
        try:
            subscriber.take(unit)
        except Exception:
            # One viewer's trouble must not stop the live for the others.
            log.exception("live %s: a subscriber failed and was removed", self.live_id)
            self.unsubscribe(subscriber)
            subscriber.ended()

    @property
    def position(self) -> SentPosition:
        """Last sent position, for checkpoints."""
        segment_id, sample_end, utterance = self._heard
        return SentPosition(
            next_frame=self._pacer.next_frame,
            segment_id=segment_id,
            sample_end=sample_end,
            utterance=utterance,
            at_us=self._sent_at_us,
        )

    @property
    def lateness(self) -> LatenessHistogram:
        """The histogram behind `stats().lateness`, for merging over lives."""
        return self._pacer.lateness

    def stats(self) -> EgressStats:
        """A snapshot of the counters."""
        return EgressStats(
            ticks_sent=self._sent,
            ticks_muted=self._muted,
            refused=dict(self._refused),
            lateness=self._pacer.lateness.summary(),
            reanchors=self._pacer.reanchors,
            slipped_us=self._pacer.slipped_us,
            lead_frames=self._pacer.lead.frames,
            subscribers=len(self._subscribers),
            keyframes_requested=self._gate.issued,
            queued=len(self._queue),
        )

    def _finish_tick(self) -> None:
        if self._half:
            self._send(self._queue[0], self._now_us())

    def close(self) -> SentPosition:
        """Send the second packet of a tick half sent, end the subscriptions, refuse the rest."""
        if not self._closed:
            self._finish_tick()
            self._closed = True
            self._queue.clear()
            self._recent = []
            subscribers, self._subscribers = self._subscribers, []
            for subscriber in subscribers:
                subscriber.ended()
        return self.position
