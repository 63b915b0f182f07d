"""Runs many batches in fresh interpreters, a few at once, and puts their numbers together."""

import json
import os
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

BATCH_RUNS_MAX = 1_000
_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class Batch:
    """`count` seeds from `first` on. `stop_at_first`: until one breaks something."""

    protocol: str
    first: int
    count: int
    stop_at_first: bool = False


@dataclass(slots=True)
class Total:
    """What all batches of one protocol found."""

    runs: int = 0
    bad_runs: int = 0
    cpu_s: float = 0.0
    again_ms_max: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    violations: Counter[str] = field(default_factory=Counter)
    windows: Counter[str] = field(default_factory=Counter)
    bad_seeds: list[int] = field(default_factory=list)
    mismatches: list[int] = field(default_factory=list)
    example: dict[str, Any] | None = None

    def add(self, found: dict[str, Any]) -> None:
        """One batch's numbers."""
        self.runs += found["runs"]
        self.bad_runs += found["bad_runs"]
        self.cpu_s += found["cpu_s"]
        self.again_ms_max = max(self.again_ms_max, found["again_ms_max"])
        self.violations.update(found["violations"])
        self.windows.update(found["windows"])
        self.mismatches += found["mismatches"]
        self.bad_seeds = sorted([*self.bad_seeds, *found["bad_seeds"]])[:20]
        for name in ("releases", "moves", "false_refusals", "records", "workers", "replayed"):
            self.counts[name] += found.get(name, 0)
        example = found["example"]
        if example and (self.example is None or example["seed"] < self.example["seed"]):
            self.example = example

    @property
    def first_bad_seed(self) -> int | None:
        return self.bad_seeds[0] if self.bad_seeds else None

    def mean(self, name: str) -> float:
        """Per run."""
        return self.counts[name] / self.runs if self.runs else 0.0


class BatchFailed(RuntimeError):
    """A batch's interpreter ended without numbers: a mistake of the simulator itself."""


def split(protocol: str, first: int, count: int) -> list[Batch]:
    """Batches that are short enough for a progress bar to move."""
    return [
        Batch(protocol, at, min(BATCH_RUNS_MAX, first + count - at))
        for at in range(first, first + count, BATCH_RUNS_MAX)
    ]


def run_all(
    batches: Iterable[Batch], jobs: int, on_done: Callable[[Batch, dict[str, Any]], None]
) -> None:
    """Every batch, at most `jobs` at once; in fresh interpreters with a fixed hash seed."""
    waiting = deque(batches)
    running: list[tuple[Batch, subprocess.Popen[bytes]]] = []
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                batch = waiting.popleft()
                running.append((batch, _start(batch)))
            ended = [one for one in running if one[1].poll() is not None]
            for batch, process in ended:
                running.remove((batch, process))
                on_done(batch, _numbers(batch, process))
            if not ended:
                time.sleep(_POLL_S)
    finally:
        for _, process in running:
            process.kill()
            process.wait()


def _start(batch: Batch) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "tests.sim.batch", batch.protocol, str(batch.first)]
    command += [str(batch.count), "1" if batch.stop_at_first else "0"]
    output = Path(os.environ.get("TMPDIR", "/tmp")) / f"dhsched-sim-{os.getpid()}-{id(batch)}"
    with output.open("wb") as file:
        process = subprocess.Popen(
            command,
            stdout=file,
            env={**os.environ, "PYTHONHASHSEED": "0"},
            cwd=Path(__file__).parents[2],
        )
    process.output = output  # type: ignore[attr-defined]
    return process


def _numbers(batch: Batch, process: "subprocess.Popen[bytes]") -> dict[str, Any]:
    output: Path = process.output  # type: ignore[attr-defined]
    text = output.read_bytes()
    output.unlink()
    if process.returncode != 0:
        raise BatchFailed(f"{batch} ended with {process.returncode}")
    return json.loads(text)
