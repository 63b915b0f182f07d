"""The machine, event by event: every state with every event, and the turns that matter."""

import itertools
from typing import get_args

import pytest

from controller import events as ev
from controller import instructions as do
from controller.fence import Permit, PermitMisused, mint, spend
from controller.session_machine import SessionMachine
from controller.session_states import IGNORED, TABLE, EventName, State
from controller.speech import seed_of, segment_id_of
from controller.story import BrokenInvariant
from ownership.model import Released, ReleaseItem
from schemas.bad_record import DeadLetterReason
from schemas.events import EventKind
from schemas.options import LiveOptions
from schemas.store_values import Checkpoint, Cursor, SegmentBounds
from schemas.text_record import RecordKind, TextRecord
from tests.unit.controller.machines import (
    ME,
    OTHER,
    asking,
    claimed,
    in_state,
    mark,
    permit_of,
    prompt,
    ready_for,
    request_in,
    text,
)

PAIRS = list(itertools.product(State, EventName))


@pytest.mark.parametrize(("state", "name"), PAIRS)
def test_every_state_with_every_event(state: State, name: EventName) -> None:
    machine, event = ready_for(state, name)
    allowed = TABLE[state].get(name)
    if allowed is None:
        with pytest.raises(BrokenInvariant, match=f"{name} in state {state}") as broken:
            machine.handle(event, 100)
        assert "live anna" in str(broken.value)
        assert len(str(broken.value).splitlines()) > 1, "it carries its story"
        assert machine.state is state
    elif allowed is IGNORED:
        assert machine.handle(event, 100) == []
        assert machine.state is state
    else:
        machine.handle(event, 100)
        assert machine.state in allowed


def test_the_table_knows_every_state_and_every_event_is_named_once() -> None:
    assert TABLE.keys() == set(State)
    names = [event.name for event in get_args(ev.Event)]
    assert sorted(names) == sorted(EventName)


def kinds(instructions: list[do.Instruction]) -> list[str]:
    return [type(one).__name__ for one in instructions]


def published(instructions: list[do.Instruction]) -> list[EventKind]:
    return [one.kind for one in instructions if isinstance(one, do.Publish)]


def test_authority_ends_at_once_from_every_state() -> None:
    for state in State:
        if EventName.OWNERSHIP_LOST not in TABLE[state]:
            continue
        if TABLE[state][EventName.OWNERSHIP_LOST] is IGNORED:
            continue
        out = in_state(state).handle(ev.OwnershipLost("moved"), 50)
        said = [one for one in kinds(out) if one != "Publish"]
        assert said == ["StopReading", "Unbind", "ConfirmGone"], state


def test_a_text_becomes_a_release_and_with_its_permit_a_feed() -> None:
    machine = claimed()
    request = asking(machine)
    assert (request.expected_next_offset, request.new_next_offset) == (5, 6)
    assert request.checkpoint.segments == (SegmentBounds(5, 0, 5, 7),)
    assert machine.state is State.IDLE, "nothing is spoken before the commit"
    (feed,) = machine.handle(ev.ReleaseDone(permit_of(request)), 20)
    assert isinstance(feed, do.Feed)
    assert feed.segment.text == "Hello. "
    assert feed.segment.seed == seed_of("anna", SegmentBounds(5, 0, 5, 7))
    assert machine.state is State.SPEAKING


def test_one_release_at_a_time() -> None:
    machine = claimed()
    first = asking(machine)
    assert machine.handle(ev.RecordsRead((text(6, "More. "),), 7), 11) == []
    out = machine.handle(ev.ReleaseDone(permit_of(first)), 20)
    second = request_in(out)
    assert second.expected_next_offset == 6
    assert second.release_id != first.release_id


def ended(machine: SessionMachine, segment: do.SpokenSegment) -> list[do.Instruction]:
    return machine.handle(ev.TickSent(segment.segment_id, 9600, last=True, muted=False), 30)


