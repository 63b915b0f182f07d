"""One run of one seed under one protocol: the world's history, judged."""

import hashlib
from collections import Counter
from dataclasses import dataclass

from tests.sim import history as h
from tests.sim import shortcuts, spies, windows
from tests.sim.checkers import Verdict, check
from tests.sim.plan import make_plan
from tests.sim.thaw import thaw
from tests.sim.world import World

shortcuts.install()
spies.install()
thaw()


@dataclass(slots=True)
class Run:
    """`trace` is empty unless it was asked for."""

    seed: int
    verdict: Verdict
    history: h.History
    windows: Counter[str]
    records: int
    workers: int
    steps: int
    trace: str = ""


def run_seed(seed: int, *, traced: bool = False) -> Run:
    """The seed's run under whatever protocol is in force."""
    world = World(make_plan(seed))
    world.run()
    rec = world.recorder
    rec.windows.update(windows.count(world.history))
    return Run(
        seed,
        check(world.history),
        world.history,
        rec.windows,
        rec.records,
        len(world.plan.capacities),
        world.loop.steps,
        trace_hash(world) if traced else "",
    )


def trace_hash(world: World) -> str:
    """Equal only for runs in which the same happened, in the same order, in as many steps."""
    digest = hashlib.blake2b(digest_size=16)
    for entry in world.history:
        digest.update(repr(entry).encode())
    digest.update(f"{world.loop.steps} {world.loop.now_s!r}".encode())
    return digest.hexdigest()
