"""The exhaustive exploration as parts of a campaign: what is explored where, and all of it as one.

Ours goes as deep as asked, in parts that interpreters share; each weak protocol goes less deep.
"""

from dataclasses import dataclass
from typing import Any

from tests.sim.ablations import GENERATION, WEAK
from tests.sim.campaign import run_all

PREEMPTIONS_MAX = 3
WEAK_PREEMPTIONS_MAX = 2
_PARTS = 8
"""So many that none of them is left alone for long at the end."""


@dataclass(frozen=True, slots=True)
class Exploration:
    """Every `parts`-th subtree of a protocol's schedules."""

    protocol: str
    preemptions: int
    part: int = 0
    parts: int = 1

    @property
    def words(self) -> list[str]:
        numbers = (self.preemptions, self.part, self.parts)
        return ["tests.sim.exhaustive", self.protocol, *map(str, numbers)]


def explorations(preemptions_max: int = PREEMPTIONS_MAX) -> list[Exploration]:
    """All of them."""
    ours = [Exploration(GENERATION.name, preemptions_max, part, _PARTS) for part in range(_PARTS)]
    less = min(WEAK_PREEMPTIONS_MAX, preemptions_max)
    return ours + [Exploration(one.name, less) for one in WEAK]


def as_one(found: dict[Exploration, dict[str, Any]]) -> dict[str, Any]:
    """What all of them found: ours summed over its parts, and each weak protocol's."""
    parts = {one: numbers for one, numbers in found.items() if one.protocol == GENERATION.name}
    ours = [parts[one] for one in sorted(parts, key=lambda one: one.part)]
    return {
        "schedules": sum(one["schedules"] for one in ours),
        "violations": sum(one["violations"] for one in ours),
        "preemptions": max(one.preemptions for one in parts),
        "steps_max": max(one["steps_max"] for one in ours),
        "first_violation": next((one["first_violation"] for one in ours if one["bad"]), ""),
        "weak": {
            weak.name: {
                key: numbers[key] for key in ("schedules", "violations", "bad", "first_violation")
            }
            for weak in WEAK
            for one, numbers in found.items()
            if one.protocol == weak.name
        },
    }


def explore_all(*, jobs: int, preemptions_max: int = PREEMPTIONS_MAX) -> dict[str, Any]:
    """Everything, by itself."""
    found: dict[Exploration, dict[str, Any]] = {}
    run_all(explorations(preemptions_max), jobs, found.__setitem__)
    return as_one(found)
