"""One run of one seed under one protocol: the world's history, judged."""

import hashlib
from collections import Counter
from dataclasses import dataclass

from tests.sim import history as h
from tests.sim import windows
from tests.sim.checkers import Verdict, check
from tests.sim.install import install
from tests.sim.loop import SimulationStuck
from tests.sim.plan import Plan, make_plan
from tests.sim.verdict import Invariant
from tests.sim.world import World

install()


@dataclass(slots=True)
class Run:
    """`trace` is empty unless it was asked for."""

    plan: Plan
    verdict: Verdict
    history: h.History
    windows: Counter[str]
    records: int
    steps: int
    trace: str = ""

    @property
    def seed(self) -> int:
        return self.plan.seed


def run_seed(seed: int, *, traced: bool = False) -> Run:
    """The seed's run under whatever protocol is in force."""
    return run_plan(make_plan(seed), traced=traced)


def run_plan(plan: Plan, *, traced: bool = False) -> Run:
    """A run of this very plan."""
    world = World(plan)
    try:
        world.run()
    except SimulationStuck as error:
        world.give_up(error)
    found = world.recorder.windows
    found.update(windows.count(world.history))
    verdict = check(world.history)
    found["crashed_mid_sentence"] += verdict.heard.crashed_mid_sentence
    found["handed_over_mid_segment"] += verdict.heard.handed_over_mid_segment
    return Run(
        plan,
        verdict,
        world.history,
        found,
        world.recorder.records,
        world.loop.steps,
        trace_hash(world) if traced else "",
    )


def first_broken(plan: Plan) -> Invariant | None:
    """The invariant that a run of this plan breaks first, if any."""
    violations = run_plan(plan).verdict.violations
    return violations[0].invariant if violations else None


def trace_hash(world: World) -> str:
    """Equal only for runs in which the same happened, in the same order, in as many steps."""
    digest = hashlib.blake2b(digest_size=16)
    for entry in world.history:
        digest.update(repr(entry).encode())
    digest.update(f"{world.loop.steps} {world.loop.now_s!r}".encode())
    return digest.hexdigest()
