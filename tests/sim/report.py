"""The simulator's findings, for people and for machines."""

import os
import platform
import subprocess
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.sim.campaign import Total
from tests.sim.timing import CHECKPOINT_MS
from tests.sim.windows import REQUIRED

WORTH_THE_NAME = {"workers": 2, "moves": 2, "records": 20}


def machine() -> dict[str, Any]:
    """Where the numbers come from."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory / 2**30, 1),
        "device": "cpu",
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
    }


def commit() -> str:
    """Of the checkout, with a mark when it was changed since."""
    root = Path(__file__).parents[2]
    try:
        name = _git(root, "rev-parse", "HEAD")
        changed = _git(root, "status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{name}-changed" if changed else name


def _git(root: Path, *words: str) -> str:
    return subprocess.run(
        ["git", *words], cwd=root, check=True, capture_output=True, text=True
    ).stdout.strip()


def as_json(
    *,
    seed: int,
    seconds: float,
    protocols: dict[str, Total],
    mutants: dict[str, Total],
    exhaustive: dict[str, Any] | None,
) -> dict[str, Any]:
    """The contract of `build/simulate.json`."""
    everything = [*protocols.values(), *mutants.values()]
    ours = protocols.get("generation", Total())
    return {
        "schema": 1,
        "commit": commit(),
        "seed": seed,
        "machine": machine(),
        "runs": ours.runs or sum(one.runs for one in everything),
        "seconds": round(seconds, 1),
        "per_run": {
            name: round(ours.mean(name), 2) for name in ("workers", "moves", "records", "releases")
        }
        | {"cpu_ms": round(1000 * ours.cpu_s / ours.runs, 2) if ours.runs else None},
        "protocols": {
            name: {
                "runs": total.runs,
                "violations": dict(sorted(total.violations.items())),
                "bad_runs": total.bad_runs,
                "first_bad_seed": total.first_bad_seed,
                "bad_seeds": total.bad_seeds,
                "false_refusals": total.counts["false_refusals"],
                "releases": total.counts["releases"],
                "trace": total.example["trace"] if total.example else None,
            }
            for name, total in protocols.items()
        },
        "mutants": {
            name: {
                "caught": total.bad_runs > 0,
                "seed": total.first_bad_seed,
                "invariant": total.example["invariant"] if total.example else None,
                "runs": total.runs,
                "trace": total.example["trace"] if total.example else None,
            }
            for name, total in mutants.items()
        },
        "windows": {name: ours.windows.get(name, 0) for name in REQUIRED},
        "heard_again": {
            "ms_max": ours.again_ms_max,
            "checkpoint_ms": CHECKPOINT_MS,
            "crashed_mid_sentence": ours.windows["crashed_mid_sentence"],
            "handed_over_mid_segment": ours.windows["handed_over_mid_segment"],
        },
        "exhaustive": exhaustive,
        "replayed": {
            "seeds": sum(one.counts["replayed"] for one in everything),
            "mismatches": sum(len(one.mismatches) for one in everything),
        },
    }


def failures(found: dict[str, Any], *, windows_needed: bool) -> list[str]:
    """Why the command does not end with success; empty when all is well."""
    said: list[str] = []
    for name, one in found["protocols"].items():
        if name == "generation" and one["violations"]:
            seed = one["first_bad_seed"]
            said.append(
                f"the generation protocol broke {one['violations']}; replay it with "
                f"`make simulate PROTOCOL=generation RUNS=1 SEED={seed}`"
            )
        if name != "generation" and not one["violations"]:
            said.append(f"{name} was not caught in {one['runs']} runs")
    said += [
        f"the mutant {name} was not caught in {one['runs']} runs"
        for name, one in found["mutants"].items()
        if not one["caught"]
    ]
    if windows_needed:
        said += [
            f"the window {name} was never entered"
            for name, times in found["windows"].items()
            if not times
        ]
    if found["replayed"]["mismatches"]:
        said.append(f"{found['replayed']['mismatches']} seeds did not replay bit for bit")
    if windows_needed:
        said += [
            f"a run has {found['per_run'][name]} {name} on average, {least} would be worth the name"
            for name, least in WORTH_THE_NAME.items()
            if found["per_run"][name] < least
        ]
    exhaustive = found["exhaustive"]
    if exhaustive is not None:
        if exhaustive["violations"]:
            said.append(f"the exhaustive exploration found {exhaustive['violations']} violations")
        said += [
            f"the exhaustive exploration let {name} pass"
            for name, one in exhaustive["weak"].items()
            if not one["violations"]
        ]
    return said


def show(console: Console, found: dict[str, Any], *, traces: bool) -> None:
    """Tables."""
    console.print(_protocols(found))
    if found["mutants"]:
        console.print(_mutants(found))
    console.print(_windows(found))
    if traces:
        for kind in ("protocols", "mutants"):
            for name, one in found[kind].items():
                if one["trace"]:
                    console.print(f"\n[bold]{name}[/bold]")
                    console.print("\n".join(one["trace"]), markup=False, highlight=False)
    per_run, replayed, exhaustive = found["per_run"], found["replayed"], found["exhaustive"]
    told = ", ".join(f"{value} {name}" for name, value in per_run.items() if value is not None)
    console.print(f"\nper run of generation: {told}")
    again = found["heard_again"]
    console.print(
        f"heard again after {again['crashed_mid_sentence']} crashes in mid sentence: at most "
        f"{again['ms_max']} ms, checkpoints every {again['checkpoint_ms']} ms"
    )
    console.print(f"run twice: {replayed['seeds']}, mismatches: {replayed['mismatches']}")
    if exhaustive is not None:
        weak = ", ".join(f"{k}: {one['violations']}" for k, one in exhaustive["weak"].items())
        console.print(
            f"exhaustive: {exhaustive['schedules']} schedules, {exhaustive['violations']} "
            f"violations ({weak})"
        )
    console.print(f"{found['runs']} runs, {found['seconds']} s")


def _protocols(found: dict[str, Any]) -> Table:
    table = Table("protocol", "runs", "violations", "bad runs", "first bad seed", "false refusals")
    table.add_column("releases", justify="right")
    for name, one in found["protocols"].items():
        told = ", ".join(f"{kind} {times}" for kind, times in one["violations"].items()) or "none"
        seed = "-" if one["first_bad_seed"] is None else str(one["first_bad_seed"])
        table.add_row(
            name,
            str(one["runs"]),
            told,
            str(one["bad_runs"]),
            seed,
            str(one["false_refusals"]),
            str(one["releases"]),
        )
    return table


def _mutants(found: dict[str, Any]) -> Table:
    table = Table("mutant", "caught", "seed", "by", "runs")
    for name, one in found["mutants"].items():
        caught = "yes" if one["caught"] else "[red]no[/red]"
        table.add_row(
            name, caught, str(one["seed"]), str(one["invariant"] or "-"), str(one["runs"])
        )
    return table


def _windows(found: dict[str, Any]) -> Table:
    table = Table("window", "entered", "window", "entered", title="windows, generation protocol")
    rows = list(found["windows"].items())
    half = (len(rows) + 1) // 2
    for at in range(half):
        left, right = rows[at], rows[at + half] if at + half < len(rows) else ("", "")
        table.add_row(left[0], str(left[1]), right[0], str(right[1]))
    return table
