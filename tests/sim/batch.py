"""A range of seeds under one protocol, in one process: what comes of it as plain numbers.

`python -m tests.sim.batch PROTOCOL FIRST COUNT STOP_AT_FIRST` prints JSON. It is run in fresh
interpreters with a fixed hash seed, so that the order of sets is the same everywhere.
"""

import gc
import json
import sys
import time
from collections import Counter
from typing import Any

from tests.sim import shortcuts
from tests.sim.ablations import PROTOCOLS, in_force
from tests.sim.run import Run, first_broken, run_plan, run_seed
from tests.sim.trace import explain, shrink

REPLAYED_ONE_IN = 100
_COLLECT_EVERY = 4
"""Few, so that a world's memory is used again while the processor still has it at hand."""


def run_batch(protocol: str, first: int, count: int, *, stop_at_first: bool) -> dict[str, Any]:
    """Every hundredth seed that passes is run twice, and the two traces are compared."""
    violations: Counter[str] = Counter()
    entered: Counter[str] = Counter()
    totals: Counter[str] = Counter()
    bad: list[int] = []
    mismatches: list[int] = []
    example: dict[str, Any] | None = None
    again_ms_max = 0
    began = time.process_time()
    gc.disable()
    with in_force(PROTOCOLS[protocol]):
        for seed in range(first, first + count):
            traced = seed % REPLAYED_ONE_IN == 0
            run = run_seed(seed, traced=traced)
            _add(totals, run)
            again_ms_max = max(again_ms_max, run.verdict.heard.again_ms_max)
            entered.update(run.windows)
            if run.verdict.violations:
                violations.update(run.verdict.by_invariant)
                bad.append(seed)
                if example is None:
                    example = _example(run)
                if stop_at_first:
                    break
            elif traced:
                totals["replayed"] += 1
                if run_seed(seed, traced=True).trace != run.trace:
                    mismatches.append(seed)
            if seed % _COLLECT_EVERY == 0:
                # The youngest only: what is older is remembered for good (keys, values, texts).
                gc.collect(0)
    return {
        "protocol": protocol,
        "violations": dict(violations),
        "bad_seeds": bad[:20],
        "bad_runs": len(bad),
        "example": example,
        "windows": dict(entered),
        "mismatches": mismatches,
        "again_ms_max": again_ms_max,
        "cpu_s": time.process_time() - began,
        **totals,
    }


def _add(totals: Counter[str], run: Run) -> None:
    verdict = run.verdict
    totals["runs"] += 1
    totals["releases"] += verdict.releases
    totals["moves"] += verdict.moves
    totals["false_refusals"] += verdict.false_refusals
    totals["records"] += run.records
    totals["workers"] += len(run.plan.capacities)
    totals["steps"] += run.steps


def _example(run: Run) -> dict[str, Any]:
    """The smallest plan that still breaks the same invariant, and what happened in it."""
    wanted = run.verdict.violations[0].invariant
    smallest = run_plan(shrink(run.plan, first_broken, wanted))
    if not smallest.verdict.violations:  # pragma: no cover - it shrank only while it broke
        smallest = run
    violation = smallest.verdict.violations[0]
    return {
        "seed": run.seed,
        "invariant": violation.invariant.value,
        "live": violation.live_id,
        "detail": violation.detail,
        "actions": [[at, what] for at, what, _ in smallest.plan.actions],
        "trace": explain(smallest.history, violation),
    }


if __name__ == "__main__":
    shortcuts.silence()
    name, first, count, stop = sys.argv[1:5]
    json.dump(run_batch(name, int(first), int(count), stop_at_first=stop == "1"), sys.stdout)
