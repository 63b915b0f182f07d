"""One worker: speak, interrupt, close; what is released, heard and published."""

from collections.abc import Iterator
from itertools import pairwise

import pytest

from schemas.events import EventKind
from schemas.store_values import LiveStatus
from schemas.text_record import RecordKind
from tests.integration.controller_world import World


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.close()


def test_text_is_spoken_and_its_cursor_moves(world: World) -> None:
    one = world.start("one")
    world.create("anna", one)
    world.until(lambda: one.worker.session("anna") is not None)
    offsets = world.push("anna", "Hello there. ", "How are you today? ", "Fine.")
    world.until(lambda: world.idle("anna") and world.fed_text("anna"))
    assert world.fed_text("anna") == "Hello there. How are you today? Fine."
    assert world.view("anna").cursor.next_offset == offsets[-1] + 1
    kinds = [event.kind for event in world.events(live_id="anna")]
    assert kinds.count(EventKind.SPEAK_STARTED) == 3
    assert kinds.count(EventKind.SPEAK_ENDED) == 3
    assert kinds[:2] == [EventKind.STATE_UPDATED, EventKind.CLAIMED]
    world.run(2)
    assert world.view("anna").checkpoint.segments == ()


def test_a_token_stream_speaks_at_the_first_sentence(world: World) -> None:
    one = world.start("one")
    world.create("anna", one)
    words = [
        "Hello",
        "there",
        "my",
        "friend.",
        "This",
        "is",
        "the",
        "second",
        "sentence,",
        "and",
        "it",
        "goes",
        "on",
    ]
    begin_s = world.loop.now_s
    for word in words:
        world.push("anna", word + " ")
        world.run(0.05)
    assert world.fed[0].segment.text == "Hello there my friend. "
    assert world.fed[0].at_s - begin_s < 0.05 * 5
    world.until(lambda: world.idle("anna"))
    assert world.fed_text("anna") == " ".join(words) + " "


def test_an_interrupt_overtakes_and_skips(world: World) -> None:
    one = world.start("one")
    world.create("anna", one)
    long = [f"This is sentence number {number}. " for number in range(40)]
    world.push("anna", *long)
    world.until(lambda: world.heard)
    world.run(0.5)
    at = world.mark("anna", RecordKind.INTERRUPT)
    pushed_s = world.loop.now_s
    world.until(lambda: world.events(EventKind.INTERRUPTED))
    assert world.loop.now_s - pushed_s < 0.2
    world.push("anna", "After the interrupt.")
    world.until(lambda: world.idle("anna") and "After" in world.fed_text("anna"))
    said = world.fed_text("anna")
    assert said.endswith("After the interrupt.")
    assert "number 39" not in said
    event = world.events(EventKind.INTERRUPTED)[0]
    assert event.offset == at
    assert event.source_event_id == "interrupt-anna"
    spoken = max(one.end for one in world.heard if one.at_s <= pushed_s)
    assert event.data["spoken_samples"] == spoken
    assert event.data["spoken_offset"] is not None
    # Nothing of the old turn is heard later than a tick after the commit.
    old = [one for one in world.heard if one.segment_id == world.fed[0].segment.segment_id]
    assert old[-1].at_s <= pushed_s + 0.2


def test_an_interrupt_is_seen_behind_more_text_than_is_kept(world: World) -> None:
    one = world.start("one")
    world.create("anna", one)
    for block in range(20):
        world.push("anna", *(f"Block {block}, sentence {n}. " for n in range(60)))
    world.mark("anna", RecordKind.INTERRUPT)
    world.push("anna", "Now this.")
    world.until(lambda: world.idle("anna") and "Now this." in world.fed_text("anna"))
    assert world.loop.now_s < 30
    assert "Block 19" not in world.fed_text("anna")
    assert world.letters() == []


def test_more_text_than_is_kept_is_read_again(world: World) -> None:
    one = world.start("one", ms_per_character=1)
    world.create("anna", one)
    texts = [f"Sentence number {number} of many. " for number in range(1500)]
    world.push("anna", *texts)
    world.until(lambda: world.idle("anna") and "number 1499" in world.fed_text("anna"), 300)
    assert world.fed_text("anna") == "".join(texts)
    assert one.worker.counters.records_reread_used > 0


def test_close_speaks_what_came_before_and_then_ends(world: World) -> None:
    one = world.start("one")
    world.create("anna", one)
    world.push("anna", "Good bye. ", "See you")
    at = world.mark("anna", RecordKind.CLOSE)
    late = world.push("anna", "Too late.")
    world.until(lambda: world.view("anna").live.state is LiveStatus.CLOSED)
    assert world.fed_text("anna") == "Good bye. See you"
    assert world.view("anna").cursor.next_offset == at + 1
    heard = world.heard_samples("anna")
    assert len(heard) == 2
    world.until(lambda: world.letters())
    assert [(letter.offset, letter.reason.value) for letter in world.letters()] == [
        (late[0], "live_closed")
    ]
    world.until(lambda: not one.worker.incarnation.lives.sessions)
    assert one.runtime.stats()["bound"] == 0


def test_a_live_created_again_does_not_close_again(world: World) -> None:
    one = world.start("one")
    world.create("anna", one)
    world.mark("anna", RecordKind.CLOSE)
    world.until(lambda: world.view("anna").live.state is LiveStatus.CLOSED)
    world.create("anna", one)
    world.push("anna", "Here again.")
    world.until(lambda: world.idle("anna") and world.fed_text("anna"))
    assert world.view("anna").open
    assert world.fed_text("anna") == "Here again."


def test_text_from_before_the_live_is_spoken(world: World) -> None:
    one = world.start("one")
    world.create("bob", one)
    world.push("bob", "Bob is here.")
    world.until(lambda: world.idle("bob") and world.fed_text("bob"))
    assert world.create("anna", one).epoch == 1
    world.push("anna", "One. ", "Two.")
    world.until(lambda: world.idle("anna") and world.fed_text("anna"))
    assert world.fed_text("anna") == "One. Two."


def test_a_lost_stage_is_bound_again_and_goes_on_where_it_was(world: World) -> None:
    one = world.start("one")
    world.create("anna", one)
    world.push("anna", "This sentence is broken in the middle by a stage. ", "The next one.")
    world.until(lambda: len(world.heard) > 10)
    with world.loop.current():
        one.runtime.lose_stage()
    world.until(lambda: world.idle("anna") and "next" in world.fed_text("anna"))
    for ranges in world.heard_samples("anna").values():
        assert ranges[0][0] == 0
        for (_, end), (begin, _) in pairwise(ranges):
            assert begin == end, "nothing is lost or repeated"
    assert one.worker.counters.stages_lost == 1


def test_a_failed_segment_is_an_event_and_the_live_goes_on(world: World) -> None:
    one = world.start("one")
    world.create("anna", one)
    world.push("anna", "This one fails. ", "This one is fine.")
    world.until(lambda: world.heard)
    with world.loop.current():
        one.runtime.fail_segment(0, "no such phoneme")
    world.until(lambda: world.idle("anna"))
    (error,) = world.events(EventKind.ERROR)
    assert error.data["reason"] == "segment_failed"
    assert error.data["detail"] == "no such phoneme"
    assert error.source_event_id == "e-anna-0"
    assert len(world.events(EventKind.SPEAK_ENDED)) == 1
