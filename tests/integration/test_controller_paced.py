"""The same worker with the real egress and its pacing, over stub stages that tick all the time."""

from collections.abc import Iterator
from itertools import pairwise

import pytest

from ownership.generations import reserve
from rtc_output.egress import LiveEgress
from rtc_output.units import MediaUnit
from schemas.events import EventKind
from schemas.text_record import RecordKind
from tests.integration.controller_world import Member, World


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.close()


class Viewer:
    """Notes what a live's egress sends."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.units: list[tuple[float, MediaUnit]] = []
        self.over = False

    def take(self, unit: MediaUnit) -> None:
        self.units.append((self.world.loop.now_s, unit))

    def ended(self) -> None:
        self.over = True

    @property
    def frames(self) -> list[int]:
        return [unit.frame_index for _, unit in self.units if unit.half == 0]


def watch(world: World, member: Member, live_id: str) -> Viewer:
    session = member.worker.session(live_id)
    assert session is not None
    assert isinstance(session.egress, LiveEgress)
    viewer = Viewer(world)
    session.egress.subscribe(viewer)
    return viewer


def test_media_flows_at_its_pace_speaking_or_not(world: World) -> None:
    one = world.start("one", paced=True)
    world.create("anna", one)
    world.until(lambda: world.idle("anna"))
    viewer = watch(world, one, "anna")
    world.run(1)
    world.push("anna", "Hello there. ", "How are you?")
    world.until(lambda: len(world.events(EventKind.SPEAK_ENDED)) == 2)
    world.run(1)
    assert all(after == before + 1 for before, after in pairwise(viewer.frames))
    begin_s, end_s = viewer.units[0][0], viewer.units[-1][0]
    assert len(viewer.frames) == pytest.approx((end_s - begin_s) * 25, abs=2)


def test_the_first_sound_is_not_kept_waiting(world: World) -> None:
    one = world.start("one", paced=True)
    world.create("anna", one)
    world.until(lambda: world.idle("anna"))
    world.run(2)
    pushed_s = world.loop.now_s
    world.push("anna", "Hello there.")
    world.until(lambda: world.events(EventKind.SPEAK_STARTED))
    assert world.loop.now_s - pushed_s < 0.35


def test_an_interrupt_is_silent_soon(world: World) -> None:
    one = world.start("one", paced=True)
    world.create("anna", one)
    world.until(lambda: world.idle("anna"))
    world.push("anna", "A sentence that goes on for quite some time, longer than anybody likes. ")
    world.until(lambda: world.events(EventKind.SPEAK_STARTED))
    world.run(0.5)
    session = one.worker.session("anna")
    assert session is not None
    assert isinstance(session.egress, LiveEgress)
    world.mark("anna", RecordKind.INTERRUPT)
    said_s = world.loop.now_s
    world.until(lambda: world.events(EventKind.INTERRUPTED))
    assert world.loop.now_s - said_s < 0.1
    world.run(1)
    assert session.egress.stats().ticks_muted <= 5, "only what was on its way"


def test_a_lost_stage_keeps_the_viewers(world: World) -> None:
    one = world.start("one", paced=True)
    world.create("anna", one)
    world.until(lambda: world.idle("anna"))
    viewer = watch(world, one, "anna")
    world.push("anna", "This sentence is broken in the middle by a stage. ", "The next one.")
    world.until(lambda: world.events(EventKind.SPEAK_STARTED))
    world.run(0.7)
    with world.loop.current():
        one.runtime.lose_stage()
    world.until(lambda: len(world.events(EventKind.SPEAK_ENDED)) == 2)
    assert not viewer.over
    assert all(before < after for before, after in pairwise(viewer.frames))


def test_a_planned_move_hands_the_frames_over(world: World) -> None:
    one, two = world.start("one", paced=True), world.start("two", paced=True)
    world.create("anna", one)
    world.until(lambda: world.idle("anna"))
    before = watch(world, one, "anna")
    world.push("anna", *(f"This is sentence number {n} of all. " for n in range(4)))
    world.until(lambda: world.events(EventKind.SPEAK_STARTED))
    world.run(1)
    kept = reserve(world.db, two.worker_id, "token-1", world.clock.wall_ms(), live_id="anna")
    world.call(kept)
    world.until(lambda: two.worker.session("anna") is not None)
    world.until(lambda: two.worker.session("anna").egress is not None)
    after = watch(world, two, "anna")
    world.until(lambda: len(world.events(EventKind.SPEAK_ENDED)) == 4)
    assert before.over
    assert after.frames[0] == before.frames[-1] + 1
    samples = [event.data["samples"] for event in world.events(EventKind.SPEAK_ENDED)]
    assert samples == [len(f"This is sentence number {n} of all. ") * 60 * 24 for n in range(4)]
    resumed = [e.data["from_sample"] for e in world.events(EventKind.SPEAK_STARTED)]
    assert sum(sample > 0 for sample in resumed) == 1
