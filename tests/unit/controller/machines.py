"""A session machine brought into any of its states, for tests."""

from typing import Any, cast

from controller import events as ev
from controller import instructions as do
from controller.fence import Permit, mint
from controller.session_machine import SessionMachine
from controller.session_states import EventName, State
from ownership.model import Released, ReleaseItem
from schemas.options import LiveOptions
from schemas.store_values import Checkpoint, Cursor, Generation, SegmentBounds
from schemas.text_record import RecordKind, TextRecord

ME = Generation("one-1", 3)
OTHER = Generation("two-1", 4)


class Prompt:
    """A machine that gets its turn as soon as it wants one: every release is planned at once.

    Around one and not derived from it: a compiled class takes no subclasses.
    """

    def __init__(self) -> None:
        object.__setattr__(self, "_machine", SessionMachine("anna", ME))

    def handle(self, event: ev.Event, now_ms: int) -> list[do.Instruction]:
        out = self._machine.handle(event, now_ms)
        if not any(isinstance(one, do.WantRelease) for one in out):
            return out
        rest = [one for one in out if not isinstance(one, do.WantRelease)]
        return rest + self._machine.handle(ev.ReleaseTurn(), now_ms)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._machine, name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._machine, name, value)


def prompt() -> SessionMachine:
    """A new one."""
    return cast(SessionMachine, Prompt())


def text(offset: int, words: str, seq: int | None = None) -> ev.Accepted:
    return ev.Accepted(offset, TextRecord(RecordKind.TEXT, words, seq, f"event-{offset}"))


def mark(offset: int, kind: RecordKind) -> ev.Accepted:
    return ev.Accepted(offset, TextRecord(kind, event_id=f"event-{offset}"))


def permit_of(request: do.RequestRelease, live_id: str = "anna") -> Permit:
    """What the fence makes of a committed request."""
    item = ReleaseItem(
        live_id, ME, request.expected_next_offset, request.new_next_offset, request.release_id
    )
    return mint(Released(item), [one.segment_id for one in request.segments])


def request_in(instructions: list[do.Instruction]) -> do.RequestRelease:
    (request,) = [one for one in instructions if isinstance(one, do.RequestRelease)]
    return request


def claimed(
    checkpoint: Checkpoint | None = None,
    cursor: int = 5,
    machine: SessionMachine | None = None,
) -> SessionMachine:
    machine = machine or prompt()
    machine.handle(ev.Started("claim-1"), 0)
    machine.handle(ev.ClaimDone(LiveOptions(), Cursor(cursor), checkpoint, 0), 0)
    machine.handle(ev.Bound(0, 1), 0)
    return machine


def asking(machine: SessionMachine, offset: int = 5) -> do.RequestRelease:
    """A release under way."""
    return request_in(machine.handle(ev.RecordsRead((text(offset, "Hello. "),), offset + 1), 10))


def in_state(state: State) -> SessionMachine:
    machine = prompt()
    match state:
        case State.OWNED:
            pass
        case State.CLAIMING:
            machine.handle(ev.Started("claim-1"), 0)
        case State.CATCHING_UP:
            bounds = (SegmentBounds(2, 0, 3, 4),)
            machine = claimed(Checkpoint(segments=bounds, samples_emitted=960, utterance=2))
        case State.IDLE:
            machine = claimed()
        case State.SPEAKING:
            machine = claimed()
            request = asking(machine)
            machine.handle(ev.ReleaseDone(permit_of(request)), 20)
        case State.DRAINING:
            machine = in_state(State.SPEAKING)
            machine.handle(ev.HandOverAsked("two-1", None), 30)
        case State.CLOSING:
            machine = claimed()
            out = machine.handle(ev.RecordsRead((mark(5, RecordKind.CLOSE),), 6), 10)
            machine.handle(ev.ReleaseDone(permit_of(request_in(out))), 20)
        case State.REVOKED:
            machine = in_state(State.SPEAKING)
            machine.handle(ev.OwnershipLost("moved"), 30)
        case State.GONE:
            machine = in_state(State.REVOKED)
            machine.handle(ev.GoneConfirmed(), 40)
    assert machine.state is state
    return machine


ASKED = (EventName.RELEASE_DONE, EventName.RELEASE_STALE, EventName.CURSOR_FOUND)


def ready_for(state: State, name: EventName) -> tuple[SessionMachine, ev.Event]:
    """A machine in this state, and an event of this name that fits what it did before."""
    machine = in_state(state)
    request: do.RequestRelease | None = None
    if name in ASKED and state in (State.IDLE, State.SPEAKING):
        request = asking(machine, 6)
        machine.state = state
    if name in ASKED and state is State.DRAINING:
        machine = in_state(State.SPEAKING)
        request = asking(machine, 6)
        machine.handle(ev.HandOverAsked("two-1", None), 30)
    release_id = "nobody/1" if request is None else request.release_id
    item = ReleaseItem("anna", ME, 0, 0, release_id)
    permit = permit_of(request) if request is not None else mint(Released(item), [])
    made: dict[EventName, ev.Event] = {
        EventName.STARTED: ev.Started("claim-1"),
        EventName.CLAIM_DONE: ev.ClaimDone(LiveOptions(), Cursor(5), None, 0),
        EventName.CLAIM_REFUSED: ev.ClaimRefused(OTHER),
        EventName.RECORDS_READ: ev.RecordsRead((text(7, "More. "),), 8),
        EventName.INTERRUPT_SEEN: ev.InterruptSeen(9, TextRecord(RecordKind.INTERRUPT), None),
        EventName.LETTER_SENT: ev.LetterSent(4),
        EventName.RELEASE_TURN: ev.ReleaseTurn(),
        EventName.RELEASE_DONE: ev.ReleaseDone(permit),
        EventName.RELEASE_STALE: ev.ReleaseStale(release_id, OTHER),
        EventName.CURSOR_FOUND: ev.CursorFound(release_id, Cursor(9)),
        EventName.FEED_REFUSED: ev.FeedRefused(1),
        EventName.BOUND: ev.Bound(1, 2),
        EventName.BIND_REFUSED: ev.BindRefused("full", retryable=True),
        EventName.TICK_SENT: ev.TickSent(1, 960, last=False, muted=False),
        EventName.SEGMENT_BROKEN: ev.SegmentBroken(1, "no voice"),
        EventName.STAGES_LOST: ev.StagesLost("render"),
        EventName.TIME_REACHED: ev.TimeReached(),
        EventName.OWNERSHIP_LOST: ev.OwnershipLost("moved"),
        EventName.HAND_OVER_ASKED: ev.HandOverAsked("two-1", "token"),
        EventName.HAND_OVER_DONE: ev.HandOverDone(OTHER),
        EventName.HAND_OVER_REFUSED: ev.HandOverRefused("NoFreeSlot", lost=False),
        EventName.STOP_ASKED: ev.StopAsked(),
        EventName.CLOSE_DONE: ev.CloseDone(),
        EventName.GONE_CONFIRMED: ev.GoneConfirmed(),
    }
    return machine, made[name]
