"""The schedule of a run: which fault begins when, where, for how long. One seed, one schedule.

PURE.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

EVERY_S = (3.0, 7.0)


@dataclass(frozen=True, slots=True)
class Planned:
    """It begins `after_s` after the one before. `where` picks a slot among those of its kind;
    `for_s` is how long it lasts; `draw` decides whatever else there is to decide. A fault that is
    `alone` waits until no other is at work, and keeps others away."""

    after_s: float
    kind: str
    where: int
    for_s: float
    draw: int
    alone: bool = False


@dataclass(frozen=True, slots=True)
class Kind:
    """`weight` is how often, `for_s` how long at least and at most."""

    name: str
    weight: int
    for_s: tuple[float, float]


KINDS = (
    Kind("kill", 10, (0.0, 6.0)),
    Kind("pause_long", 8, (4.5, 8.0)),
    Kind("pause_short", 3, (0.3, 2.5)),
    Kind("pause_after_release", 10, (4.5, 8.0)),
    Kind("twin", 4, (0.5, 6.0)),
    Kind("kafka_black", 5, (2.0, 12.0)),
    Kind("kafka_closed", 4, (1.0, 8.0)),
    Kind("kafka_reset", 2, (0.1, 0.2)),
    Kind("store_away", 5, (1.0, 8.0)),
    Kind("store_unsure", 6, (4.0, 10.0)),
    Kind("cut_off", 4, (2.0, 8.0)),
    Kind("broker", 2, (0.5, 4.0)),
    Kind("dispatch_kill", 4, (0.0, 3.0)),
    Kind("dispatch_pause", 2, (2.0, 6.0)),
    Kind("dispatch_away", 3, (1.0, 6.0)),
    Kind("dispatch_kill_in_recovery", 4, (0.0, 2.0)),
    Kind("storm", 3, (1.0, 3.0)),
    Kind("drain", 4, (3.0, 6.0)),
    Kind("terminate", 4, (0.0, 2.0)),
    Kind("rolling", 1, (0.5, 1.0)),
    Kind("clock_step", 3, (0.1, 0.2)),
    Kind("lose_stage", 4, (0.1, 0.2)),
)
ALONE = {"kill": 0.6, "storm": 0.2}
"""Measured as well as survived: time to speech again, and gaps while a worker joins. The first is
always so, of the others this part."""


def schedule(seed: int) -> Iterator[Planned]:
    """Without an end: every kind once, in an order of the seed's, then by weight."""
    rng = Random(seed)
    once = list(KINDS)
    rng.shuffle(once)
    while True:
        first = bool(once)
        kind = once.pop() if first else rng.choices(KINDS, [one.weight for one in KINDS])[0]
        alone = kind.name in ALONE and (first or rng.random() < ALONE[kind.name])
        yield Planned(
            round(rng.uniform(*EVERY_S), 2),
            kind.name,
            rng.randrange(1 << 16),
            round(rng.uniform(*kind.for_s), 2),
            rng.randrange(1 << 16),
            alone,
        )
