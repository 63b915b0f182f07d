"""What a run shows, for people and for machines: the contract of `build/chaos.json`."""

import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.chaos.cluster import LEASE_MS
from tests.chaos.measure import longest_gap_ms, percentile, recoveries
from tests.chaos.run import CHECKPOINT_MS, Run
from tests.sim.report import commit, machine
from tests.sim.verdict import Invariant
from tests.support.core import core_kind

WINDOWS = (
    "planned_moves",
    "there_and_back",
    "recovery",
    "recovery_by_two",
    "dispatch_killed_in_recovery",
    "superseded_owner_alive",
    "superseded_owner_bound",
    "release_asked_while_superseded",
    "stale_release_refused",
    "paused_between_commit_and_feed",
    "fed_after_superseded",
    "heard_after_superseded",
    "slot_leaving",
    "segment_made_again",
    "stage_lost",
    "unknown_applied",
    "unknown_dropped",
    "rebalance",
    "drain",
    "interrupt_skipped",
    "closed_and_made_anew",
    "dead_letter",
    "duplicate_seq",
)
"""The dangerous moments that a run of some length enters; how often is counted."""


def as_json(run: Run, broker: str) -> dict[str, Any]:
    """Everything that was counted and measured."""
    found = list(recoveries(run.history))
    alone = [one.seconds for one in found if one.alone]
    every = [one.seconds for one in found]
    gap = longest_gap_ms(run.history)
    options = run.options
    violations = {one.value: run.verdict.by_invariant[one.value] for one in Invariant}
    return {
        "schema": 1,
        "commit": commit(),
        "seed": options.seed,
        "machine": machine(),
        "minutes": round(options.length_s / 60, 2),
        "seconds_in_all": round(run.seconds, 1),
        "lives": options.lives,
        "workers": len(options.capacities),
        "dispatchers": options.dispatchers,
        "moves": run.verdict.moves,
        "releases": run.verdict.releases,
        "records": run.records,
        "entries": len(run.history),
        "faults": dict(sorted(run.faults.items())),
        "windows": {name: run.windows[name] for name in WINDOWS},
        "violations": violations,
        "false_refusals": run.verdict.false_refusals,
        "complaints": run.surprises,
        "not_spoken": run.left,
        "lease_s": LEASE_MS / 1000,
        "recovery_s": _times(alone),
        "recovery_among_other_faults_s": _times(every),
        "heard_again": {
            "ms_max": run.verdict.heard.again_ms_max,
            "checkpoint_ms": CHECKPOINT_MS,
            "crashed_mid_sentence": run.verdict.heard.crashed_mid_sentence,
            "handed_over_mid_segment": run.verdict.heard.handed_over_mid_segment,
        },
        "longest_release_gap_in_join_s": None if gap is None else gap / 1000,
        "store": "fdb" if options.store.startswith("fdb") else "lmdb",
        "broker": broker,
        "core": core_kind(),
    }


def keep(report: dict[str, Any], out: Path, markdown: Path | None) -> None:
    """Write the report where it is wanted."""
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(report, indent=1) + "\n")
    if markdown is not None:
        markdown.write_text(as_markdown(report))


def _times(values: list[float]) -> dict[str, Any]:
    return {
        "p50": percentile(values, 0.50),
        "p99": percentile(values, 0.99),
        "count": len(values),
    }


def failures(run: Run) -> list[str]:
    """Why the run is no success; empty when all is well."""
    said = [
        f"{one.invariant}: {one.live_id} {one.detail} (entry {one.at})"
        for one in run.verdict.violations[:20]
    ]
    more = len(run.verdict.violations) - len(said)
    if more > 0:
        said.append(f"and {more} more violations")
    said += run.surprises
    if run.left:
        said.append(f"not spoken in the end: {', '.join(run.left)}")
    if said:
        minutes = run.options.length_s / 60
        said.append(
            f"seed {run.options.seed}: the same schedule of faults runs again by "
            f"`make chaos MINUTES={minutes:g} SEED={run.options.seed}`; "
            f"history and logs are kept in {run.kept}"
        )
    return said


def _shown(seconds: float | None) -> str:
    return "nothing to measure" if seconds is None else f"{seconds} s"


def as_markdown(found: dict[str, Any]) -> str:
    """A page for docs/: what was done, what came of it, how long it took."""
    machine_, recovery = found["machine"], found["recovery_s"]
    again = found["heard_again"]
    mixed = found["recovery_among_other_faults_s"]
    p50, p99 = _shown(recovery["p50"]), _shown(recovery["p99"])
    mixed_p50, mixed_p99 = _shown(mixed["p50"]), _shown(mixed["p99"])
    lines = [
        "# Under faults",
        "",
        "Written by `make chaos MARKDOWN=docs/chaos.md` (and by `make test`, as build/chaos.md); "
        "not edited by hand. "
        f"Commit {found['commit'][:12]}, {machine_['cores']} cores, {machine_['memory_gib']} GiB, "
        f"Python {machine_['python']}, {found['broker']}, store {found['store']}, "
        f"core: {found['core']}, seed {found['seed']}, {found['minutes']:g} minutes of faults.",
        "",
        "| what | value |",
        "|---|---|",
        f"| lives under continuous text | {found['lives']} |",
        f"| workers, dispatchers | {found['workers']}, {found['dispatchers']} |",
        f"| moves | {found['moves']:,} |",
        f"| records, releases | {found['records']:,}, {found['releases']:,} |",
        f"| entries judged | {found['entries']:,} |",
        f"| violations of any invariant | {sum(found['violations'].values())} |",
        f"| rightful owners refused | {found['false_refusals']} |",
        f"| lives with text left unspoken | {len(found['not_spoken'])} |",
        f"| death to speech again, P50 (lease {found['lease_s']:g} s) | {p50} |",
        f"| death to speech again, P99, over {recovery['count']} lives | {p99} |",
        f"| the same beside other faults, P50, P99 | {mixed_p50}, {mixed_p99} |",
        "| lives handed over in the middle of a segment, every sample of them once "
        f"| {again['handed_over_mid_segment']} |",
        "| oldest sound heard again after a crash, over "
        f"{again['crashed_mid_sentence']} lives (checkpoints every {again['checkpoint_ms']} ms) "
        f"| {again['ms_max']} ms |",
        "| longest gap in the releases of a live that kept its owner while a worker joined "
        f"| {_shown(found['longest_release_gap_in_join_s'])} |",
    ]
    for title, part in (("Faults", found["faults"]), ("Windows entered", found["windows"])):
        lines += ["", f"## {title}", "", "| name | times |", "|---|---|"]
        lines += [f"| {name} | {count} |" for name, count in part.items()]
    return "\n".join(lines) + "\n"


def show(console: Console, found: dict[str, Any]) -> None:
    """The numbers that people ask for first."""
    console.print(
        f"{found['minutes']:g} minutes of faults on {found['broker']} and {found['store']}: "
        f"{found['lives']} lives, {found['moves']} moves, {found['records']} records, "
        f"{found['releases']} releases, {sum(found['violations'].values())} violations"
    )
    recovery, gap = found["recovery_s"], found["longest_release_gap_in_join_s"]
    console.print(
        f"death to speech again: P50 {recovery['p50']} s, P99 {recovery['p99']} s over "
        f"{recovery['count']} lives (lease {found['lease_s']:g} s); longest gap in the releases of "
        f"a live that kept its owner while a worker joined: {gap} s"
    )
    for title, part in (("faults", found["faults"]), ("windows entered", found["windows"])):
        table = Table(title=title, show_header=False)
        for name, count in part.items():
            table.add_row(name, str(count))
        console.print(table)
