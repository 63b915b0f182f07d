"""One live on one worker: events in, instructions out. It does nothing itself and knows no clock.

What it promises:

- Nothing is fed without the permit of a commit that revalidated the generation, and every segment
  is fed once per binding. At most one release is under way, so the cursor it expects is the truth.
- The cursor only grows. Every record leaves exactly once: with a segment, behind its dead letter,
  as a mark, or inside the range that an interrupt skips.
- A checkpoint goes with every release; it names every released segment that is not spoken to its
  end, so whoever owns the live next says exactly what was not said.
- Authority may end at any moment; then everything stops at once and the slot is confirmed gone.

`deadline_ms` is when it wants to hear TimeReached. `next_frame` is told by the shell at every tick.

PURE.
"""

from collections.abc import Sequence
from typing import Final, assert_never

from controller import events as ev
from controller import instructions as do
from controller.instructions import Instruction
from controller.rebuild import Rebuild, read_again_from
from controller.session_core import Ask, SessionLimits
from controller.session_speech import SessionSpeech
from controller.session_states import IGNORED, LIVE, TABLE, State
from controller.session_words import detail, named, next_offset
from controller.story import BrokenInvariant
from controller.text_queue import TextQueue
from schemas.bad_record import DeadLetterReason
from schemas.events import EventKind
from schemas.store_values import Checkpoint

__all__ = ["SessionLimits", "SessionMachine"]

CLOSE_REASON: Final = "close_record"
"""Why a live is closed that met a CLOSE in its stream."""


