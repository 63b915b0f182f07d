"""What one seed stands for: the fleet, the load, and a random subset of the faults.

A plan is data; `world` carries it out. Virtual times are short, so that a run costs little: a lease
is three quarters of a second, a sentence is spoken in a tenth.

PURE but for the seeded generator that is handed in.
"""

from dataclasses import dataclass, field
from random import Random

ACTIVE_MS = 600
LIVES = ("a", "b", "c")

Action = tuple[int, str, tuple[object, ...]]
"""(virtual millisecond, what, with what)."""


@dataclass(frozen=True, slots=True)
class StorePlan:
    """Chances per attempt of one run; delays are spread over `delay_ms_max`."""

    conflict: float = 0.0
    unknown_applied: float = 0.0
    unknown_dropped: float = 0.0
    unknown_late: float = 0.0
    delay_ms_max: float = 0.0
    late_ms_max: float = 150.0
    watch_lost: float = 0.0
    watch_late: float = 0.0
    unknown_move: float = 0.0


@dataclass(frozen=True, slots=True)
class SendPlan:
    """Chances that a send to the broker gets no answer: it was applied, was not, or comes later."""

    applied: float = 0.0
    lost: float = 0.0
    late: float = 0.0
    late_ms_max: int = 150


@dataclass(frozen=True, slots=True)
class Plan:
    """`pause_on_release`: the chance that a process stops right when a release of it commits, and
    hears of it only later. `tick_late_ms`: how long a tick is on its way to the egress."""

    seed: int
    partitions: int
    lives: tuple[str, ...]
    capacities: tuple[int, ...]
    store: StorePlan
    sends: SendPlan
    pause_on_release: float
    pause_ms_max: int
    tick_late_ms: int
    fetch_again: float
    broker_delay_ms: float
    in_full: bool
    actions: tuple[Action, ...] = field(default=())


def make_plan(seed: int) -> Plan:
    """The same plan for the same seed, whatever the protocol."""
    rng = Random(seed)
    draw = rng.random
    workers = 3 if draw() < 0.2 else 2
    lives = LIVES[: 1 + (draw() < 0.6) + (draw() < 0.15)]
    tight = draw() < 0.35
    capacities = tuple((1 if tight else len(lives)) if draw() < 0.7 else 2 for _ in range(workers))
    plan = Plan(
        seed=seed,
        partitions=1 if draw() < 0.5 else 2,
        lives=lives,
        capacities=capacities,
        store=_store(rng),
        sends=_sends(rng),
        pause_on_release=0.15 if draw() < 0.4 else 0.0,
        pause_ms_max=150 if draw() < 0.7 else 1_200,
        tick_late_ms=40 if draw() < 0.5 else 0,
        fetch_again=0.1 if draw() < 0.25 else 0.0,
        broker_delay_ms=3.0 if draw() < 0.5 else 0.0,
        in_full=draw() < 0.06,
    )
    return _with_actions(plan, rng)


def _store(rng: Random) -> StorePlan:
    draw = rng.random
    unknown = 0.08 if draw() < 0.4 else 0.0
    return StorePlan(
        conflict=0.05 if draw() < 0.3 else 0.0,
        unknown_applied=unknown if draw() < 0.6 else 0.0,
        unknown_dropped=unknown if draw() < 0.6 else 0.0,
        unknown_late=unknown if draw() < 0.6 else 0.0,
        delay_ms_max=3.0 if draw() < 0.6 else 0.0,
        watch_lost=0.4 if draw() < 0.3 else 0.0,
        watch_late=0.4 if draw() < 0.3 else 0.0,
        unknown_move=0.4 if draw() < 0.25 else 0.0,
    )


def _sends(rng: Random) -> SendPlan:
    draw = rng.random
    if draw() >= 0.2:
        return SendPlan()
    return SendPlan(*(0.25 if draw() < 0.6 else 0.0 for _ in range(3)))


# -- what happens when -------------------------------------------------------------------------


def _with_actions(plan: Plan, rng: Random) -> Plan:
    actions: list[Action] = []
    for live_id in plan.lives:
        actions += _load(live_id, rng, len(plan.lives))
    actions += _moves(plan, rng)
    actions += _faults(plan, rng)
    actions.sort(key=lambda action: action[0])
    fields = {name: getattr(plan, name) for name in plan.__slots__}
    return Plan(**{**fields, "actions": tuple(actions)})


def _at(rng: Random, low: int = 40, high: int = ACTIVE_MS) -> int:
    return rng.randrange(low, high)


def _load(live_id: str, rng: Random, lives: int) -> list[Action]:
    """A live is made and gets bursts of records; some are interrupted, closed, made anew."""
    found: list[Action] = [(rng.randrange(5, 40), "create", (live_id,))]
    bursts = rng.randrange(3, 5) if lives == 1 else rng.randrange(2, 3 + (lives < 3))
    for _ in range(bursts):
        found.append(
            (_at(rng, 15, 520), "burst", (live_id, rng.randrange(2, 6), rng.getrandbits(30)))
        )
    if rng.random() < 0.4:
        found.append((_at(rng, 100), "push", (live_id, rng.getrandbits(30))))
    if rng.random() < 0.4:
        found.append((_at(rng, 100), "interrupt", (live_id,)))
    if rng.random() < 0.3:
        kind = "close" if rng.random() < 0.5 else "close_record"
        at = _at(rng, 200, ACTIVE_MS - 120)
        found.append((at, kind, (live_id,)))
        if rng.random() < 0.8:
            found.append((at + rng.randrange(1, 100), "create", (live_id,)))
    return found


def _moves(plan: Plan, rng: Random) -> list[Action]:
    """Planned moves, and moves that nobody asks the source about."""
    found: list[Action] = []
    for live_id in plan.lives:
        for _ in range(rng.randrange(0, 3) if len(plan.lives) > 1 else rng.randrange(1, 3)):
            kind = "advance" if rng.random() < 0.6 else "move"
            found.append((_at(rng, 80), kind, (live_id, rng.getrandbits(30))))
    if rng.random() < 0.5:
        live_id = rng.choice(plan.lives)
        found.append((_at(rng, 80, 480), "there_and_back", (live_id, rng.getrandbits(30))))
    return found


def _faults(plan: Plan, rng: Random) -> list[Action]:
    found: list[Action] = []
    workers = len(plan.capacities)
    for kind, chance in _FAULTS:
        if rng.random() < chance:
            latest = _EARLY.get(kind, 540)
            found.append(
                (_at(rng, 80, latest), kind, (rng.randrange(workers), rng.getrandbits(30)))
            )
    return found


_FAULTS = (
    ("pause", 0.35),
    ("pause", 0.2),
    ("pause_dispatch", 0.15),
    ("crash", 0.2),
    ("restart", 0.12),
    ("twin", 0.08),
    ("drain", 0.1),
    ("rebalance", 0.12),
    ("rewind", 0.1),
    ("expel", 0.12),
    ("lose_stage", 0.15),
    ("foreign", 0.1),
    ("flood", 0.12),
    ("twin_recovery", 0.1),
    ("crash_speaking", 0.06),
    ("cut_broker", 0.1),
    ("cut_broker_dispatch", 0.05),
    ("broker_away", 0.04),
    ("restart_blind", 0.04),
    ("cut_store", 0.1),
    ("cut_store_dispatch", 0.05),
    ("store_away", 0.04),
    ("truncate", 0.12),
)

_EARLY = {"crash_speaking": 230}
"""What takes its time has to begin early."""