def test_what_comes_before_the_turn_goes_with_it() -> None:
    machine = claimed(machine=SessionMachine("anna", ME))
    records = tuple(text(5 + n, f"Sentence {n}. ") for n in range(10))
    assert machine.handle(ev.RecordsRead(records[:1], 6), 10) == [do.WantRelease()]
    assert machine.handle(ev.RecordsRead(records[1:], 15), 11) == [], "it wants one turn"
    request = request_in(machine.handle(ev.ReleaseTurn(), 12))
    assert len(request.segments) == 3
    machine.handle(ev.ReleaseDone(permit_of(request)), 20)
    out = [one for segment in request.segments for one in ended(machine, segment)]
    assert kinds(out).count("WantRelease") == 1
    assert len(request_in(machine.handle(ev.ReleaseTurn(), 31)).segments) == 3


def test_an_interrupt_before_the_turn_is_what_is_released() -> None:
    machine = claimed(machine=SessionMachine("anna", ME))
    machine.handle(ev.RecordsRead((text(5, "One. Two. "),), 6), 10)
    assert machine.handle(ev.InterruptSeen(6, mark(6, RecordKind.INTERRUPT).record, None), 11) == []
    request = request_in(machine.handle(ev.ReleaseTurn(), 12))
    assert request.skipped == (5, 6)
    assert (request.new_next_offset, request.segments) == (7, ())


def test_a_turn_that_comes_while_the_live_is_handed_over_is_wanted_again() -> None:
    machine = claimed(machine=SessionMachine("anna", ME))
    machine.handle(ev.RecordsRead((text(5, "One. "),), 6), 10)
    machine.handle(ev.HandOverAsked("two-1", None), 11)
    assert machine.handle(ev.ReleaseTurn(), 12) == [], "nothing is released while it leaves"
    out = machine.handle(ev.HandOverRefused("NoFreeSlot", lost=False), 13)
    assert kinds(out).count("WantRelease") == 1
    assert len(request_in(machine.handle(ev.ReleaseTurn(), 14)).segments) == 1


def test_a_turn_without_anything_to_release_asks_nothing() -> None:
    machine = claimed(machine=SessionMachine("anna", ME))
    machine.handle(ev.RecordsRead((text(5, "One. "),), 6), 10)
    machine.handle(ev.StagesLost("render"), 11)
    assert machine.handle(ev.ReleaseTurn(), 12) == []
    assert machine.handle(ev.Bound(0, 2), 13) == [do.WantRelease()]


def test_a_half_used_record_is_named_in_the_checkpoint() -> None:
    machine = claimed()
    record = text(5, "One. And then a half sen")
    request = request_in(machine.handle(ev.RecordsRead((record,), 6), 10))
    assert request.new_next_offset == 6
    assert request.checkpoint.next_char == 5
    machine.handle(ev.ReleaseDone(permit_of(request)), 20)
    out = machine.handle(ev.RecordsRead((text(7, "tence. "),), 8), 30)
    second = request_in(out)
    assert second.checkpoint.segments[-1] == SegmentBounds(5, 5, 7, 7)
    assert (second.new_next_offset, second.checkpoint.next_char) == (8, -1)


def test_no_more_than_a_few_segments_are_released_ahead() -> None:
    machine = claimed()
    records = tuple(text(5 + n, f"Sentence {n}. ") for n in range(10))
    request = request_in(machine.handle(ev.RecordsRead(records, 15), 10))
    assert len(request.segments) == machine.limits.segments_ahead_max
    out = machine.handle(ev.ReleaseDone(permit_of(request)), 20)
    assert kinds(out) == ["Feed"] * 3
    segment_id = request.segments[0].segment_id
    out = machine.handle(ev.TickSent(segment_id, 9600, last=True, muted=False), 30)
    assert published(out) == [EventKind.SPEAK_STARTED, EventKind.SPEAK_ENDED]
    assert len(request_in(out).segments) == 1


def test_a_checkpoint_follows_what_was_heard() -> None:
    machine = in_state(State.SPEAKING)
    segment = machine.speech.first
    assert segment is not None
    machine.handle(ev.TickSent(segment.segment.segment_id, 1920, last=False, muted=False), 100)
    machine.next_frame = 77
    due_ms = machine.deadline_ms
    assert due_ms == 10 + machine.limits.checkpoint_ms
    request = request_in(machine.handle(ev.TimeReached(), due_ms))
    assert request.expected_next_offset == request.new_next_offset == 6
    assert request.segments == ()
    assert request.checkpoint.samples_emitted == 1920
    assert request.checkpoint.media_frame == 77


