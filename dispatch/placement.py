"""Where a live goes: ranks the workers that could take it. A proposal, never an admission.

The views it ranks are up to a refresh old, so a proposed worker may be full by now: the slot keys
of the store decide. What this module owes is balance (two random choices among the best, so that
replicas that see the same views do not all run to the same worker), custody as a bonus (a live
whose partition its owner already reads costs no second reader), and that nothing draining, dead or
known to be full is proposed.

PURE.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from schemas.ids import ulid
from schemas.partition import partition_of

BEST_MIN = 4
"""So many of the best take part in a draw, however small the fleet."""

CUSTODY_BONUS = 0.15
"""A custodian is preferred over a worker up to this part of its capacity emptier."""

MINT_TRIES_PER_PARTITION = 8
ULID_ENTROPY_BYTES = 10

Draw = Callable[[int], int]
"""`draw(n)` gives a number from 0 to n-1, each as likely."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One worker as last seen. `free_slots` is what the store's slot keys showed.

    What a ranking compares is worked out once: it looks at every worker of the fleet.
    """

    worker_id: str
    is_ready: bool
    capacity: int
    free_slots: int
    partitions: frozenset[int] = frozenset()
    can_take: bool = field(init=False)
    used: float = field(init=False)
    """The part of its capacity that is not free, 1.0 where there is none."""

    def __post_init__(self) -> None:
        can_take = self.is_ready and self.free_slots > 0 and self.capacity > 0
        used = 1.0 - self.free_slots / self.capacity if self.capacity > 0 else 1.0
        object.__setattr__(self, "can_take", can_take)
        object.__setattr__(self, "used", used)


_USED = attrgetter("used")


def rank(
    candidates: Sequence[Candidate],
    *,
    partition: int | None,
    draw: Draw,
    tries_max: int,
    avoid: frozenset[str] = frozenset(),
) -> list[Candidate]:
    """At most `tries_max` workers in the order in which admission is to be tried.

    `partition` is the live's, or None where its id is not minted yet and can be made to fit any
    worker. `avoid` names workers not to be proposed, such as the source of a move. Equals keep the
    order in which they come.
    """
    able = [one for one in candidates if one.can_take and one.worker_id not in avoid]
    able.sort(key=_USED if partition is None else lambda one: _cost(one, partition))
    ranked: list[Candidate] = []
    while able and len(ranked) < tries_max:
        ranked.append(able.pop(_draw_two(len(able), draw)))
    return ranked


def _draw_two(count: int, draw: Draw) -> int:
    """The better of two different ones drawn from the best half, as an index into the order."""
    best = min(count, max(BEST_MIN, (count + 1) // 2))
    if best < 2:
        return 0
    first = draw(best)
    second = draw(best - 1)
    if second >= first:
        second += 1
    return min(first, second)


def _cost(one: Candidate, partition: int) -> float:
    return one.used - (CUSTODY_BONUS if partition in one.partitions else 0.0)


def mint_live_id(
    *,
    wall_ms: int,
    entropy: Callable[[int], bytes],
    partitions: frozenset[int],
    partition_count: int,
) -> str:
    """A new live id, by preference one whose partition is among `partitions`.

    The tries are bounded: where the worker holds no custody, or luck is out, any id does, since
    custody only saves a reader.
    """
    tries = MINT_TRIES_PER_PARTITION * partition_count if partitions else 1
    live_id = ""
    for _ in range(tries):
        live_id = ulid(wall_ms, entropy(ULID_ENTROPY_BYTES)).lower()
        if partition_of(live_id.encode(), partition_count) in partitions:
            break
    return live_id
