"""`make bench-gpu`: what can only be shown on a GPU, in one unattended run of under four minutes.

    python -m tests.bench.gpu [--out build/bench-gpu.json] [--device cuda:0] [--markdown PAGE]

1. the CUDA part of the rings' conformance suite, between real processes on the real driver, and
   the encoder of PyNvVideoCodec, where that is installed and the GPU has one;
2. the hop of a 1080p RGBA frame, against the copy's own limit and a round trip over the host;
3. pictures per second of each H.264 encoder that works here, and why the others do not;
4. how many speaking lives the whole pipeline carries at 512 x 512.

Exit status: 0 when everything ran and passed; 1 when something failed, with what was measured
written all the same; 77 when there is no GPU here: then nothing was measured, the document says
`"ran": false` and why, and the table of results stays as it is.
"""

import argparse
import asyncio
import datetime
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from tests.bench.__main__ import commit, machine, show
from tests.bench.figures import percentile, row
from tests.bench.gpu_hop import FRAME_BYTES, copies, host_hops, ring_hops
from tests.bench.gpu_table import with_run
from tests.bench.paced import most_lives
from tests.support.real_cuda import ENV, RealCuda, find_device

EXIT_NO_GPU = 77
LIMIT_S = 230.0
CONFORMANCE_S = 90.0
LIVES = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64)
LIVES_S = 6.0
ROOT = Path(__file__).parents[2]
DEVICE_TESTS = (
    "tests/conformance/test_rings.py",
    "tests/unit/gpu_stages/test_device_encoder.py"
    "::test_the_real_library_does_what_the_stand_in_does",
)


@dataclass(slots=True)
class Run:
    """One run; each step adds what it found."""

    device: str
    driver: RealCuda
    console: Console
    deadline_s: float
    rows: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    conformance: dict[str, Any] = field(default_factory=dict[str, Any])
    encoders_refused: dict[str, str] = field(default_factory=dict[str, str])
    failed: list[str] = field(default_factory=list[str])

    def step(self, name: str, work: Callable[[], None]) -> None:
        """One step; what goes wrong in it does not keep the others from running."""
        began_s = time.monotonic()
        try:
            work()
        except Exception as error:
            self.console.print_exception()
            self.failed.append(f"{name}: {type(error).__name__}: {error}")
        self.console.print(f"{name}: {time.monotonic() - began_s:.0f} s")


def conformance(run: Run) -> None:
    """The suite's tests on the real device; those for other memory are not run again."""
    report = ROOT / "build" / "bench-gpu-conformance.txt"
    report.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "-rs", *DEVICE_TESTS]
    with report.open("wb") as out:
        done = subprocess.run(
            [*command, "-k", "device"],
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**os.environ, ENV: run.device},
            cwd=ROOT,
            timeout=CONFORMANCE_S,
            check=False,
        )
    lines = report.read_text(errors="replace").strip().splitlines()
    run.conformance = {"passed": done.returncode == 0, "summary": lines[-1] if lines else ""}
    run.console.print(run.conformance["summary"])
    if done.returncode:
        run.console.print("\n".join(lines[-40:]))
        raise AssertionError(f"the conformance suite ended with {done.returncode}")


def hops(run: Run) -> None:
    """The three ways, two rounds each in turns; the best round counts."""
    rounds: dict[str, list[list[float]]] = {"ring": [], "copy": [], "host": []}
    for _ in range(2):
        ring, by_device = ring_hops(run.driver)
        if by_device < len(ring):
            raise AssertionError(f"only {by_device} frames stayed on the device")
        rounds["ring"].append(ring)
        rounds["copy"].append(copies(run.driver))
        rounds["host"].append(host_hops(run.driver))
    p50 = {name: min(map(statistics.median, got)) for name, got in rounds.items()}
    p99 = {name: min(percentile(each, 0.99) for each in got) for name, got in rounds.items()}
    size = {"frame_bytes": FRAME_BYTES}
    for name, figures in (("", p50), ("_p99", p99)):
        ring = figures["ring"]
        run.rows += [
            row(f"ipc_hop_1080p{name}", ring, "us", "the copy alone", figures["copy"], **size),
            row(
                f"ipc_hop_1080p_vs_host{name}",
                ring,
                "us",
                "down, over shared host memory, up",
                figures["host"],
                **size,
            ),
        ]


def encoders(run: Run) -> None:
    """Each encoder on the same pictures in device memory."""
    need_torch_cuda()
    from tests.bench.gpu_encode import drawn, measure

    found = measure(run.device, drawn(run.device))
    run.encoders_refused = found.refused
    for reason in found.refused.values():
        run.console.print(reason)
    run.rows += found.rows()


def need_torch_cuda() -> None:
    """Raises `RuntimeError` where torch was built without CUDA."""
    import torch

    if not torch.cuda.is_available():
        raise RuntimeError(
            f"torch {torch.__version__} has no CUDA: make install TORCH_BACKEND=auto"
        )


def lives(run: Run) -> None:
    """More and more lives at 512 x 512, until one is late or the time is up."""
    need_torch_cuda()
    held, seen = asyncio.run(most_lives(LIVES, 512, run.device, LIVES_S, run.deadline_s))
    unit, against = "lives per GPU", "cores of this machine, which encode"
    cores = len(os.sched_getaffinity(0))
    run.rows.append(row("speaking_lives_512_gpu", held, unit, against, cores, p95_ms_by_lives=seen))


def document(run: Run | None, why_not: str) -> dict[str, Any]:
    """The result as it is written."""
    about = machine()
    base = {"schema": 1, "commit": commit(), "seed": 0, "machine": about}
    at = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    if run is None:
        return {**base, "ran": False, "reason": why_not, "at": at, "rows": []}
    about["device"] = run.driver.described()
    return {
        **base,
        "ran": True,
        "at": at,
        "conformance": run.conformance,
        "encoders_refused": run.encoders_refused,
        "failed": run.failed,
        "rows": run.rows,
    }


def main() -> int:
    """See the module for what the exit status means."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.gpu", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("build/bench-gpu.json"))
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument(
        "--markdown", type=Path, help="add the run to this page, such as docs/gpu.md"
    )
    asked = parser.parse_args()
    console = Console(stderr=True)
    driver, why_not = find_device(asked.device)
    run = None
    if driver is not None:
        os.environ[ENV] = asked.device
        run = Run(asked.device, driver, console, time.monotonic() + LIMIT_S)
        run.step("conformance", lambda: conformance(run))
        run.step("hops", lambda: hops(run))
        run.step("encoders", lambda: encoders(run))
        run.step("lives", lambda: lives(run))
    result = document(run, why_not)
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    asked.out.write_text(json.dumps(result, indent=1) + "\n")
    if run is None:
        console.print(f"No GPU here, nothing was measured: {why_not}. {asked.out} says so, too.")
        return EXIT_NO_GPU
    show(run.rows, Console())
    if asked.markdown:
        asked.markdown.write_text(with_run(asked.markdown.read_text(), result))
    for line in run.failed:
        console.print(f"[red]failed: {line}[/]")
    return 1 if run.failed else 0


if __name__ == "__main__":
    sys.exit(main())
