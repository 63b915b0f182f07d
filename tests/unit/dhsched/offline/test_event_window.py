"""Which events belong to a range, and what its beginning needs of the time before."""

from dataclasses import replace

import pytest

from dhsched.offline.entries import CapturedEvent, generation_of, options_of
from dhsched.offline.event_window import EventWindow, OpenLives
from schemas.events import EventKind, LiveEvent
from schemas.options import BadOptions, LiveOptions
from schemas.partition import partition_of
from tests.support.values import changed
from tests.unit.dhsched.offline.captures import HEADER, START_MS

LIVE = "live-1"
PARTITION = partition_of(LIVE.encode(), HEADER.partition_count)
RANGE = replace(
    HEADER, ranges={PARTITION: (10, 20)}, from_ms=START_MS, until_ms=START_MS + 1_000, live_id=None
)


def said(kind: EventKind, at_ms: int = 0, offset: int | None = None, epoch: int = 1, **data: str):
    return LiveEvent(kind, "e", "", LIVE, "w", epoch, START_MS + at_ms, offset, dict(data))


def test_an_event_of_a_record_goes_with_its_record() -> None:
    window = EventWindow(RANGE)
    late = 600_000
    assert window.keeps(said(EventKind.SPEAK_ENDED, late, 10))
    assert window.keeps(said(EventKind.SPEAK_ENDED, late, 19))
    assert not window.keeps(said(EventKind.SPEAK_ENDED, 0, 9))
    assert not window.keeps(said(EventKind.SPEAK_ENDED, 0, 20))


def test_other_events_and_claims_go_by_time() -> None:
    window = EventWindow(RANGE)
    for kind, offset in ((EventKind.MOVED, None), (EventKind.CLAIMED, 20), (EventKind.CLAIMED, 4)):
        assert window.keeps(said(kind, 999, offset))
        assert not window.keeps(said(kind, 1_000, offset))
    assert EventWindow(replace(RANGE, until_ms=None)).keeps(said(EventKind.MOVED, 10**9))


def test_events_of_other_lives_are_left_out() -> None:
    assert EventWindow(replace(RANGE, live_id=LIVE)).keeps(said(EventKind.MOVED))
    assert not EventWindow(replace(RANGE, live_id="other")).keeps(said(EventKind.MOVED))


def opened(*events: LiveEvent) -> list[LiveEvent]:
    lives = OpenLives(EventWindow(RANGE))
    for offset, one in enumerate(events):
        lives.see(CapturedEvent(one, 1, offset, one.at_ms))
    return [entry.event for entry in lives.entries()]


OPEN = said(EventKind.STATE_UPDATED, state="open")
CLAIM = said(EventKind.CLAIMED, offset=0)
NEXT_CLAIM = said(EventKind.CLAIMED, offset=5, epoch=2)
CLOSED = said(EventKind.STATE_UPDATED, state="closed", epoch=2)


def test_an_open_live_keeps_its_opening_and_its_last_claim() -> None:
    speaking = said(EventKind.SPEAK_STARTED, offset=3)
    viewers = said(EventKind.STATE_UPDATED, viewers="2")
    assert opened(OPEN, CLAIM, speaking, NEXT_CLAIM, viewers) == [OPEN, NEXT_CLAIM]
    assert opened(CLAIM, OPEN) == [CLAIM, OPEN], "written by two processes, in either order"


def test_a_closed_live_needs_nothing() -> None:
    assert opened(OPEN, CLAIM, NEXT_CLAIM, CLOSED) == []
    nobody = said(EventKind.STATE_UPDATED, state="closed", epoch=0)
    assert opened(OPEN, CLAIM, nobody) == []


def test_a_live_opened_again_under_its_id_has_nothing_of_its_earlier_life() -> None:
    again = said(EventKind.STATE_UPDATED, state="open", epoch=3)
    assert opened(OPEN, CLAIM, NEXT_CLAIM, again, CLOSED) == [again]
    assert opened(OPEN, CLAIM, NEXT_CLAIM, CLOSED, again) == [again]


def test_what_events_tell_a_replay() -> None:
    options = LiveOptions(look="clay", seed=7)
    text = options.as_json()
    assert options_of(said(EventKind.STATE_UPDATED, state="open", options=text)) == options
    some = said(EventKind.STATE_UPDATED, state="open", options='{"look":"clay","seed":7}')
    assert options_of(some) == options
    assert options_of(OPEN) is None
    assert options_of(said(EventKind.STATE_UPDATED, state="closed", options=text)) is None
    for bad in ("{", "[]", '{"hat": 1}', '{"speed": 9}'):
        with pytest.raises(BadOptions):
            options_of(said(EventKind.STATE_UPDATED, state="open", options=bad))
    found = generation_of(changed(NEXT_CLAIM, data={"segments": 2, "frame": 75}))
    assert found is not None
    assert (found.epoch, found.next_offset, found.segments, found.frame) == (2, 5, 2, 75)
    assert generation_of(OPEN) is None