class SessionMachine(SessionSpeech):
    """See the module for what it promises, `SessionCore` for what it knows."""

    def handle(self, event: ev.Event, now_ms: int) -> list[Instruction]:
        """What to do now, in order. Raises BrokenInvariant for an event that must not come here."""
        allowed = TABLE[self.state].get(event.name)
        if allowed is None or not _told_by_others(event):
            self.story.note(now_ms, self.state, event.name, detail(event))
        if allowed is None:
            raise BrokenInvariant(f"{event.name} in state {self.state}", self.live_id, self.story)
        if allowed is IGNORED:
            return []
        self._out = []
        before = self.state
        self._dispatch(event, now_ms)
        if self.state not in allowed:
            what = f"{event.name} led from {before} to {self.state}"
            raise BrokenInvariant(what, self.live_id, self.story)
        return self._out

    # -- dispatch

    def _dispatch(self, event: ev.Event, now_ms: int) -> None:
        match event:
            # Those of every segment stand first: there are many lives, and each case is a look.
            case ev.TickSent():
                self._heard(event, now_ms)
            case ev.ReleaseTurn():
                self._plan_release(now_ms)
            case ev.ReleaseDone():
                self._released(event, now_ms)
            case ev.RecordsRead():
                self._records(event, now_ms)
            case ev.Started(claim_id):
                self._claim_id = claim_id
                self._begin_claim()
            case ev.ClaimDone():
                self._claimed(event, now_ms)
            case ev.ClaimRefused() | ev.OwnershipLost():
                self._revoke()
            case ev.InterruptSeen():
                self._interrupt_seen(event, now_ms)
            case ev.LetterSent(offset):
                self._letter_sent(offset, now_ms)
            case ev.ReleaseStale():
                self._fenced(event)
            case ev.CursorFound():
                self._cursor_found(event)
            case ev.FeedRefused(segment_id):
                self.speech.not_fed(segment_id)
                self._retry_ms = now_ms + self.limits.retry_ms
            case ev.Bound():
                self._bound = True
                self._retry_ms = None
                self._advance(now_ms)
            case ev.BindRefused():
                self._bind_refused(event, now_ms)
            case ev.SegmentBroken(segment_id, reason):
                self._broken(segment_id, reason, now_ms)
            case ev.StagesLost(reason):
                self._stages_lost(reason)
            case ev.TimeReached():
                self._time_reached(now_ms)
            case ev.HandOverAsked():
                self._drain(event, now_ms)
            case ev.StopAsked():
                self._stop(now_ms)
            case ev.HandOverDone(successor):
                self._publish(EventKind.MOVED, data=named("to", successor))
                self._end()
            case ev.HandOverRefused():
                self._hand_over_refused(event, now_ms)
            case ev.CloseDone():
                closed = {"state": "closed", "reason": CLOSE_REASON}
                self._publish(EventKind.STATE_UPDATED, data=closed)
                self._end()
            case ev.GoneConfirmed():
                self.state = State.GONE
            case _:
                assert_never(event)

    # -- claim and catching up

    def _begin_claim(self) -> None:
        self._move(State.CLAIMING)
        self._out.append(do.Claim(self._claim_id))

    def _claimed(self, event: ev.ClaimDone, now_ms: int) -> None:
        cursor, checkpoint = event.cursor, event.checkpoint
        known = checkpoint or Checkpoint()
        self.utterance = known.utterance
        self.next_frame = max(self.next_frame, known.media_frame)
        self._options = event.options
        self.queue = TextQueue(
            self.limits.queue,
            self.limits.segmenter,
            cursor=cursor.next_offset,
            last_seq=cursor.last_seq,
            next_char=known.next_char,
            first_of_turn=known.next_char < 0 and not known.segments,
        )
        found = {"segments": len(known.segments), "frame": self.next_frame}
        self._publish(EventKind.CLAIMED, offset=cursor.next_offset, data=found)
        self._out.append(do.Bind(event.options, self.next_frame, self.utterance))
        start = read_again_from(checkpoint, cursor.next_offset, event.finished_below)
        self._out.append(do.ReadFrom(start, cursor.next_offset, cursor.last_seq))
        if start < cursor.next_offset:
            self._rebuild = Rebuild(known, cursor.next_offset)
            self._move(State.CATCHING_UP)
        else:
            self._move(State.IDLE)
            self._advance(now_ms)

    def _caught_up(self, rebuild: Rebuild, queue: TextQueue, now_ms: int) -> None:
        """Everything below the cursor is known: make again what the checkpoint names."""
        self._rebuild = None
        segments, lost = rebuild.segments(self.live_id, self.utterance)
        for spoken in segments:
            self.speech.add(spoken)
        if queue.next_char >= 0 and self._interrupt is None:
            rest = rebuild.rest()
            if rest is None:
                lost.append(f"the rest of the record at {queue.cursor - 1} is not there")
                queue.next_char = -1
            else:
                queue.resume(rest.offset, rest.record.text, now_ms, rest.record.event_id)
        if rebuild.ends_turn:
            queue.begin_turn()
        for what in lost:
            self._error("text_lost", what, queue.cursor)
            # Said once: the next checkpoint does not name it any more.
            self._dirty = True
        if rebuild.closes:
            # What came behind the CLOSE is not ours to speak, and must not be forgotten either:
            # while the queue holds it, the route ends below it, and the custodian finds it there.
            self._take(queue, rebuild.held, now_ms)
            self._close()
            return
        self._go_on()
        self._take(queue, rebuild.held, now_ms)
        self._advance(now_ms)

    def _bind_refused(self, event: ev.BindRefused, now_ms: int) -> None:
        self._error("not_bound", event.reason)
        wait_ms = self.limits.bind_retry_ms if event.retryable else self.limits.stalled_ms
        self._retry_ms = now_ms + wait_ms

    # -- records

    def _records(self, event: ev.RecordsRead, now_ms: int) -> None:
        queue, rebuild = self.queue, self._rebuild
        if queue is None:
            return
        if rebuild is not None:
            for incoming in event.records:
                rebuild.take(incoming)
            if event.read_to >= rebuild.cursor:
                self._caught_up(rebuild, queue, now_ms)
            return
        self._take(queue, event.records, now_ms)
        self._advance(now_ms)

    def _take(self, queue: TextQueue, records: Sequence[ev.Incoming], now_ms: int) -> None:
        if records and not len(self.speech):
            # Told by what a checkpoint tells, too, so that every owner cuts the text alike.
            queue.begin_turn()
        for incoming in records:
            if isinstance(incoming, ev.Refused) and (
                incoming.reason is DeadLetterReason.BEFORE_LOG_START
            ):
                self._error(incoming.reason.value, incoming.detail, incoming.offset)
        queue.take(records, now_ms)

    def _interrupt_seen(self, event: ev.InterruptSeen, now_ms: int) -> None:
        self._interrupt = event
        if self._rebuild is not None:
            self._rebuild.held.clear()
        elif self.queue is not None:
            self.queue.clear()
        self._advance(now_ms)

    def _letter_sent(self, offset: int, now_ms: int) -> None:
        reason = self._letters.pop(offset, None)
        if reason is None or self.queue is None:
            return
        self._publish(EventKind.DEAD_LETTERED, offset=offset, data={"reason": reason.value})
        self.queue.letter_sent(offset)
        if self.state is not State.DRAINING:
            self._advance(now_ms)

    # -- release

    def _answered(self, release_id: str) -> Ask:
        ask = self._ask
        if ask is None or ask.request.release_id != release_id:
            raise BrokenInvariant(
                f"an answer to release {release_id} that nobody asked for", self.live_id, self.story
            )
        self._ask = None
        return ask

    def _released(self, event: ev.ReleaseDone, now_ms: int) -> None:
        ask = self._answered(event.permit.release_id)
        queue = self.queue
        if queue is None:
            raise BrokenInvariant("released before claimed", self.live_id, self.story)
        if ask.step is not None:
            queue.done(ask.step)
        for spoken in ask.spoken:
            self.speech.add(spoken)
        if ask.interrupt is not None:
            self._interrupted(queue, ask.interrupt)
        elif ask.close_event_id is not None:
            queue.skip_to(ask.request.new_next_offset, ask.request.last_seq)
            self._close()
            return
        elif self.state is not State.DRAINING and self._interrupt is None and self._bound:
            self._feed(event, ask, now_ms)
        if ask.stops:
            self._revoke()
        elif self.state is State.DRAINING:
            self._leave(now_ms)
        else:
            self._advance(now_ms)

    def _fenced(self, event: ev.ReleaseStale) -> None:
        self._answered(event.release_id)
        self._publish(EventKind.FENCED, data=named("owner", event.actual))
        self._out.append(do.CheckRefusal(event.release_id))
        self._revoke()

    def _cursor_found(self, event: ev.CursorFound) -> None:
        """Never seen in a healthy store. What we hold is not the truth: begin again from it."""
        ask = self._answered(event.release_id)
        expected = ask.request.expected_next_offset
        self._error("cursor_moved", f"at {next_offset(event.actual)}, not {expected}", expected)
        self._out += [do.StopReading(), do.Unbind()]
        self._forget()
        self._begin_claim()

    def _forget(self) -> None:
        """Drop everything that was only remembered here."""
        self.queue = None
        self.speech.clear()
        self._rebuild = None
        self._interrupt = None
        self._letters.clear()
        self._bound = False
        self._wanted = False
        self._dirty = False
        self._retry_ms = None
        self._target = None

    # -- time

    def _time_reached(self, now_ms: int) -> None:
        if not self._bound and self._retry_ms is not None and now_ms >= self._retry_ms:
            self._retry_ms = None
            self._bind()
        if self.state not in LIVE or self.queue is None:
            return
        quiet_ms = self._quiet_deadline_ms()
        if quiet_ms is not None and now_ms >= quiet_ms:
            self.queue.time_passed(now_ms)
        first = self.speech.first
        if first is not None and first.fed and now_ms >= first.moved_ms + self.limits.stalled_ms:
            self._broken(first.segment.segment_id, "nothing was heard of it", now_ms)
        else:
            self._advance(now_ms)

    # -- the end

    def _drain(self, event: ev.HandOverAsked, now_ms: int) -> None:
        self._target = event
        self._move(State.DRAINING)
        self._out.append(do.Freeze())
        if self._ask is None:
            self._leave(now_ms)

    def _stop(self, now_ms: int) -> None:
        if self.state in LIVE:
            self._target = None
            self._move(State.DRAINING)
            self._out.append(do.Freeze())
            if self._ask is None:
                self._leave(now_ms)
        elif self.state is not State.DRAINING:
            self._revoke()
        elif self._target is None and self._ask is None:
            self._leave(now_ms)

    def _leave(self, now_ms: int) -> None:
        """Nothing is under way and nothing more is sent: the position is exact."""
        if self.queue is None:
            return
        if self._target is not None:
            target, token = self._target.target, self._target.token
            self._out.append(do.HandOver(target, token, self.checkpoint()))
            return
        request = self._ask_for(now_ms, self.queue.cursor, None, self.checkpoint())
        self._ask = Ask(request, stops=True)

    def _hand_over_refused(self, event: ev.HandOverRefused, now_ms: int) -> None:
        self._target = None
        if event.lost:
            self._revoke()
            return
        self._error("hand_over_refused", event.reason)
        self._go_on()
        if self._bound:
            self._out.append(do.Thaw())
        else:
            # The stages were lost meanwhile. What the egress still holds is of the void binding,
            # and is made again: a new binding lets it go.
            self._bind()
        self._advance(now_ms)

    def _close(self) -> None:
        self._move(State.CLOSING)
        self._out += [do.StopReading(), do.CloseLive(CLOSE_REASON)]

    def _end(self) -> None:
        """What we committed ended it. The store's signal of that commit may have come first."""
        if self.active:
            self._revoke()

    def _revoke(self) -> None:
        """Whatever was under way: stop at once."""
        self._out += [do.StopReading(), do.Unbind(), do.ConfirmGone()]
        self._move(State.REVOKED)
        self._forget()
        self._ask = None


def _told_by_others(event: ev.Event) -> bool:
    """Whether the story goes on without it: the turn's release and the segment's end are told."""
    return isinstance(event, ev.ReleaseTurn) or (isinstance(event, ev.TickSent) and not event.last)
