"""`python -m tests.sim`: many seeded runs of the protocol, of weaker ones, and of mutants.

A seed and a commit replay a run bit for bit: `--runs 1 --seed N --protocol NAME` shows what
happened in it.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress, TimeElapsedColumn

from tests.sim.ablations import GENERATION, MUTANTS, PROTOCOLS, WEAK
from tests.sim.campaign import Batch, Total, run_all, split
from tests.sim.explorations import Exploration, as_one, explorations
from tests.sim.markdown import page
from tests.sim.report import as_json, failures, show

WEAK_PART = 10
MUTANT_RUNS_MAX = 2_000
WINDOWS_FROM_RUNS = 1_000
"""Fewer runs may miss a window by chance."""


def main() -> int:
    """Exit status 0 only when ours broke nothing and everything weaker was caught."""
    asked = _arguments()
    console = Console(stderr=False)
    began = time.monotonic()
    batches = _batches(asked.protocol, asked.runs, asked.seed)
    explored = [] if asked.protocol != "all" or asked.no_exhaustive else explorations()
    totals: dict[str, Total] = {}
    schedules: dict[Exploration, dict[str, Any]] = {}
    with Progress(*Progress.get_default_columns(), TimeElapsedColumn(), console=console) as bar:
        line = bar.add_task("runs", total=sum(one.count for one in batches))

        def done(job: Batch | Exploration, found: dict[str, Any]) -> None:
            if isinstance(job, Exploration):
                schedules[job] = found
                return
            totals.setdefault(job.protocol, Total()).add(found)
            bar.advance(line, job.count)

        run_all([*explored, *batches], asked.jobs, done)
    known = {one.name for one in MUTANTS}
    found = as_json(
        seed=asked.seed,
        seconds=time.monotonic() - began,
        protocols={k: totals[k] for k in PROTOCOLS if k in totals and k not in known},
        mutants={k: totals[k] for k in PROTOCOLS if k in totals and k in known},
        exhaustive=as_one(schedules) if schedules else None,
    )
    out = Path(asked.out)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(found, indent=1) + "\n")
    if asked.markdown:
        command = f"make simulate RUNS={asked.runs} SEED={asked.seed} PROTOCOL={asked.protocol}"
        Path(asked.markdown).write_text(page(found, command))
    show(console, found, traces=not asked.brief)
    needed = asked.protocol in ("all", GENERATION.name) and asked.runs >= WINDOWS_FROM_RUNS
    said = failures(found, windows_needed=needed)
    for one in said:
        console.print(f"[red]FAILED[/red] {one}")
    return 1 if said else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--runs", type=int, default=100_000, help="of the generation protocol")
    parser.add_argument("--seed", type=int, default=1, help="the first one")
    parser.add_argument("--protocol", default="all", choices=["all", *PROTOCOLS])
    parser.add_argument("--out", default="build/simulate.json")
    parser.add_argument("--markdown", help="write the findings as a page, too")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--brief", action="store_true", help="no traces")
    parser.add_argument("--no-exhaustive", action="store_true")
    asked = parser.parse_args()
    if asked.runs < 1 or asked.jobs < 1:
        parser.error("--runs and --jobs must be at least 1")
    return asked


def _batches(protocol: str, runs: int, seed: int) -> list[Batch]:
    """Mutants run until they are caught; the long batches come first."""
    if protocol != "all":
        return split(protocol, seed, runs)
    batches = split(GENERATION.name, seed, runs)
    for weak in WEAK:
        batches += split(weak.name, seed, max(1, runs // WEAK_PART))
    limit = min(MUTANT_RUNS_MAX, max(runs, 400))
    return batches + [Batch(one.name, seed, limit, stop_at_first=True) for one in MUTANTS]


if __name__ == "__main__":
    sys.exit(main())
