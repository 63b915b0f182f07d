"""The simulator's findings as a page, so that figures in documents are the command's own."""

from typing import Any

from tests.sim.ablations import PROTOCOLS

_WHAT = {name: one.what for name, one in PROTOCOLS.items()}


def page(found: dict[str, Any], command: str) -> str:
    """What `build/simulate.json` says, for people."""
    parts = [
        "# What the simulator found",
        _where(found, command),
        "## Protocols",
        _protocols(found),
        _per_run(found),
        _heard_again(found),
        _exhaustive(found),
        "## Mutants",
        "Each leaves out one rule of ours and has to be caught on the same seeds.",
        _mutants(found) if found["mutants"] else "None were run.",
        "## Windows",
        "How often the dangerous situations were really entered, over all runs of the generation "
        "protocol. One that was never entered fails the command.",
        _windows(found),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _where(found: dict[str, Any], command: str) -> str:
    machine = found["machine"]
    minutes, seconds = divmod(round(found["seconds"]), 60)
    name, _, changed = found["commit"].partition("-")
    commit = f"`{name[:12]}`" + (" with changes" if changed else "")
    return (
        f"Written by `{command}` at commit {commit} on {machine['cores']} cores, "
        f"{machine['memory_gib']} GiB, Python {machine['python']}, {machine['system']}, in "
        f"{minutes} min {seconds} s. First seed {found['seed']}; a seed and a commit replay a run "
        "bit for bit."
    )


def _row(*cells: object) -> str:
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def _table(heads: tuple[str, ...], rows: list[tuple[object, ...]]) -> str:
    return "\n".join([_row(*heads), "|" + "---|" * len(heads), *(_row(*row) for row in rows)])


def _protocols(found: dict[str, Any]) -> str:
    rows: list[tuple[object, ...]] = []
    for name, one in found["protocols"].items():
        told = ", ".join(f"{kind} {times:,}" for kind, times in one["violations"].items())
        first = "-" if one["first_bad_seed"] is None else one["first_bad_seed"]
        rows.append(
            (
                name,
                f"{one['runs']:,}",
                told or "**none**",
                f"{one['bad_runs']:,}",
                first,
                one["false_refusals"],
                f"{one['releases']:,}",
            )
        )
    heads = ("protocol", "runs", "violations", "bad runs", "first bad seed", "false refusals")
    return _table((*heads, "releases"), rows)


def _per_run(found: dict[str, Any]) -> str:
    per_run, replayed = found["per_run"], found["replayed"]
    means = ", ".join(f"{per_run[k]} {k}" for k in ("workers", "moves", "records", "releases"))
    return (
        f"A run of ours has on average {means}, and costs {per_run['cpu_ms']} ms of CPU. "
        f"{replayed['seeds']:,} seeds were run twice: {replayed['mismatches']} differed."
    )


def _heard_again(found: dict[str, Any]) -> str:
    one = found["heard_again"]
    if not one["crashed_mid_sentence"]:
        return ""
    return (
        f"{one['crashed_mid_sentence']:,} owners crashed while they spoke. At most "
        f"{one['ms_max']} ms of sound were heard again, with checkpoints every "
        f"{one['checkpoint_ms']} ms (times in which the owner stood still, or waited for the "
        f"store, left out). {one['handed_over_mid_segment']:,} planned moves came in the middle of "
        "a segment: none of it was heard twice."
    )


def _exhaustive(found: dict[str, Any]) -> str:
    one = found["exhaustive"]
    if one is None:
        return ""
    weak = ", ".join(f"{k} {found_['violations']:,}" for k, found_ in one["weak"].items())
    return (
        f"Exhaustive exploration (2 dispatchers, 2 workers, 1 live, 3 records, 2 moves, up to "
        f"{one['preemptions']} preemptions): {one['schedules']:,} schedules, {one['violations']} "
        f"violations; of the weak protocols, with up to 2: {weak}."
    )


def _mutants(found: dict[str, Any]) -> str:
    rows: list[tuple[object, ...]] = [
        (
            name,
            _WHAT.get(name, ""),
            one["invariant"] if one["caught"] else "**not caught**",
            "-" if one["seed"] is None else one["seed"],
            f"{one['runs']:,}",
        )
        for name, one in found["mutants"].items()
    ]
    return _table(("mutant", "what it does", "caught by", "seed", "runs"), rows)


def _windows(found: dict[str, Any]) -> str:
    rows: list[tuple[object, ...]] = [
        (name.replace("_", " "), f"{times:,}") for name, times in found["windows"].items()
    ]
    return _table(("window", "times entered"), rows)
