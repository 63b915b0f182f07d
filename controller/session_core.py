"""What one live's session knows, and the next release that follows from it.

`SessionMachine` changes this by events; here stands what it is made of, its deadline, its
checkpoint and `_advance`: the one place that decides what is released next.

PURE.
"""

from dataclasses import dataclass, field, replace
from typing import Final, final

from controller import events as ev
from controller import instructions as do
from controller.instructions import Instruction
from controller.rebuild import Rebuild, close_bounds
from controller.segmenter import SegmenterLimits
from controller.session_states import LIVE, State
from controller.speech import Speech, Spoken, segment_of
from controller.story import Story
from controller.text_queue import QueueLimits, Step, TextQueue
from schemas.bad_record import DeadLetterReason
from schemas.events import EventData, EventKind
from schemas.options import LiveOptions
from schemas.store_values import Checkpoint, Generation, SegmentBounds
from schemas.value import Value

_IDLE: Final = State.IDLE
_SPEAKING: Final = State.SPEAKING


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """Bounds of one live. Times in milliseconds.

    `segments_ahead_max`: segments released and not spoken to their end. `stalled_ms`: how long a
    fed segment may stay unheard before it is given up.
    """

    segments_ahead_max: int = 3
    checkpoint_ms: int = 500
    retry_ms: int = 40
    bind_retry_ms: int = 250
    stalled_ms: int = 60_000
    queue: QueueLimits = field(default_factory=QueueLimits)
    segmenter: SegmenterLimits = field(default_factory=SegmenterLimits)


@final
class Ask(Value):
    """The release under way: what was asked, and what follows when it is committed."""

    __match_args__ = ("request", "step", "spoken", "interrupt", "close_event_id", "stops")
    __slots__ = __match_args__

    def __init__(
        self,
        request: do.RequestRelease,
        step: Step | None = None,
        spoken: tuple[Spoken, ...] = (),
        interrupt: ev.InterruptSeen | None = None,
        close_event_id: str | None = None,
        stops: bool = False,
    ) -> None:
        self.request: Final = request
        self.step: Final = step
        self.spoken: Final = spoken
        self.interrupt: Final = interrupt
        self.close_event_id: Final = close_event_id
        self.stops: Final = stops