def test_an_interrupt_skips_ends_and_silences() -> None:
    machine = in_state(State.SPEAKING)
    first = machine.speech.first
    assert first is not None
    machine.handle(ev.TickSent(first.segment.segment_id, 2880, last=False, muted=False), 30)
    pending = machine.handle(ev.RecordsRead((text(8, "Never said. And this"),), 9), 40)
    machine.handle(ev.ReleaseDone(permit_of(request_in(pending))), 41)
    machine.handle(ev.RecordsRead((text(9, "nor this. "),), 10), 42)
    seen = ev.InterruptSeen(12, TextRecord(RecordKind.INTERRUPT, event_id="stop"), 8)
    out = machine.handle(seen, 50)
    if "RequestRelease" not in kinds(out):
        out = machine.handle(ev.ReleaseDone(permit_of(machine._ask.request)), 51)
        assert "Feed" not in kinds(out), "what the interrupt cuts off is not begun"
    request = request_in(out)
    assert request.new_next_offset == 13
    assert request.skipped is not None
    assert request.skipped[1] == 12
    assert request.last_seq == 8
    assert request.checkpoint.segments == ()
    assert request.checkpoint.utterance == 1
    out = machine.handle(ev.ReleaseDone(permit_of(request)), 60)
    assert kinds(out)[:2] == ["Silence", "Publish"]
    event = out[1]
    assert isinstance(event, do.Publish)
    assert (event.kind, event.source_event_id, event.offset) == (EventKind.INTERRUPTED, "stop", 12)
    assert event.data["spoken_offset"] == 5
    assert event.data["spoken_samples"] == 2880
    assert machine.state is State.IDLE


def test_a_refused_record_leaves_only_behind_its_dead_letter() -> None:
    machine = claimed()
    bad = ev.Refused(6, DeadLetterReason.TRUNCATED, "short", b"anna", b"\xc3")
    out = machine.handle(ev.RecordsRead((text(5, "Half a "), bad, text(7, "word. ")), 8), 10)
    assert kinds(out) == ["SendLetter"]
    assert machine.handle(ev.TimeReached(), 11) == [], "it is sent once"
    out = machine.handle(ev.LetterSent(6), 20)
    assert published(out) == [EventKind.DEAD_LETTERED]
    request = request_in(out)
    assert request.new_next_offset == 8
    assert [one.text for one in request.segments] == ["Half a word. "]


def test_a_new_owner_makes_the_same_segments_and_skips_what_was_heard() -> None:
    bounds = (SegmentBounds(2, 3, 3, 4), SegmentBounds(4, 0, 4, 7))
    checkpoint = Checkpoint(bounds, 4800, next_char=7, utterance=2, media_frame=500)
    machine = prompt()
    machine.handle(ev.Started("claim-1"), 0)
    out = machine.handle(ev.ClaimDone(LiveOptions(), Cursor(5, 9), checkpoint, 0), 0)
    bind, read = [one for one in out if isinstance(one, do.Bind | do.ReadFrom)]
    assert isinstance(bind, do.Bind)
    assert (bind.start_frame, bind.utterance) == (500, 2)
    assert isinstance(read, do.ReadFrom)
    assert (read.start, read.released_below, read.last_seq) == (2, 5, 9)
    machine.handle(ev.Bound(0, 1), 0)
    assert machine.handle(ev.RecordsRead((text(2, "ab cd "), text(3, "ef. x")), 4), 1) == []
    out = machine.handle(ev.RecordsRead((text(4, "gh. ij. kl. mn"), text(6, "op. ")), 7), 2)
    request = request_in(out)
    assert [(one.text, one.skip_samples, one.utterance) for one in request.segments] == [
        ("cd ef. ", 4800, 2),
        ("gh. ij.", 0, 2),
        (" kl. ", 0, 2),
    ] or [one.text for one in request.segments][:2] == ["cd ef. ", "gh. ij."]
    assert request.segments[0].segment_id == segment_id_of(bounds[0])
    assert request.segments[0].seed == seed_of("anna", bounds[0])
    assert request.expected_next_offset == 5
    out = machine.handle(ev.ReleaseDone(permit_of(request)), 3)
    assert kinds(out)[: len(request.segments)] == ["Feed"] * len(request.segments)


