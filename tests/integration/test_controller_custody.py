"""Records that nobody can speak, watermarks, group offsets, lost logs, many lives."""

import asyncio
from collections.abc import Iterator

import pytest

from ownership.custody import watermark
from schemas.events import EventKind
from schemas.text_record import RecordKind, TextRecord, encode_text_record
from schemas.topics import TEXT_TOPIC
from tests.integration.controller_world import World
from tests.integration.test_controller_moves import advance


@pytest.fixture
def world() -> Iterator[World]:
    made = World(partitions=1)
    yield made
    made.close()


def reasons(world: World) -> dict[int, str]:
    return {letter.offset: letter.reason.value for letter in world.letters()}


BAD_VALUES = {
    "null": (None, "not_avro_or_json"),
    "not json": (b"{", "not_avro_or_json"),
    "neither": (b"hello", "not_avro_or_json"),
    "truncated": (b"\xc3\x01\x00", "truncated"),
    "unknown schema": (b"\xc3\x01" + b"\x00" * 8, "unknown_schema"),
    "trailing": (encode_text_record(TextRecord(RecordKind.TEXT, "Hi")) + b"x", "trailing_bytes"),
    "too large": (b"{" + b" " * 70_000 + b"}", "too_large"),
    "unknown field": (b'{"text": "a", "colour": "red"}', "bad_shape"),
    "control": (b'{"text": "a\\u0007"}', "control_characters"),
    "empty": (b'{"text": "  "}', "empty_text"),
}


@pytest.mark.parametrize("name", BAD_VALUES)
def test_a_bad_record_of_an_owned_live(world: World, name: str) -> None:
    value, reason = BAD_VALUES[name]
    one = world.start("one")
    world.create("anna", one)
    world.push("anna", "Before. ")
    at = world.raw(b"anna", value, 0)
    after = world.push("anna", "After.")
    world.until(lambda: world.idle("anna") and "After" in world.fed_text("anna"))
    assert reasons(world) == {at: reason}
    (letter,) = world.letters()
    assert (letter.key, letter.value) == (b"anna", value)
    assert world.fed_text("anna") == "Before. After."
    assert world.view("anna").cursor.next_offset == after[0] + 1
    (event,) = world.events(EventKind.DEAD_LETTERED)
    assert event.offset == at


def test_a_bad_record_inside_a_sentence_does_not_split_it(world: World) -> None:
    one = world.start("one")
    world.create("anna", one)
    world.push("anna", "Hello wor")
    world.raw(b"anna", b"?", 0)
    world.push("anna", "ld. ")
    world.until(lambda: world.idle("anna") and world.fed_text("anna"))
    assert [fed.segment.text for fed in world.fed] == ["Hello world. "]
    assert len(world.letters()) == 1


def test_duplicates_by_seq(world: World) -> None:
    one = world.start("one")
    world.create("anna", one)
    world.push("anna", "One ", seq=1)
    world.push("anna", "two. ", seq=2)
    again = world.push("anna", "two. ", seq=2)
    world.push("anna", "Three.", seq=3)
    world.until(lambda: world.idle("anna") and "Three" in world.fed_text("anna"))
    assert world.fed_text("anna") == "One two. Three."
    assert reasons(world) == {again[0]: "duplicate_seq"}
    assert world.view("anna").cursor.last_seq == 3


def test_keys_that_name_no_live(world: World) -> None:
    world.start("one")
    bad = [
        world.raw(None, b'{"text": "a"}', 0),
        world.raw(b"", b'{"text": "a"}', 0),
        world.raw(b"\xff", b'{"text": "a"}', 0),
        world.raw(b"x" * 200, b'{"text": "a"}', 0),
    ]
    nobody = world.push("nobody", "Hello.")
    world.until(lambda: len(world.letters()) == 5)
    assert reasons(world) == {**dict.fromkeys(bad, "bad_key"), nobody[0]: "unknown_live"}
    world.until(lambda: world.call(watermark(world.db, 0)) == nobody[0] + 1)
    world.until(lambda: world.broker.groups["dhsched.workers"].committed.get(0) == nobody[0] + 1)
    assert world.call(watermark(world.db, 0)) == nobody[0] + 1


