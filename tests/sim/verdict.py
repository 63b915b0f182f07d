"""What a checker says.

PURE.
"""

from dataclasses import dataclass
from enum import StrEnum


class Invariant(StrEnum):
    """The seven of the design, what is heard twice, and production's own assertions."""

    ONE_OWNER = "one_owner"
    EPOCHS = "epochs"
    EXACTLY_ONCE = "exactly_once"
    OVERSHOOT = "no_overshoot"
    BELOW = "refused_below"
    PROGRESS = "progress"
    FALSE_REFUSAL = "false_refusal"
    HEARD_AGAIN = "heard_again"
    BROKE = "own_assertion"


@dataclass(frozen=True, slots=True)
class Violation:
    """`at` is the entry of the history that shows it."""

    invariant: Invariant
    at: int
    live_id: str
    detail: str
