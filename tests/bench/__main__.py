"""Runs the measurements and writes them as one JSON document; every figure beside its rival.

    python -m tests.bench --out build/bench.json [--only NAME ...]

A module `bench_*.py` here offers `rows() -> list[dict]`. A row: name, value, unit, against,
against_value, ratio, and what else explains the figure. A module that fails does not stop the
others; what was measured is written, and the exit status is 1.
"""

import argparse
import importlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.support.core import core_kind

HERE = Path(__file__).parent
LIMIT_S = 420  # of one module
WIDTH = 150  # where the table goes to a file


def machine() -> dict[str, object]:
    """What this was measured on."""
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    cpu = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    return {
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory_bytes / 2**30, 1),
        "cpu": cpu,
        "device": "cpu",
        "python": platform.python_version(),
        "core": core_kind(),
    }


def commit() -> str:
    """The commit that is checked out, with a mark when files differ from it."""
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=12"],
        capture_output=True,
        text=True,
        check=False,
        cwd=HERE,
    )
    return done.stdout.strip() or "unknown"


def names() -> list[str]:
    """What can be measured."""
    return sorted(path.stem.removeprefix("bench_") for path in HERE.glob("bench_*.py"))


def measure(name: str) -> list[dict[str, Any]]:
    """The rows of one module, measured in this process."""
    return importlib.import_module(f"tests.bench.bench_{name}").rows()


def measure_apart(name: str) -> list[dict[str, Any]]:
    """The same in a process of its own, so that none inherits what another one set or left behind.

    Raises ChildProcessError, or subprocess.TimeoutExpired.
    """
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        out = Path(folder) / "rows.json"
        command = [sys.executable, "-m", "tests.bench", "--only", name, "--out", str(out)]
        done = subprocess.run(
            command, stdout=subprocess.DEVNULL, timeout=LIMIT_S, check=False, cwd=HERE.parents[1]
        )
        if done.returncode:
            raise ChildProcessError(f"{name} ended with {done.returncode}")
        return list(json.loads(out.read_text())["rows"])


def measure_all(wanted: list[str], console: Console) -> tuple[list[dict[str, Any]], list[str]]:
    """The rows of these modules, and the names of those that failed."""
    rows: list[dict[str, Any]] = []
    failed: list[str] = []
    for name in wanted:
        began_s = time.monotonic()
        try:
            rows += measure(name) if len(wanted) == 1 else measure_apart(name)
        except (ChildProcessError, subprocess.TimeoutExpired) as error:
            console.print(f"[red]{error}[/]")
            failed.append(name)
        except Exception:
            console.print_exception()
            failed.append(name)
        if len(wanted) > 1:
            console.print(f"{name}: {time.monotonic() - began_s:.0f} s")
    return rows, failed


def show(rows: list[dict[str, Any]], console: Console) -> None:
    """The figures as a table."""
    table = Table(box=None, header_style="bold")
    for column in ("name", "value", "unit", "against", "against_value", "ratio"):
        figure = "value" in column or column == "ratio"
        table.add_column(
            column,
            justify="right" if figure else "left",
            overflow="ellipsis" if column in ("unit", "against") else "fold",
            no_wrap=figure or column == "name",
        )
    for row in rows:
        table.add_row(
            row["name"],
            _figure(row["value"]),
            row["unit"],
            row.get("against") or "",
            _figure(row.get("against_value")),
            _figure(row.get("ratio")),
        )
    console.print(table)


def markdown(document: dict[str, Any]) -> str:
    """The figures as a page of the documentation."""
    where = document["machine"]
    lines = [
        "# Measured",
        "",
        "Written by `make bench MARKDOWN=docs/measured.md`; not edited by hand. The last column is "
        "the machine's one-minute load average where it was noted: these cores are shared. "
        f"Commit {document['commit']}, {where['cores']} cores of {where['cpu']}, "
        f"{where['memory_gib']} GiB, device {where['device']}, Python {where['python']}, "
        f"core: {where['core']}.",
        "",
        "| name | value | unit | against | its value | ratio | load |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in document["rows"]:
        cells = (
            row["name"],
            _figure(row["value"]),
            row["unit"],
            row.get("against") or "",
            _figure(row.get("against_value")),
            _figure(row.get("ratio")),
            _figure(row.get("load")),
        )
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}" if abs(value) < 100 else f"{value:,.0f}"


def main() -> int:
    """Exit status 0 when everything asked for was measured."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("build/bench.json"))
    parser.add_argument("--only", nargs="+", choices=names(), default=names(), metavar="NAME")
    parser.add_argument("--markdown", type=Path, help="also write a page with the figures")
    asked = parser.parse_args()
    console = Console(stderr=True)
    rows, failed = measure_all(asked.only, console)
    document = {"schema": 1, "commit": commit(), "seed": 0, "machine": machine(), "rows": rows}
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    asked.out.write_text(json.dumps(document, indent=1) + "\n")
    if asked.markdown:
        asked.markdown.write_text(markdown(document))
    out = Console()
    show(rows, out if out.is_terminal else Console(width=WIDTH))
    if failed:
        console.print(f"[red]failed: {', '.join(failed)}[/]")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