def test_disposed_records_are_not_spoken_by_a_later_live(world: World) -> None:
    one = world.start("one")
    world.push("anna", "Nobody hears this.")
    world.until(lambda: world.letters())
    world.create("anna", one)
    world.push("anna", "But this.")
    world.until(lambda: world.idle("anna") and world.fed_text("anna"))
    assert world.fed_text("anna") == "But this."
    assert len(world.letters()) == 1


def test_the_watermark_waits_for_what_is_not_released(world: World) -> None:
    one = world.start("one")
    world.create("anna", one)
    offsets = world.push("anna", *(f"A rather long sentence, number {n}. " for n in range(10)))
    world.until(lambda: world.heard)
    world.run(3)
    mark = world.call(watermark(world.db, 0))
    assert 0 < mark <= world.view("anna").cursor.next_offset
    world.until(lambda: world.idle("anna"))
    world.until(lambda: world.call(watermark(world.db, 0)) == offsets[-1] + 1)
    assert world.broker.groups["dhsched.workers"].committed[0] == offsets[-1] + 1


def test_a_live_of_another_custodian_keeps_the_watermark_back(world: World) -> None:
    one, two = world.start("one"), world.start("two")
    world.run(1)
    custodian, owner = (one, two) if one.worker.incarnation.consumer.custody.books else (two, one)
    assert not owner.worker.incarnation.consumer.custody.books
    world.create("anna", owner)
    offsets = world.push("anna", *(f"A rather long sentence, number {n}. " for n in range(6)))
    world.until(lambda: world.heard)
    assert owner.worker.counters.records_foreign > 0
    world.run(2)
    assert world.call(watermark(world.db, 0)) <= world.view("anna").cursor.next_offset
    world.until(lambda: world.idle("anna"))
    world.until(lambda: world.call(watermark(world.db, 0)) == offsets[-1] + 1)
    assert custodian.worker.counters.dead_letters == {}


def test_custody_moves_to_and_fro_while_lives_speak(world: World) -> None:
    one, two = world.start("one"), world.start("two")
    world.create("anna", one)
    world.create("bob", two)
    texts = [f"Sentence {number}. " for number in range(60)]
    for text in texts:
        world.push("anna", text)
        world.push("bob", text)
        with world.loop.current():
            world.broker.rebalance("dhsched.workers")
        world.run(0.3)
    for name in ("anna", "bob"):
        world.until(lambda n=name: world.idle(n) and "ence 59." in world.fed_text(n), 200)
        assert world.fed_text(name) == "".join(texts)
    assert world.letters() == []
    end = world.broker.log(TEXT_TOPIC, 0).end
    world.until(lambda: world.call(watermark(world.db, 0)) == end)


def test_a_group_offset_that_went_back_changes_nothing(world: World) -> None:
    one = world.start("one")
    world.create("anna", one)
    world.push("anna", "One. ")
    world.push("nobody", "Hello.")
    world.until(lambda: world.idle("anna") and world.letters())
    world.run(3)
    with world.loop.current():
        world.broker.rewind("dhsched.workers", 0, 0)
        world.broker.rebalance("dhsched.workers")
    world.run(3)
    world.push("anna", "Two.")
    world.until(lambda: world.idle("anna") and "Two" in world.fed_text("anna"))
    assert world.fed_text("anna") == "One. Two."
    assert len(world.letters()) == 1


def test_what_retention_deleted_is_said_and_never_skipped(world: World) -> None:
    one = world.start("one")
    world.create("anna", one)
    world.until(lambda: world.idle("anna"))
    world.crash(one)
    lost = world.push("anna", "Lost one. ", "Lost two. ")
    kept = world.push("anna", "Kept.")
    with world.loop.current():
        world.broker.cut_log(TEXT_TOPIC, 0, kept[0])
    two = world.start("two")
    advance(world, "anna", world.view("anna").generation, two)
    world.until(lambda: world.idle("anna") and world.fed_text("anna"))
    assert world.fed_text("anna") == "Kept."
    assert reasons(world) == {lost[-1]: "before_log_start"}
    (error,) = [e for e in world.events(EventKind.ERROR) if e.data["reason"] == "before_log_start"]
    assert error.offset == lost[-1]


