"""`python -m tests.chaos`: real processes on Apache Kafka under faults, for some minutes.

Exit status 0 only when no invariant broke, no process complained and everything was spoken.
"""

import argparse
import asyncio
import os
import sys
from pathlib import Path

from rich.console import Console

from tests.chaos.report import as_json, failures, keep, show
from tests.chaos.run import Options, run
from tests.support.apache_kafka import KafkaUnavailable

BROKER = "Apache Kafka as a process (Java)"


def main() -> int:
    asked = _arguments()
    console = Console()
    console.print(f"{asked.minutes:g} minutes of faults, seed {asked.seed} ...")
    try:
        found = asyncio.run(run(_options(asked)))
    except KafkaUnavailable as error:
        console.print(f"[red]FAILED[/red] Apache Kafka cannot be run here: {error}")
        return 1
    report = as_json(found, BROKER)
    keep(report, Path(asked.out), asked.markdown)
    show(console, report)
    said = failures(found)
    for one in said:
        console.print(f"[red]FAILED[/red] {one}", highlight=False)
    return 1 if said else 0


def _options(asked: argparse.Namespace) -> Options:
    return Options(
        seed=asked.seed,
        length_s=asked.minutes * 60,
        lives=asked.lives,
        move_every_s=asked.move_every_s,
        store=store_url(asked.seed),
    )


def store_url(seed: int) -> str:
    """The cluster that FDB_CLUSTER_FILE names, under a prefix of its own; else "" (LMDB)."""
    cluster = os.environ.get("FDB_CLUSTER_FILE", "")
    return f"fdb://{cluster}?prefix=chaos-{os.getpid()}-{seed}" if cluster else ""


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="of faults")
    parser.add_argument("--seed", type=int, default=1, help="of the schedule")
    parser.add_argument("--lives", type=int, default=50)
    parser.add_argument("--move-every-s", type=float, default=1.0)
    parser.add_argument("--markdown", type=Path, help="a page to write")
    parser.add_argument("--out", default="build/chaos.json")
    asked = parser.parse_args()
    if asked.minutes <= 0 or asked.lives < 1:
        parser.error("--minutes and --lives must be above 0")
    return asked


if __name__ == "__main__":
    sys.exit(main())