LONG = "And this one comes after a pause, in one long breath, with no full stop for quite a while."


def test_an_owner_that_spoke_before_cuts_like_one_that_takes_over_in_silence() -> None:
    machine = claimed()
    request = asking(machine)
    machine.handle(ev.ReleaseDone(permit_of(request)), 20)
    out = machine.handle(ev.TickSent(request.segments[0].segment_id, 960, True, False), 30)
    assert not len(machine.speech), out
    old = request_in(machine.handle(ev.RecordsRead((text(6, LONG),), 7), 2_000))
    taken_over = claimed(Checkpoint(media_frame=50), cursor=6)
    new = request_in(taken_over.handle(ev.RecordsRead((text(6, LONG),), 7), 2_000))
    assert [one.text for one in old.segments] == [one.text for one in new.segments]
    assert old.segments[0].text == "And this one comes after a pause, in one long breath, "


def test_a_new_owner_knows_that_a_turn_ended_before_it() -> None:
    machine = claimed()
    first = asking(machine)
    machine.handle(ev.ReleaseDone(permit_of(first)), 20)
    out = machine.handle(ev.RecordsRead((mark(6, RecordKind.END_TURN),), 7), 30)
    machine.handle(ev.ReleaseDone(permit_of(request_in(out))), 31)
    old = request_in(machine.handle(ev.RecordsRead((text(7, LONG),), 8), 40))
    taken_over = claimed(first.checkpoint, cursor=7)
    known = (text(5, "Hello. "), mark(6, RecordKind.END_TURN))
    taken_over.handle(ev.RecordsRead(known, 6), 40)
    new = request_in(taken_over.handle(ev.RecordsRead((text(7, LONG),), 8), 40))
    assert [one.text for one in new.segments] == ["Hello. ", *(one.text for one in old.segments)]
    assert old.segments[0].text == "And this one comes after a pause, in one long breath, "


def test_text_that_is_gone_is_an_error_and_the_rest_is_spoken() -> None:
    bounds = (SegmentBounds(2, 0, 2, 4), SegmentBounds(3, 0, 3, 4))
    machine = claimed(Checkpoint(bounds, 960))
    out = machine.handle(ev.RecordsRead((text(3, "cd. "),), 5), 1)
    assert EventKind.ERROR in published(out)
    assert [one.text for one in request_in(out).segments] == ["cd. "]


def test_a_close_that_was_released_is_finished_by_the_next_owner() -> None:
    machine = claimed()
    out = machine.handle(ev.RecordsRead((mark(5, RecordKind.CLOSE),), 6), 10)
    checkpoint = request_in(out).checkpoint
    successor = claimed(checkpoint, cursor=6)
    out = successor.handle(ev.RecordsRead((mark(5, RecordKind.CLOSE),), 6), 1)
    assert kinds(out)[-2:] == ["StopReading", "CloseLive"]
    assert successor.state is State.CLOSING


def test_a_full_ring_costs_a_new_permit() -> None:
    machine = claimed()
    request = asking(machine)
    (feed,) = machine.handle(ev.ReleaseDone(permit_of(request)), 20)
    assert isinstance(feed, do.Feed)
    machine.handle(ev.FeedRefused(feed.segment.segment_id), 20)
    due_ms = machine.deadline_ms
    assert due_ms == 20 + machine.limits.retry_ms
    again = request_in(machine.handle(ev.TimeReached(), due_ms))
    assert again.expected_next_offset == again.new_next_offset == 6
    assert [one.segment_id for one in again.segments] == [feed.segment.segment_id]
    assert again.checkpoint.segments == request.checkpoint.segments