def test_what_nobody_saw_before_retention_deleted_it_is_said(world: World) -> None:
    """Records of lives without an owner: the custodian tells once for all of them."""
    lost = world.push("nobody", "Lost one. ", "Lost two. ")
    kept = world.push("nobody", "Kept.")
    with world.loop.current():
        world.broker.cut_log(TEXT_TOPIC, 0, kept[0])
    world.start("one")
    world.until(lambda: world.call(watermark(world.db, 0)) == kept[0] + 1)
    told, refused = sorted(world.letters(), key=lambda letter: letter.offset)
    assert (told.offset, told.reason.value, told.key) == (lost[-1], "before_log_start", None)
    assert f"offsets {lost[0]} to {lost[-1]} were deleted" in told.detail
    assert (refused.offset, refused.reason.value) == (kept[0], "unknown_live")


def test_an_open_live_is_told_by_name_before_the_watermark_passes_what_was_deleted(
    world: World,
) -> None:
    """Its owner is gone, and whoever takes it over begins behind the watermark."""
    one = world.start("one")
    world.create("anna", one)
    world.until(lambda: world.idle("anna"))
    world.crash(one)
    lost = world.push("anna", "Lost one. ", "Lost two.")
    with world.loop.current():
        world.broker.cut_log(TEXT_TOPIC, 0, lost[-1] + 1)
    two = world.start("two")
    world.until(lambda: world.call(watermark(world.db, 0)) == lost[-1] + 1)
    assert {letter.key for letter in world.letters()} == {None, b"anna"}
    assert set(reasons(world).values()) == {"before_log_start"}
    world.until(lambda: world.events(EventKind.ERROR) != [])
    (error,) = world.events(EventKind.ERROR)
    assert (error.live_id, error.data["reason"]) == ("anna", "before_log_start")
    assert (error.offset, error.epoch) == (lost[-1], 0)
    advance(world, "anna", world.view("anna").generation, two)
    world.push("anna", "Kept.")
    world.until(lambda: world.idle("anna") and world.fed_text("anna") == "Kept.")


def test_lost_text_is_said_once_and_leaves_the_checkpoint(world: World) -> None:
    one = world.start("one")
    world.create("anna", one)
    (offset,) = world.push("anna", "This is a sentence that is cut off in its middle by a crash.")
    world.until(lambda: len(world.heard) > 2)
    world.crash(one)
    with world.loop.current():
        world.broker.cut_log(TEXT_TOPIC, 0, offset + 1)
    two = world.start("two")
    advance(world, "anna", world.view("anna").generation, two)
    world.until(lambda: not world.view("anna").checkpoint.segments)
    three = world.start("three")
    advance(world, "anna", world.view("anna").generation, three)
    world.until(lambda: world.idle("anna"))
    errors = [e.data["reason"] for e in world.events(EventKind.ERROR)]
    assert errors == ["text_lost"]


def test_a_segment_whose_text_is_gone_is_said_and_the_rest_spoken(world: World) -> None:
    one = world.start("one")
    world.create("anna", one)
    texts = [f"This is sentence number {n} of the story. " for n in range(8)]
    offsets = world.push("anna", *texts)
    world.until(lambda: len(world.heard) > 20)
    world.crash(one)
    with world.loop.current():
        world.broker.cut_log(TEXT_TOPIC, 0, offsets[1])
    two = world.start("two")
    advance(world, "anna", world.view("anna").generation, two)
    world.until(lambda: world.idle("anna") and "number 7" in world.fed_text("anna"), 60)
    again = "".join(fed.segment.text for fed in world.fed if fed.worker == "two")
    assert again == "".join(texts[1:])
    errors = [e.data["reason"] for e in world.events(EventKind.ERROR)]
    assert errors == ["text_lost"]


