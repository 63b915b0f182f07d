"""What a live's session does with released segments: into the ring, heard, ended, cut off.

PURE.
"""

from controller import events as ev
from controller import instructions as do
from controller.session_core import Ask, SessionCore
from controller.session_states import State
from controller.session_words import where
from controller.speech import Spoken
from controller.text_queue import TextQueue
from schemas.events import EventData, EventKind


class SessionSpeech(SessionCore):
    """The part of the machine between the permit and the last sample."""

    def _feed(self, event: ev.ReleaseDone, ask: Ask, now_ms: int) -> None:
        """Straight from the permit to the ring, each segment once, in order.

        The stages may have lost or refused, since this was asked for, what stands before it. Then
        nothing of it is fed: the next release asks for all of them.
        """
        segments = ask.request.segments
        permitted = frozenset(one.segment_id for one in segments)
        if not self.speech.unfed_ids <= permitted:
            return
        self.speech.fed(permitted, now_ms)
        self._out.extend(do.Feed(event.permit, segment) for segment in segments)

    def _interrupted(self, queue: TextQueue, seen: ev.InterruptSeen) -> None:
        first = self.speech.first
        self.utterance += 1
        self._out.append(do.Silence(self.utterance))
        bounds = None if first is None else first.segment.bounds
        position: EventData = {
            "spoken_offset": None if bounds is None else bounds.start_offset,
            "spoken_char": None if bounds is None else bounds.start_char,
            "spoken_samples": self.speech.emitted,
            "spoken_event_id": "" if first is None else first.source_event_id,
            "skipped_from": queue.cursor,
            "frame": self.next_frame,
        }
        self._publish(EventKind.INTERRUPTED, seen.record.event_id, seen.offset, position)
        self.speech.clear()
        queue.skip_to(seen.offset + 1, seen.last_seq)

    def _heard(self, event: ev.TickSent, now_ms: int) -> None:
        spoken = self.speech.find(event.segment_id)
        if spoken is None or event.muted or not spoken.fed:
            return
        for over in self.speech.end_before(spoken):
            self._ended(over)
        spoken.emitted = max(spoken.emitted, event.sample_end)
        spoken.moved_ms = now_ms
        self._dirty = True
        if not spoken.started:
            spoken.started = True
            resumed = spoken.segment.skip_samples
            self._tell(
                EventKind.SPEAK_STARTED, spoken, text=spoken.segment.text, from_sample=resumed
            )
        if event.last:
            self._remove(spoken, now_ms)
            self._ended(spoken)
            self._advance(now_ms)

    def _ended(self, spoken: Spoken) -> None:
        self._tell(
            EventKind.SPEAK_ENDED, spoken, samples=spoken.emitted, ends_turn=spoken.ends_turn
        )

    def _tell(
        self, kind: EventKind, spoken: Spoken, **more: str | int | float | bool | None
    ) -> None:
        offset = spoken.segment.bounds.start_offset
        self._publish(kind, spoken.source_event_id, offset, where(spoken, **more))

    def _broken(self, segment_id: int, reason: str, now_ms: int) -> None:
        spoken = self.speech.find(segment_id)
        if spoken is None:
            return
        self._remove(spoken, now_ms)
        self._dirty = True
        self._tell(EventKind.ERROR, spoken, reason="segment_failed", detail=reason)
        self._advance(now_ms)

    def _remove(self, spoken: Spoken, now_ms: int) -> None:
        self.speech.remove(spoken)
        if self.speech.first is not None:
            # Its turn begins only now: the time it waited behind the other is not a stall.
            self.speech.first.moved_ms = now_ms

    def _stages_lost(self, reason: str) -> None:
        self._bound = False
        self.speech.not_fed(None)
        # What the egress still holds is made again, so it must not be heard: until a new binding.
        self._out.append(do.Freeze())
        self._error("stage_lost", reason)
        if self.state is not State.DRAINING:
            self._bind()

    def _bind(self) -> None:
        if self._options is not None:
            self._out.append(do.Bind(self._options, self.next_frame, self.utterance))