def test_a_lost_stage_binds_again_and_skips_what_was_heard() -> None:
    machine = in_state(State.SPEAKING)
    machine.next_frame = 40
    first = machine.speech.first
    assert first is not None
    machine.handle(ev.TickSent(first.segment.segment_id, 1920, last=False, muted=False), 30)
    out = machine.handle(ev.StagesLost("render"), 40)
    (bind,) = [one for one in out if isinstance(one, do.Bind)]
    assert bind.start_frame == 40
    out = machine.handle(ev.Bound(0, 2), 40)
    (segment,) = request_in(out).segments
    assert segment.skip_samples == 1920


def test_nothing_of_a_void_binding_is_heard_that_is_made_again() -> None:
    machine = in_state(State.SPEAKING)
    order = kinds(machine.handle(ev.StagesLost("render"), 40))
    assert order.index("Freeze") < order.index("Bind"), "a new binding lets the egress go again"
    draining = in_state(State.DRAINING)
    draining.handle(ev.StagesLost("render"), 40)
    out = draining.handle(ev.HandOverRefused("NoFreeSlot", lost=False), 50)
    assert "Bind" in kinds(out)
    assert "Thaw" not in kinds(out)


def test_what_is_lost_while_a_release_is_under_way_is_fed_before_what_comes_with_it() -> None:
    machine = in_state(State.SPEAKING)
    first = machine.speech.first
    assert first is not None
    request = asking(machine, 6)
    machine.handle(ev.StagesLost("render"), 30)
    machine.handle(ev.Bound(0, 2), 30)
    out = machine.handle(ev.ReleaseDone(permit_of(request)), 40)
    assert "Feed" not in kinds(out), "the first segment is not in the stages any more"
    again = request_in(out)
    both = [first.segment.segment_id, request.segments[0].segment_id]
    assert [one.segment_id for one in again.segments] == both
    out = machine.handle(ev.ReleaseDone(permit_of(again)), 50)
    fed = [one.segment.segment_id for one in out if isinstance(one, do.Feed)]
    assert fed == both


def test_what_found_no_room_while_a_release_is_under_way_is_fed_before_what_comes_with_it() -> None:
    machine = claimed()
    records = tuple(text(offset, "Hello. ") for offset in (5, 6))
    request = request_in(machine.handle(ev.RecordsRead(records[:1], 6), 10))
    machine.handle(ev.RecordsRead(records[1:], 7), 10)
    out = machine.handle(ev.ReleaseDone(permit_of(request)), 20)
    next_request = request_in(out)
    machine.handle(ev.FeedRefused(request.segments[0].segment_id), 20)
    out = machine.handle(ev.ReleaseDone(permit_of(next_request)), 30)
    assert "Feed" not in kinds(out), "the segment before it found no room"
    due_ms = machine.deadline_ms
    assert due_ms is not None
    again = request_in(machine.handle(ev.TimeReached(), due_ms))
    assert [one.segment_id for one in again.segments] == [
        one.segment_id for one in (*request.segments, *next_request.segments)
    ]


def test_nothing_is_released_while_the_stages_have_no_slot() -> None:
    machine = prompt()
    machine.handle(ev.Started("claim-1"), 0)
    machine.handle(ev.ClaimDone(LiveOptions(), Cursor(5), None, 0), 0)
    machine.handle(ev.BindRefused("full", retryable=True), 0)
    assert machine.handle(ev.RecordsRead((text(5, "Hello. "),), 6), 10) == []
    due_ms = machine.deadline_ms
    assert due_ms is not None
    out = machine.handle(ev.TimeReached(), machine.limits.bind_retry_ms)
    assert kinds(out) == ["Bind"]
    request_in(machine.handle(ev.Bound(0, 1), 300))


def test_a_hand_over_waits_for_the_release_under_way() -> None:
    machine = in_state(State.SPEAKING)
    request = asking(machine, 6)
    out = machine.handle(ev.HandOverAsked("two-1", "token"), 30)
    assert "HandOver" not in kinds(out)
    assert "Freeze" in kinds(out)
    out = machine.handle(ev.ReleaseDone(permit_of(request)), 40)
    (order,) = [one for one in out if isinstance(one, do.HandOver)]
    assert "Feed" not in kinds(out)
    assert order.token == "token"
    assert len(order.checkpoint.segments) == 2
    out = machine.handle(ev.HandOverDone(OTHER), 50)
    assert EventKind.MOVED in published(out)
    assert machine.state is State.REVOKED


