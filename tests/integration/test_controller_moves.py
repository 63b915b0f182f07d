"""Two workers: lives move between them, one crashes, one is stale. Nothing is lost or repeated."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from controller.node_name import NodeTaken
from ownership.generations import commit_generation, reserve
from ownership.model import CommitGeneration, CommittedGeneration, Generation
from ownership.workers import list_workers, mark_dead, node_holder, register_worker
from schemas.events import EventKind
from schemas.store_values import WorkerState
from schemas.text_record import RecordKind
from tests.integration.controller_world import Member, World

TEXT = [f"This is sentence number {number} of the story. " for number in range(12)]


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.close()


def advance(world: World, live_id: str, old: Generation, target: Member) -> Generation:
    """What Dispatch does: commit the next generation."""
    request = CommitGeneration(
        live_id, old, target.worker_id, f"move-{live_id}-{old.epoch}", world.clock.wall_ms()
    )
    answer = world.call(commit_generation(world.db, request))
    assert isinstance(answer, CommittedGeneration), answer
    return answer.generation


def check_heard(world: World, live_id: str, texts: list[str], repeat_ms_max: int = 0) -> None:
    """Every sample of every segment was sent, and none again, but for what a crash may repeat."""
    repeated = 0
    segments = {fed.segment.segment_id: fed.segment for fed in world.fed if fed.live_id == live_id}
    heard = world.heard_samples(live_id)
    assert heard.keys() == segments.keys()
    for segment_id, ranges in heard.items():
        at = 0
        for begin, end in ranges:
            assert begin <= at, (
                f"samples {at} to {begin} of {segments[segment_id].text} are missing"
            )
            repeated += max(0, min(at, end) - begin)
            at = max(at, end)
        assert at == len(segments[segment_id].text) * 60 * 24
    assert world.fed_text(live_id) == "".join(texts)
    assert repeated <= repeat_ms_max * 24, f"{repeated / 24} ms were heard again"


def test_a_move_goes_on_within_a_checkpoint(world: World) -> None:
    one, two = world.start("one"), world.start("two")
    first = world.create("anna", one)
    world.push("anna", *TEXT)
    world.until(lambda: len(world.heard) > 100)
    second = advance(world, "anna", first, two)
    world.until(lambda: world.idle("anna") and "number 11" in world.fed_text("anna"), 120)
    check_heard(world, "anna", TEXT, repeat_ms_max=540)
    assert second.epoch == 2
    assert {fed.worker for fed in world.fed} == {"one", "two"}
    switched_s = min(fed.at_s for fed in world.fed if fed.epoch == 2)
    assert all(one.at_s <= switched_s + 0.2 for one in world.heard if one.epoch == 1)
    world.until(lambda: one.runtime.stats()["bound"] == 0)
    (moved,) = [v for v in world.call(_workers(world)) if v.value.worker_id == one.worker_id]
    assert (moved.held, moved.leaving) == (0, 0)


async def _workers(world: World):
    from ownership.workers import list_workers

    return await list_workers(world.db)


def test_a_planned_move_repeats_nothing(world: World) -> None:
    one, two = world.start("one"), world.start("two")
    world.create("anna", one)
    world.push("anna", *TEXT)
    world.until(lambda: len(world.heard) > 100)
    kept = reserve(world.db, two.worker_id, "token-1", world.clock.wall_ms(), live_id="anna")
    world.call(kept)
    world.until(lambda: two.worker.session("anna") is not None)
    world.until(lambda: world.idle("anna") and "number 11" in world.fed_text("anna"), 120)
    check_heard(world, "anna", TEXT)
    (event,) = world.events(EventKind.MOVED)
    assert event.data == {"to_worker_id": two.worker_id, "to_epoch": 2}
    assert one.worker.counters.moves_out == 1
    first_of_two = next(heard for heard in world.heard if heard.worker == "two")
    last_of_one = [heard for heard in world.heard if heard.worker == "one"][-1]
    assert first_of_two.at_s - last_of_one.at_s < 0.5


def test_a_drained_worker_gives_its_lives_away_and_ends(world: World) -> None:
    one, two = world.start("one"), world.start("two")
    for name in ("anna", "bob", "carl"):
        world.create(name, one)
        world.push(name, *TEXT)
    world.until(lambda: len({heard.live_id for heard in world.heard}) == 3)
    with world.loop.current():
        one.worker.stop()
    world.until(lambda: one.task.done())
    world.members.remove(one)
    for name in ("anna", "bob", "carl"):
        world.until(lambda n=name: world.idle(n) and "number 11" in world.fed_text(n), 120)
        check_heard(world, name, TEXT)
    states = {v.value.node: v.value.state for v in world.call(_workers(world))}
    assert states == {"one": WorkerState.DEAD, "two": WorkerState.READY}
    assert two.worker.counters.claims == 3


def test_without_room_elsewhere_the_text_waits_for_the_next_worker(world: World) -> None:
    one = world.start("one")
    old = world.create("anna", one)
    world.push("anna", *TEXT)
    world.until(lambda: len(world.heard) > 60)
    with world.loop.current():
        one.worker.stop()
    world.until(lambda: one.task.done(), 40)
    world.members.remove(one)
    assert world.view("anna").open
    two = world.start("two")
    advance(world, "anna", old, two)
    world.until(lambda: world.idle("anna") and "number 11" in world.fed_text("anna"), 120)
    check_heard(world, "anna", TEXT)


def test_a_crash_loses_nothing(world: World) -> None:
    one, two = world.start("one"), world.start("two")
    old = world.create("anna", one)
    world.push("anna", *TEXT)
    world.until(lambda: len(world.heard) > 150)
    world.crash(one)
    world.run(1)
    advance(world, "anna", old, two)
    world.until(lambda: world.idle("anna") and "number 11" in world.fed_text("anna"), 120)
    check_heard(world, "anna", TEXT, repeat_ms_max=540)


@pytest.mark.parametrize("heard", range(3, 120, 9))
def test_a_crash_at_any_moment_loses_nothing(heard: int) -> None:
    with World(seed=heard) as world:
        one, two = world.start("one"), world.start("two")
        old = world.create("anna", one)
        for text in TEXT[:6]:
            for word in text.split():
                world.push("anna", word + " ")
        world.until(lambda: len(world.heard) > heard)
        world.crash(one)
        advance(world, "anna", old, two)
        world.until(lambda: world.idle("anna") and "number 5" in world.fed_text("anna"), 120)
        check_heard(world, "anna", TEXT[:6], repeat_ms_max=540)


def test_a_stale_worker_is_refused_and_stops(world: World) -> None:
    one, two = world.start("one"), world.start("two")
    old = world.create("anna", one)
    world.push("anna", *TEXT[:4])
    world.until(lambda: len(world.heard) > 20)
    # It stands still, and does not hear that the live was given away.
    one.process.pause()
    paused_s = world.loop.now_s
    advance(world, "anna", old, two)
    world.until(lambda: any(fed.worker == "two" for fed in world.fed))
    world.push("anna", *TEXT[4:8])
    world.run(3)
    before = len([fed for fed in world.fed if fed.worker == "one"])
    one.process.resume()
    resumed_s = world.loop.now_s
    world.until(lambda: one.worker.session("anna") is None)
    assert world.loop.now_s - resumed_s < 0.1
    world.until(lambda: world.idle("anna") and "number 7" in world.fed_text("anna"), 120)
    assert len([fed for fed in world.fed if fed.worker == "one"]) == before
    # What it still sends to its own viewers before it hears of it ends at once.
    world.heard = [one for one in world.heard if one.worker == "two" or one.at_s <= paused_s]
    check_heard(world, "anna", TEXT[:8], repeat_ms_max=540)
    assert one.worker.counters.falsely_refused == 0


def test_a_stale_release_is_fenced(world: World) -> None:
    """The signal is lost: only the fence stands between a stale worker and the text."""
    one, two = world.start("one"), world.start("two")
    old = world.create("anna", one)
    world.until(lambda: one.worker.session("anna") is not None and world.idle("anna"))
    session = one.worker.session("anna")
    assert session is not None
    one.worker.incarnation.watch._owned = lambda owned: None
    advance(world, "anna", old, two)
    world.until(lambda: two.worker.session("anna") is not None)
    offset = world.push("anna", "Who says this?")[0]
    world.until(lambda: one.worker.counters.refused_stale)
    world.until(lambda: world.fed_text("anna"))
    assert [fed.worker for fed in world.fed] == ["two"]
    assert world.view("anna").cursor.next_offset == offset + 1
    (event,) = world.events(EventKind.FENCED)
    assert event.data == {"owner_worker_id": two.worker_id, "owner_epoch": 2}
    assert (event.worker_id, event.epoch) == (one.worker_id, 1)
    world.until(lambda: session.machine.state == "gone")
    assert one.worker.counters.falsely_refused == 0
    assert one.runtime.stats()["bound"] == 0


def test_a_superseded_incarnation_stops_and_begins_anew(world: World) -> None:
    one = world.start("one")
    old = world.create("anna", one)
    world.push("anna", *TEXT[:6])
    world.until(lambda: len(world.heard) > 60)
    first = one.worker_id
    other = world.start("one")  # the same node: the first incarnation is marked dead
    world.until(lambda: one.worker.incarnation is not None and one.worker_id != first)
    # Each supersedes the other for ever; end the second.
    world.crash(other)
    world.until(lambda: one.worker.ready)
    world.run(5)
    advance(world, "anna", old, one)
    world.until(lambda: world.idle("anna") and "number 5" in world.fed_text("anna"), 120)
    check_heard(world, "anna", TEXT[:6], repeat_ms_max=540)


def test_whoever_took_its_place_while_the_broker_was_away_keeps_it(world: World) -> None:
    one = world.start("one", gives_way=True)
    dead = one.worker_id
    (view,) = world.call(list_workers(world.db))
    world.broker.away = True
    world.call(mark_dead(world.db, dead, view.beat))
    world.until(lambda: one.worker.incarnation is None)
    world.run(2)  # it may begin anew, and waits for the broker
    world.call(register_worker(world.db, replace(view.value, worker_id="twin")))
    world.broker.away = False
    with pytest.raises(NodeTaken, match=f"{dead} was superseded: twin"):
        world.run(5)
    holder = world.call(node_holder(world.db, "one"))
    assert holder is not None
    assert holder[0].worker_id == "twin"


def test_an_interrupt_is_not_undone_by_a_crash(world: World) -> None:
    one, two = world.start("one"), world.start("two")
    old = world.create("anna", one)
    world.push("anna", *TEXT)
    world.until(lambda: len(world.heard) > 20)
    world.mark("anna", RecordKind.INTERRUPT)
    world.push("anna", "A new beginning. ", "And its end.")
    world.until(lambda: world.events(EventKind.INTERRUPTED))
    world.crash(one)
    advance(world, "anna", old, two)
    world.until(lambda: world.idle("anna") and "end." in world.fed_text("anna"))
    after = [fed.segment.text for fed in world.fed if fed.worker == "two"]
    assert after[-2:] == ["A new beginning. ", "And its end."]
    assert not any("sentence" in text for text in after)
    assert {fed.segment.utterance for fed in world.fed if fed.worker == "two"} == {1}