class SessionCore:
    """One live's session. Each attribute says what always holds of it."""

    def __init__(
        self, live_id: str, generation: Generation, limits: SessionLimits | None = None
    ) -> None:
        self.live_id = live_id
        self.generation = generation
        self.limits = limits or SessionLimits()
        self.state = State.OWNED
        self.story = Story()
        self.queue: TextQueue | None = None
        """Present from ClaimDone on. Its cursor is what the store last told us."""
        self.speech = Speech()
        """Released and not spoken to the end. Its bounds stand in the next checkpoint."""
        self.utterance = 0
        """One more with every committed interrupt; never goes back, over all owners."""
        self.next_frame = 0
        """The frame after the last one sent; only grows. The shell sets it at every tick."""
        self._rebuild: Rebuild | None = None
        """Present exactly in CATCHING_UP."""
        self._options: LiveOptions | None = None
        """Present from ClaimDone on."""
        self._claim_id = ""
        self._releases = 0
        """How many were asked. Makes the release ids below `claim_id` unique."""
        self._ask: Ask | None = None
        """Present exactly while a release is under way."""
        self._wanted = False
        """A turn was asked for and has not come. What it will release is not planned before."""
        self._interrupt: ev.InterruptSeen | None = None
        """Seen and not asked for yet. Nothing else is asked for before it."""
        self._letters: dict[int, DeadLetterReason] = {}
        """Dead letters under way, by offset."""
        self._bound = False
        """The stages have a slot for the live; nothing is released while they have not."""
        self._target: ev.HandOverAsked | None = None
        """Who gets the live. None in DRAINING: this worker ends."""
        self._dirty = False
        """Something was heard or ended since the last checkpoint."""
        self._checkpoint_ms = 0
        """When the last checkpoint was asked for."""
        self._retry_ms: int | None = None
        """Nothing is fed (or bound) again before it."""
        self._out: list[Instruction] = []

    @property
    def deadline_ms(self) -> int | None:
        """The next moment at which TimeReached has something to do."""
        if self.state is State.CATCHING_UP:
            return self._retry_ms
        if self.state not in LIVE:
            return None
        soonest_ms = self._quiet_deadline_ms()
        if self._retry_ms is not None:
            soonest_ms = _sooner(soonest_ms, self._retry_ms)
        asked = self._wanted or self._ask is not None
        if self._dirty and not asked:
            soonest_ms = _sooner(soonest_ms, self._checkpoint_ms + self.limits.checkpoint_ms)
        first = self.speech.first
        if first is not None and first.fed:
            soonest_ms = _sooner(soonest_ms, first.moved_ms + self.limits.stalled_ms)
        return soonest_ms

    def _quiet_deadline_ms(self) -> int | None:
        """Half a sentence is only spoken when the avatar would fall silent otherwise."""
        if self.queue is None or len(self.speech) + self.queue.ready > 1:
            return None
        return self.queue.deadline_ms

    @property
    def first_unreleased(self) -> int | None:
        """The lowest offset that is known and not disposed of; None when everything known is."""
        if self.queue is None:
            return 0
        asked = self._ask is not None and self._ask.interrupt is not None
        if asked or self._interrupt is not None or self._rebuild is not None:
            return self.queue.cursor
        return self.queue.first_unreleased

    @property
    def active(self) -> bool:
        """Whether this worker may have authority over the live."""
        return self.state not in (State.REVOKED, State.GONE)

    def checkpoint(
        self, added: tuple[SegmentBounds, ...] = (), next_char: int | None = None
    ) -> Checkpoint:
        """Where another owner goes on, once `added` are released too. `at_ms` is left open."""
        if next_char is None:
            next_char = -1 if self.queue is None else self.queue.next_char
        return Checkpoint(
            segments=self.speech.bounds + added,
            samples_emitted=self.speech.emitted,
            next_char=next_char,
            utterance=self.utterance,
            media_frame=self.next_frame,
        )

    # -- what is said to the outside

    def _publish(
        self,
        kind: EventKind,
        source_event_id: str = "",
        offset: int | None = None,
        data: EventData | None = None,
    ) -> None:
        self._out.append(do.Publish(kind, source_event_id, offset, data or {}))

    def _error(self, reason: str, detail: str, offset: int | None = None) -> None:
        """Nothing is lost or skipped without one of these."""
        self._publish(EventKind.ERROR, offset=offset, data={"reason": reason, "detail": detail})

    def _move(self, state: State) -> None:
        """Go to a state, and publish it. Between idle and speaking the speak events tell more."""
        if state is not self.state and not {state, self.state} <= LIVE:
            data = {"state": state.value, "before": self.state.value}
            self._publish(EventKind.STATE_UPDATED, data=data)
        self.state = state

    def _go_on(self) -> None:
        """Speaking while anything released is not spoken to its end, else idle."""
        self._move(_SPEAKING if len(self.speech) else _IDLE)

    # -- what is released next

    def _advance(self, now_ms: int) -> None:
        """Ask for a turn in the next commit, when there is something to release."""
        queue = self.queue
        if queue is None or self.state not in LIVE:
            return
        if self._bound and self._retry_ms is not None and now_ms >= self._retry_ms:
            self._retry_ms = None
        if self._ask is None and not self._wanted and self._has_release(queue, now_ms):
            self._wanted = True
            self._out.append(do.WantRelease())
        self._go_on()

    def _has_release(self, queue: TextQueue, now_ms: int) -> bool:
        """Whether planning could find something. Cheap, for it is asked after every event."""
        if self._interrupt is not None:
            return True
        room = self._room
        if room is not None and self.speech.waits:
            return True
        if queue.has_step(room or 0):
            return True
        if queue.close_next is not None and not len(self.speech):
            return True
        return self._dirty and now_ms >= self._checkpoint_ms + self.limits.checkpoint_ms

    @property
    def _room(self) -> int | None:
        """How many more segments may be released; None while none can be fed."""
        if not self._bound or self._retry_ms is not None:
            return None
        return self.limits.segments_ahead_max - len(self.speech)

    def _plan_release(self, now_ms: int) -> None:
        """The turn came: ask for all that may be released by now."""
        self._wanted = False
        queue = self.queue
        if queue is None or self.state not in LIVE or self._ask is not None:
            return
        if self._interrupt is not None:
            self._ask_interrupt(queue, self._interrupt, now_ms)
        else:
            self._ask_next(queue, now_ms)

    def _ask_next(self, queue: TextQueue, now_ms: int) -> None:
        room = self._room
        again = () if room is None else self.speech.unfed()
        step, letters = queue.plan(room or 0)
        for refused in letters:
            if refused.offset not in self._letters:
                self._letters[refused.offset] = refused.reason
                self._out.append(
                    do.SendLetter(
                        refused.offset, refused.reason, refused.detail, refused.key, refused.value
                    )
                )
        if step is not None or again:
            self._ask_step(queue, step, again, now_ms)
        elif queue.close_next is not None and not len(self.speech):
            self._ask_close(queue, now_ms)
        elif self._dirty and now_ms >= self._checkpoint_ms + self.limits.checkpoint_ms:
            self._ask_for(now_ms, queue.cursor, None, self.checkpoint())

    def _ask_step(
        self,
        queue: TextQueue,
        step: Step | None,
        again: tuple[do.SpokenSegment, ...],
        now_ms: int,
    ) -> None:
        """New segments and marks, and segments that need a permit once more, in one commit."""
        cuts = () if step is None else step.cuts
        spoken = tuple(
            Spoken(
                segment_of(self.live_id, cut, self.utterance),
                cut.source_event_id,
                ends_turn=cut.ends_turn,
            )
            for cut in cuts
            if cut.speak
        )
        new = tuple(one.segment for one in spoken)
        checkpoint = self.checkpoint(
            tuple(one.bounds for one in new), queue.next_char if step is None else step.next_char
        )
        next_offset = queue.cursor if step is None else step.next_offset
        last_seq = None if step is None else step.last_seq
        request = self._ask_for(now_ms, next_offset, last_seq, checkpoint, segments=again + new)
        self._ask = Ask(request, step, spoken)

    def _ask_interrupt(self, queue: TextQueue, seen: ev.InterruptSeen, now_ms: int) -> None:
        """Skip everything unreleased before the INTERRUPT, and end what is being spoken."""
        checkpoint = replace(
            self.checkpoint(next_char=-1),
            segments=(),
            samples_emitted=0,
            utterance=self.utterance + 1,
        )
        skipped = (queue.cursor, seen.offset) if queue.cursor < seen.offset else None
        request = self._ask_for(now_ms, seen.offset + 1, seen.last_seq, checkpoint, skipped=skipped)
        self._ask = Ask(request, interrupt=seen)
        self._interrupt = None

    def _ask_close(self, queue: TextQueue, now_ms: int) -> None:
        """Release the CLOSE. Its mark in the checkpoint lets another owner finish the closing."""
        close = queue.close_next
        if close is None:
            return
        checkpoint = self.checkpoint((close_bounds(close.offset),))
        request = self._ask_for(now_ms, close.offset + 1, close.record.seq, checkpoint)
        self._ask = Ask(request, close_event_id=close.record.event_id)

    def _ask_for(
        self,
        now_ms: int,
        next_offset: int,
        last_seq: int | None,
        checkpoint: Checkpoint,
        *,
        skipped: tuple[int, int] | None = None,
        segments: tuple[do.SpokenSegment, ...] = (),
    ) -> do.RequestRelease:
        self._releases += 1
        request = do.RequestRelease(
            release_id=f"{self._claim_id}/{self._releases}",
            expected_next_offset=0 if self.queue is None else self.queue.cursor,
            new_next_offset=next_offset,
            last_seq=last_seq,
            checkpoint=checkpoint,
            skipped=skipped,
            segments=segments,
        )
        self._ask = Ask(request)
        self._dirty = False
        self._checkpoint_ms = now_ms
        self._out.append(request)
        return request


def _sooner(one_ms: int | None, other_ms: int | None) -> int | None:
    if one_ms is None or other_ms is None:
        return other_ms if one_ms is None else one_ms
    return min(one_ms, other_ms)