@pytest.mark.parametrize("confirmed", [False, True])
def test_what_we_committed_is_told_also_behind_the_signal_of_it(confirmed: bool) -> None:
    ends = {
        State.CLOSING: (ev.CloseDone(), EventKind.STATE_UPDATED),
        State.DRAINING: (ev.HandOverDone(OTHER), EventKind.MOVED),
    }
    for state, (answer, kind) in ends.items():
        machine = in_state(state)
        machine.handle(ev.OwnershipLost("not ours any more"), 50)
        if confirmed:
            machine.handle(ev.GoneConfirmed(), 55)
        out = machine.handle(answer, 60)
        assert published(out) == [kind]
        assert kinds(out) == ["Publish"], "it was revoked already, and is confirmed gone once"


def test_a_refused_hand_over_goes_on_with_what_came_meanwhile() -> None:
    machine = in_state(State.DRAINING)
    machine.handle(ev.RecordsRead((text(6, "Meanwhile. "),), 7), 35)
    out = machine.handle(ev.HandOverRefused("NoFreeSlot", lost=False), 40)
    assert "Thaw" in kinds(out)
    assert [one.text for one in request_in(out).segments] == ["Meanwhile. "]
    assert machine.state is State.SPEAKING


def test_a_worker_that_ends_leaves_an_exact_checkpoint() -> None:
    machine = in_state(State.SPEAKING)
    request = request_in(machine.handle(ev.StopAsked(), 30))
    assert len(request.checkpoint.segments) == 1
    out = machine.handle(ev.ReleaseDone(permit_of(request)), 40)
    assert "Unbind" in kinds(out)


def test_a_fenced_session_stops_and_asks_whether_rightly() -> None:
    machine = claimed()
    request = asking(machine)
    out = machine.handle(ev.ReleaseStale(request.release_id, OTHER), 20)
    assert EventKind.FENCED in published(out)
    assert kinds(out)[1:4] == ["CheckRefusal", "StopReading", "Unbind"]


def test_a_cursor_elsewhere_is_an_error_and_a_new_claim() -> None:
    machine = in_state(State.SPEAKING)
    request = asking(machine, 6)
    out = machine.handle(ev.CursorFound(request.release_id, Cursor(50)), 20)
    assert EventKind.ERROR in published(out)
    assert kinds(out)[-1] == "Claim"
    out = machine.handle(ev.ClaimDone(LiveOptions(), Cursor(50), None, 0), 30)
    machine.handle(ev.Bound(0, 2), 30)
    assert request_in(machine.handle(ev.RecordsRead((text(50, "On. "),), 51), 40)).release_id != (
        request.release_id
    )


def test_a_segment_that_stays_unheard_is_given_up() -> None:
    machine = in_state(State.SPEAKING)
    due_ms = machine.deadline_ms
    assert due_ms == 20 + machine.limits.stalled_ms
    out = machine.handle(ev.TimeReached(), due_ms)
    assert EventKind.ERROR in published(out)
    assert machine.state is State.IDLE


def test_only_the_fence_makes_permits() -> None:
    item = ReleaseItem("anna", ME, 0, 1, "r/1")
    with pytest.raises(PermitMisused):
        Permit("anna", ME, "r/1", 1, {7})
    permit = mint(Released(item), [7, 8])
    spend(permit, "anna", ME, 7)
    with pytest.raises(PermitMisused):
        spend(permit, "anna", ME, 7)
    with pytest.raises(PermitMisused):
        spend(permit, "anna", ME, 9)
    with pytest.raises(PermitMisused):
        spend(permit, "bob", ME, 8)
    with pytest.raises(PermitMisused):
        spend(permit, "anna", OTHER, 8)
    spend(permit, "anna", ME, 8)


def test_the_story_is_bounded() -> None:
    machine = in_state(State.SPEAKING)
    for at_ms in range(1000):
        machine.handle(ev.LetterSent(at_ms), at_ms)
    assert len(machine.story.lines()) == 64
