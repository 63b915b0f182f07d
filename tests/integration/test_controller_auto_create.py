"""Text for ids that never lived: with the policy `create` it opens lives, and loses nothing."""

from collections.abc import Iterator

import pytest

from ownership.custody import watermark
from ownership.generations import commit_generation
from ownership.lives import close_live, get_live
from ownership.model import CommitGeneration, CommittedGeneration
from ownership.recovery import list_orphans
from schemas.events import EventKind
from schemas.options import LiveOptions
from schemas.text_record import RecordKind
from tests.integration.controller_world import World

AVATAR = LiveOptions(look="studio", seed=7)


@pytest.fixture
def world() -> Iterator[World]:
    with World(partitions=1) as made:
        yield made


def spoken(world: World, live_id: str, text: str) -> bool:
    return world.idle(live_id) and world.fed_text(live_id) == text


def test_text_opens_a_live_and_all_of_it_is_spoken(world: World) -> None:
    one = world.start("one", auto_create=AVATAR)
    first = world.push("anna", "Who calls? ", "I do. ")
    world.until(lambda: world.call(get_live(world.db, "anna")))
    last = world.push("anna", "And so on.")
    world.until(lambda: spoken(world, "anna", "Who calls? I do. And so on."))
    view = world.view("anna")
    assert (view.live.options, view.generation.worker_id) == (AVATAR, one.worker_id)
    assert view.cursor.next_offset == last[0] + 1
    assert world.letters() == []
    assert one.worker.counters.lives_auto_created == 1
    opened, committed = world.events(live_id="anna")[:2]
    assert (opened.kind, opened.offset) == (EventKind.STATE_UPDATED, first[0])
    assert (committed.kind, committed.data["cause"]) == (EventKind.GENERATION_COMMITTED, "record")
    world.until(lambda: world.call(watermark(world.db, 0)) == last[0] + 1)


def test_only_text_opens_a_live(world: World) -> None:
    world.start("one", auto_create=AVATAR)
    world.raw(b"anna", b"not a record", 0)
    for kind in (RecordKind.INTERRUPT, RecordKind.CLOSE, RecordKind.END_TURN):
        world.mark("anna", kind)
    world.raw(None, b'{"text": "a"}', 0)
    world.until(lambda: len(world.letters()) == 5)
    assert world.call(get_live(world.db, "anna")) is None
    text = world.push("anna", "Now.")
    world.until(lambda: spoken(world, "anna", "Now."))
    assert world.view("anna").cursor.next_offset == text[0] + 1
    assert len(world.letters()) == 5


def test_a_closed_live_is_not_brought_back_by_late_text(world: World) -> None:
    one = world.start("one", auto_create=AVATAR)
    world.create("anna", one)
    world.call(close_live(world.db, "anna", None, "api", world.clock.wall_ms()))
    world.push("anna", "Too late.")
    world.until(lambda: world.letters())
    assert [letter.reason.value for letter in world.letters()] == ["live_closed"]
    assert not world.view("anna").open


def test_many_ids_at_once_fill_both_workers_and_the_rest_waits(world: World) -> None:
    """One custodian has the only partition: it takes what it can and gives to the other."""
    one = world.start("one", capacity=4, auto_create=AVATAR)
    two = world.start("two", capacity=3, auto_create=AVATAR)
    names = [f"live-{number}" for number in range(10)]
    offsets = {name: world.push(name, f"I am {name}. ")[0] for name in names}
    world.until(lambda: len(world.call(list_orphans(world.db, None, 20))) == 3)
    views = {name: world.view(name) for name in names}
    owners = [view.generation.worker_id for view in views.values() if view.generation]
    assert sorted(owners) == sorted([one.worker_id] * 4 + [two.worker_id] * 3)
    for name, view in views.items():
        if view.generation is not None:
            world.until(lambda n=name: spoken(world, n, f"I am {n}. "))
    # Nothing is lost while they wait, nor when whoever opened them is gone.
    world.run(3)
    assert world.letters() == []
    waiting = [orphan.live_id for orphan in world.call(list_orphans(world.db, None, 20))]
    assert world.call(watermark(world.db, 0)) <= min(offsets[name] for name in waiting)
    world.crash(one)
    three = world.start("three", capacity=16, auto_create=AVATAR)
    for name in waiting:
        placed = world.call(
            commit_generation(
                world.db, CommitGeneration(name, None, three.worker_id, f"place {name}", 0)
            )
        )
        assert isinstance(placed, CommittedGeneration)
    for name in waiting:
        world.until(lambda n=name: spoken(world, n, f"I am {n}. "))
    assert world.letters() == []


def test_custody_that_moves_to_and_fro_opens_each_live_once(world: World) -> None:
    """Two custodians, rebalanced under a stream of new ids: each live once, each text once."""
    members = [world.start(name, capacity=64, auto_create=AVATAR) for name in ("one", "two")]
    names = [f"live-{number}" for number in range(30)]
    for name in names:
        world.push(name, f"Here is {name}, ", "and that is all.")
        with world.loop.current():
            world.broker.rebalance("dhsched.workers")
        world.run(0.1)
    for name in names:
        world.until(lambda n=name: spoken(world, n, f"Here is {n}, and that is all."), 120)
        assert world.view(name).generation.epoch == 1
    assert world.letters() == []
    assert sum(one.worker.counters.lives_auto_created for one in members) == len(names)


def test_a_strict_worker_beside_a_generous_one_loses_nothing(world: World) -> None:
    """The policies differ while an operator changes them: every text is spoken or a letter."""
    world.start("one", capacity=64, auto_create=AVATAR)
    world.start("two", capacity=64)
    names = [f"live-{number}" for number in range(20)]
    for name in names:
        world.push(name, f"I am {name}.")
        with world.loop.current():
            world.broker.rebalance("dhsched.workers")
        world.run(0.1)

    def accounted() -> bool:
        letters = {letter.key.decode() for letter in world.letters()}
        heard = {name for name in names if world.fed_text(name) == f"I am {name}."}
        assert not letters & heard
        return letters | heard == set(names)

    world.until(accounted, 120)
