"""Workers with an unreliable store, an unreliable broker, crashes, pauses, rebalances and moves.

A short version of the simulator, aimed at the shell alone: whatever happens, every sentence is said
once and in order, and every record has one end.
"""

from random import Random

import pytest

from ownership.generations import commit_generation, reserve
from ownership.memory import Faults
from ownership.model import CommitGeneration
from ownership.workers import list_workers, mark_dead
from schemas.text_record import RecordKind
from tests.integration.controller_world import Member, World

LIVES = ("anna", "bob", "carl", "dora")


def unreliable(rng: Random) -> Faults:
    return Faults(
        conflict=0.05,
        unknown_applied=0.03,
        unknown_dropped=0.03,
        unknown_late=0.03,
        away=0.03,
        begin_s=(0.0, 0.003),
        commit_s=(0.0, 0.003),
        reply_s=(0.0, 0.003),
        late_s=(0.0, 0.2),
    )


class Story:
    """One random history. Odd seeds have faults in store and broker too."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.world = World(seed=seed, partitions=2)
        self.faulty = seed % 2 == 1
        self.pushed: dict[str, list[str]] = {name: [] for name in LIVES}
        self.nobody: list[int] = []
        self.nodes = 0
        self.moves = 0

    def start(self) -> Member:
        self.nodes += 1
        faults = unreliable(self.rng) if self.faulty else None
        return self.world.start(f"node-{self.nodes}", faults=faults, tick_frames=5)

    def begin(self) -> None:
        world = self.world
        first, second = self.start(), self.start()
        for number, name in enumerate(LIVES):
            world.create(name, (first, second)[number % 2])
        if self.faulty:
            faults = world.broker.faults
            faults.send_unknown_applied = faults.send_unknown_lost = 0.05
            faults.send_refused = 0.0
            faults.fetch_again = 0.1
            faults.latency_ms_max = 4.0

    def act(self) -> None:
        world, rng = self.world, self.rng
        match rng.choices(
            ("push", "tokens", "bad", "nobody", "rebalance", "move", "plan", "crash", "pause"),
            (30, 15, 5, 5, 4, 6, 6, 4, 4),
        )[0]:
            case "push":
                self._push(rng.choice(LIVES), whole=True)
            case "tokens":
                self._push(rng.choice(LIVES), whole=False)
            case "bad":
                name = rng.choice(LIVES)
                world.raw(name.encode(), b"?", world.partition(name))
            case "nobody":
                name = f"nobody-{rng.randrange(3)}"
                self.nobody += world.push(name, "Hello. ")
            case "rebalance":
                with world.loop.current():
                    world.broker.rebalance("dhsched.workers")
            case "move":
                self._move(rng.choice(LIVES))
            case "plan":
                self._plan(rng.choice(LIVES))
            case "crash":
                self._crash()
            case "pause":
                self._pause()
            case _:
                raise AssertionError
        world.run(rng.choice((0.0, 0.01, 0.1, 0.5, 1.0)))

    def _push(self, name: str, *, whole: bool) -> None:
        text = f"Number {len(self.pushed[name])} of {name}. "
        self.pushed[name].append(text)
        if whole:
            self.world.push(name, text)
        else:
            self.world.push(name, *(word + " " for word in text.split()))

    def _target(self, source: str) -> Member | None:
        ready = [m for m in self.world.members if m.worker.ready and m.worker_id != source]
        return self.rng.choice(ready) if ready else None

    def _move(self, name: str) -> None:
        world, view = self.world, self.world.view(name)
        source = view.generation
        target = None if source is None else self._target(source.worker_id)
        if source is None or target is None:
            return
        self.moves += 1
        request = CommitGeneration(
            name, source, target.worker_id, f"move-{self.moves}", world.clock.wall_ms()
        )
        world.call(commit_generation(world.db, request))

    def _plan(self, name: str) -> None:
        world = self.world
        source = world.view(name).generation
        target = None if source is None else self._target(source.worker_id)
        if target is None:
            return
        self.moves += 1
        token = f"token-{self.moves}"
        kept = reserve(world.db, target.worker_id, token, world.clock.wall_ms(), live_id=name)
        world.call(kept)

    def _crash(self) -> None:
        world = self.world
        victim = self.rng.choice(world.members)
        worker_id = victim.worker_id if victim.worker.incarnation is not None else None
        world.crash(victim)
        replacement = self.start()
        if worker_id is not None:
            self._recover(worker_id, replacement)

    def _recover(self, dead: str, replacement: Member) -> None:
        world = self.world
        for view in world.call(list_workers(world.db)):
            if view.value.worker_id == dead:
                world.call(mark_dead(world.db, dead, view.beat))
        for name in LIVES:
            source = world.view(name).generation
            if source is not None and source.worker_id == dead:
                self.moves += 1
                request = CommitGeneration(
                    name,
                    source,
                    replacement.worker_id,
                    f"move-{self.moves}",
                    world.clock.wall_ms(),
                )
                world.call(commit_generation(world.db, request))

    def _pause(self) -> None:
        """A process stands still, is given up, and comes back as a zombie."""
        world = self.world
        victim = self.rng.choice(world.members)
        if victim.worker.incarnation is None:
            return
        worker_id = victim.worker_id
        victim.process.pause()
        world.run(self.rng.choice((0.05, 1.0)))
        if self.rng.random() < 0.5:
            replacement = self.start()
            self._recover(worker_id, replacement)
        victim.process.resume()
        world.until(lambda: victim.worker.ready)
        for name in LIVES:
            source = world.view(name).generation
            assert source is not None

    def end(self) -> None:
        world = self.world
        for member in world.members:
            member.db.faults = None
        world.broker.faults.send_unknown_applied = world.broker.faults.send_unknown_lost = 0.0
        for name in LIVES:
            last = self.pushed[name][-1:] or [""]
            world.until(lambda n=name, t=last[0]: world.idle(n) and t in world.fed_text(n), 400)
            assert world.fed_text(name) == "".join(self.pushed[name])
            self._heard_whole(name)
        world.until(lambda: set(self.nobody) <= {one.offset for one in world.letters()}, 60)
        assert not world.loop.errors

    def _heard_whole(self, name: str) -> None:
        texts = {f.segment.segment_id: f.segment.text for f in self.world.fed if f.live_id == name}
        heard = self.world.heard_samples(name)
        assert heard.keys() == texts.keys()
        for segment_id, ranges in heard.items():
            at = 0
            for begin, end in sorted(ranges):
                assert begin <= at, f"a gap in {texts[segment_id]!r}"
                at = max(at, end)
            assert at == len(texts[segment_id]) * 60 * 24


@pytest.mark.parametrize("seed", range(16))
def test_whatever_happens_every_sentence_is_said_once(seed: int) -> None:
    story = Story(seed)
    with story.world:
        story.begin()
        for _ in range(60):
            story.act()
        story.end()


@pytest.mark.parametrize("seed", range(4))
def test_an_interrupt_under_faults_ends_what_came_before(seed: int) -> None:
    story = Story(2 * seed + 1)
    with story.world as world:
        story.begin()
        for _ in range(10):
            story.act()
        for name in LIVES:
            world.push(name, *(f"Old text {n}. " for n in range(30)))
        world.run(1)
        for name in LIVES:
            world.mark(name, RecordKind.INTERRUPT)
            world.push(name, "New text.")
        for _ in range(5):
            story._move("anna")
            world.run(0.3)
        for member in world.members:
            member.db.faults = None
        for name in LIVES:
            world.until(lambda n=name: world.idle(n) and "New text." in world.fed_text(n), 200)
            assert "Old text 29" not in world.fed_text(name)
            assert world.fed_text(name).endswith("New text.")
