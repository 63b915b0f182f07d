"""What happened to one live around a violation, for people; and the smallest plan that shows it."""

import re
from collections.abc import Callable
from dataclasses import fields, replace

from tests.sim import history as h
from tests.sim.plan import Plan
from tests.sim.verdict import Invariant, Violation

LINES_MAX = 24
SHRINK_RUNS_MAX = 60

_ID = re.compile(r"\b(?=[0-9a-zA-Z]*\d)([0-9a-zA-Z]{26})\b")

_NOT_SHOWN = frozenset({"at_ms", "live_id", "process", "version", "binding", "commit_id"})


def explain(history: h.History, violation: Violation, lines_max: int = LINES_MAX) -> list[str]:
    """The entries of this live, and of the processes that touched it, up to the violation."""
    live_id = violation.live_id
    upto = history[: violation.at + 1]
    mine = [one for one in upto if getattr(one, "live_id", None) == live_id and not _is_dull(one)]
    touched = {getattr(one, "process", "") for one in mine}
    # Not shown: entries of other lives, and of processes that never touched this one. The log's
    # beginning is everybody's.
    kept = [
        one
        for one in upto
        if (getattr(one, "live_id", None) == live_id and not _is_dull(one))
        or (isinstance(one, h.Fault | h.Gone) and (one.process in touched or not one.process))
        or isinstance(one, h.Truncated)
    ]
    left_out = len(kept) - lines_max
    lines = [f"... {left_out} earlier entries of {live_id!r} ..."] if left_out > 0 else []
    lines += [_line(one) for one in kept[-lines_max:]]
    return [*lines, f"=> {violation.invariant.value}: {_short(violation.detail)}"]


def _is_dull(entry: h.Entry) -> bool:
    return isinstance(entry, h.Produced | h.SlotWritten)


def _line(entry: h.Entry) -> str:
    process = getattr(entry, "process", "")
    told = []
    for one in fields(entry):
        value = getattr(entry, one.name)
        if one.name not in _NOT_SHOWN and value not in ("", None):
            told.append(f"{one.name}={_short(value)}")
    return f"{entry.at_ms:>6} ms  {process:<6} {type(entry).__name__:<18} {' '.join(told)}"


def _short(value: object) -> str:
    """Ids by their last letters."""
    text = value if isinstance(value, str) else repr(value)
    return _ID.sub(lambda found: f"..{found[1][-4:]}", text)


def shrink(plan: Plan, fails: Callable[[Plan], Invariant | None], wanted: Invariant) -> Plan:
    """Leave out one action after the other, as long as the same invariant is still broken."""
    runs = 0
    at = 0
    while at < len(plan.actions) and runs < SHRINK_RUNS_MAX:
        smaller = replace(plan, actions=plan.actions[:at] + plan.actions[at + 1 :])
        runs += 1
        if fails(smaller) is wanted:
            plan = smaller
        else:
            at += 1
    return plan
