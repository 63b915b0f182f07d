"""The lives of one incarnation: their sessions, and what sessions ask of their worker."""

from collections.abc import Iterable

import structlog

from controller import events as ev
from controller import instructions as do
from controller.announce import Announcer
from controller.consume import Consumer
from controller.ids import IdMint
from controller.outside import Outside
from controller.ownership_watch import MoveWanted, Owned
from controller.session import Session, SessionParts
from controller.session_states import LIVE
from controller.tasks import Tasks
from gpu_stages.runtime_contract import SegmentFailed, StageGaveUp, StageLost, StageTrouble
from ownership.model import Generation
from schemas.events import LiveEvent
from schemas.media import MediaTick

_log = structlog.get_logger(__name__)


class StagesGone(RuntimeError):
    """The stages gave up: this worker can make no more media."""


class Lives:
    """Sessions by live. Implements `SessionHost`.

    A session whose generation ended stays until its end is confirmed: in `_leaving`, when the same
    live came back under a later generation meanwhile.
    """

    def __init__(
        self,
        worker_id: str,
        parts: SessionParts,
        outside: Outside,
        consumer: Consumer,
        announcer: Announcer,
        mint: IdMint,
        tasks: Tasks,
    ) -> None:
        self.worker_id = worker_id
        self.sessions: dict[str, Session] = {}
        self.ending = False
        """No session is begun any more."""
        self._parts = parts
        self._outside = outside
        self._consumer = consumer
        self._announcer = announcer
        self._mint = mint
        self._tasks = tasks
        self._leaving: set[Session] = set()

    # -- what the store says

    def owned(self, owned: list[Owned]) -> None:
        """The whole truth: begin what is new, revoke what ended."""
        truth = dict(owned)
        for live_id, session in tuple(self.sessions.items()):
            if truth.get(live_id) != session.generation and session.machine.active:
                session.post(ev.OwnershipLost("the store names another owner, or none"))
        for live_id, generation in truth.items():
            session = self.sessions.get(live_id)
            if session is not None and session.generation == generation:
                continue
            if session is not None:
                self._leaving.add(session)
                del self.sessions[live_id]
            if not self.ending:
                self._begin(live_id, generation)

    def _begin(self, live_id: str, generation: Generation) -> None:
        session = Session(live_id, generation, self, self._parts)
        self.sessions[live_id] = session
        session.post(ev.Started(self._mint.new()))

    def holds(self, live_id: str, generation: Generation) -> bool:
        """Whether a runtime of this generation may still be here, and confirms its end itself."""
        mine = self.sessions.get(live_id)
        if mine is not None and mine.generation == generation:
            return True
        return any(one.live_id == live_id and one.generation == generation for one in self._leaving)

    def moves(self, wanted: Iterable[MoveWanted]) -> None:
        """Hand over the lives that somebody reserved a slot for elsewhere."""
        for move in wanted:
            session = self.sessions.get(move.live_id)
            if session is not None and session.machine.state in LIVE:
                session.post(ev.HandOverAsked(move.target, move.token))

    # -- what the stages say

    def tick(self, tick: MediaTick) -> None:
        """An encoded tick, to whom its slot belongs."""
        session = self._parts.bound.get(tick.live_slot)
        if session is not None:
            session.push_tick(tick)

    def trouble(self, trouble: StageTrouble) -> None:
        """Something went wrong in the stages."""
        match trouble:
            case StageLost(stage=stage, reason=reason):
                self._parts.counters.stages_lost += 1
                _log.warning("stage_lost", stage=stage, reason=reason)
                for session in tuple(self._parts.bound.values()):
                    session.stages_lost(f"{stage}: {reason}")
            case StageGaveUp(stage=stage, reason=reason):
                self._tasks.fail(StagesGone(f"{stage}: {reason}"), "stages")
            case SegmentFailed():
                session = self._parts.bound.get(trouble.live_slot)
                if session is not None:
                    event = ev.SegmentBroken(trouble.segment_id, trouble.reason)
                    session.trouble(trouble.binding, event)

    # -- what sessions ask

    def read_from(self, session: Session, order: do.ReadFrom) -> None:
        session.route = self._consumer.open(session, session.partition, order)

    def stop_reading(self, session: Session) -> None:
        session.route = None
        if session.partition >= 0:
            self._consumer.close(session, session.partition)

    def refill(self, session: Session) -> None:
        self._consumer.refill(session.partition)

    def claim(self, session: Session, order: do.Claim) -> None:
        self._outside.claim(session, order)

    def send_letter(self, session: Session, order: do.SendLetter) -> None:
        self._outside.send_letter(session, order)

    def hand_over(self, session: Session, order: do.HandOver) -> None:
        self._outside.hand_over(session, order)

    def close_live(self, session: Session, order: do.CloseLive) -> None:
        self._outside.close_live(session, order)

    def confirm_gone(self, session: Session) -> None:
        self._outside.confirm_gone(session)

    def check_refusal(self, session: Session) -> None:
        self._outside.check_refusal(session)

    def publish(self, session: Session, order: do.Publish) -> None:
        if self._announcer.refuses():
            return
        self._announcer.say(
            LiveEvent(
                order.kind,
                self._mint.new(),
                order.source_event_id,
                session.live_id,
                self.worker_id,
                session.generation.epoch,
                self._parts.clock.wall_ms(),
                order.offset,
                order.data,
            )
        )

    def ended(self, session: Session) -> None:
        self._leaving.discard(session)
        if self.sessions.get(session.live_id) is session:
            del self.sessions[session.live_id]

    def broke(self, session: Session, error: Exception) -> None:
        self._tasks.fail(error, f"live {session.live_id}")

    # -- what others read

    @property
    def active(self) -> list[Session]:
        """Sessions that may have authority."""
        return [one for one in self.sessions.values() if one.machine.active]

    @property
    def empty(self) -> bool:
        """Whether nothing is left, also nothing that waits to be confirmed gone."""
        return not self.sessions and not self._leaving

    def drop_all(self) -> None:
        """The incarnation is over: everything stops at once, nobody is told."""
        self.ending = True
        for session in (*self.sessions.values(), *self._leaving):
            session.drop()
        self.sessions.clear()
        self._leaving.clear()