@pytest.mark.parametrize("alone", [True, False])
def test_what_lies_behind_a_close_is_not_lost_with_its_owner(
    world: World, monkeypatch: pytest.MonkeyPatch, alone: bool
) -> None:
    """The CLOSE was released and its owner died: the next one closes while it still catches up."""
    one = world.start("one")
    world.create("anna", one)
    if not alone:
        world.create("bob", one)
        world.push("bob", "I am here too. ")

    async def never(*_: object) -> None:
        await asyncio.get_running_loop().create_future()

    with monkeypatch.context() as patch:
        patch.setattr("controller.outside.close_live", never)
        close = world.mark("anna", RecordKind.CLOSE)
        world.until(lambda: world.view("anna").cursor.next_offset == close + 1)
        world.run(0.5)
        world.crash(one)
    late = world.push("anna", "Too late. ", "Far too late. ")
    late.append(world.mark("anna", RecordKind.INTERRUPT))
    two = world.start("two")
    advance(world, "anna", world.view("anna").generation, two)
    world.until(lambda: not world.view("anna").open)
    late += world.push("anna", "And still.")
    world.until(lambda: reasons(world) == dict.fromkeys(late, "live_closed"))
    assert world.fed_text("anna") == ""
    if alone:
        world.until(lambda: world.call(watermark(world.db, 0)) == late[-1] + 1)


def test_a_flood_for_nobody_does_not_stop_a_live(world: World) -> None:
    one = world.start("one")
    world.create("anna", one)
    for number in range(300):
        world.push(f"nobody-{number % 7}", "Hello.")
    world.push("anna", "I am here.")
    world.until(lambda: world.fed_text("anna") == "I am here.", 2)
    world.until(lambda: len(world.letters()) == 300)
    assert {letter.reason.value for letter in world.letters()} == {"unknown_live"}


def test_five_hundred_lives() -> None:
    with World(partitions=8) as world:
        one = world.start("one", capacity=500, tick_frames=25)
        names = [f"live-{number}" for number in range(500)]
        for name in names:
            world.create(name, one)
        world.until(lambda: one.worker.counters.claims == 500)
        for turn in range(3):
            for name in names:
                world.push(name, f"This is {name}, turn {turn}. ")
            world.run(1)
        world.until(lambda: all(world.idle(name) for name in names))
        for name in names:
            assert world.fed_text(name) == "".join(f"This is {name}, turn {t}. " for t in range(3))
        counters = one.worker.counters
        assert counters.releases / counters.release_batches > 5, "group commit gathers"
        assert counters.refused_stale == counters.falsely_refused == 0


def test_a_record_in_a_partition_that_is_not_its_keys_is_a_dead_letter() -> None:
    """As a client with another partitioner leaves it. Its offset means nothing to the live."""
    world = World(partitions=4)
    try:
        one = world.start("one")
        world.create("anna", one)
        elsewhere = (world.partition("anna") + 1) % 4
        value = encode_text_record(TextRecord(RecordKind.TEXT, "Lost?"))
        offsets = [world.raw(b"anna", value, elsewhere) for _ in range(3)]
        world.until(lambda: len(world.letters()) == 3)
        assert [letter.offset for letter in world.letters()] == offsets
        assert {letter.reason.value for letter in world.letters()} == {"wrong_partition"}
        world.push("anna", "Here.")
        world.until(lambda: world.idle("anna") and "Here" in world.fed_text("anna"))
        assert world.fed_text("anna") == "Here."
    finally:
        world.close()


def test_a_wrong_partition_does_not_move_the_cursor_of_a_live_made_later() -> None:
    world = World(partitions=4)
    try:
        one = world.start("one")
        elsewhere = (world.partition("anna") + 1) % 4
        value = encode_text_record(TextRecord(RecordKind.TEXT, "Lost?"))
        for _ in range(5):
            world.raw(b"anna", value, elsewhere)
        world.until(lambda: len(world.letters()) == 5)
        world.create("anna", one)
        world.push("anna", "Here.")
        world.until(lambda: world.idle("anna") and "Here" in world.fed_text("anna"))
    finally:
        world.close()
