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
from typing import Any, Protocol, TypeVar

BATCH_RUNS_MAX = 2_500
"""An interpreter of its own takes as long to start as some fifty runs."""
_POLL_S = 0.05


class Job(Protocol):
    """Something that an interpreter of its own does."""

    @property
    def words(self) -> list[str]:
        """The module, and its arguments. It prints what it found as JSON."""
        ...


J = TypeVar("J", bound=Job)


@dataclass(frozen=True, slots=True)
class Batch:
    """`count` seeds from `first` on. `stop_at_first`: until one breaks something."""

    protocol: str
    first: int
    count: int
    stop_at_first: bool = False

    @property
    def words(self) -> list[str]:
        words = ["tests.sim.batch", self.protocol, str(self.first), str(self.count)]
        return [*words, "1" if self.stop_at_first else "0"]


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


class JobFailed(RuntimeError):
    """A job's interpreter ended without numbers: a mistake of the simulator itself."""


def split(protocol: str, first: int, count: int) -> list[Batch]:
    """Batches that are short enough for a progress bar to move."""
    return [
        Batch(protocol, at, min(BATCH_RUNS_MAX, first + count - at))
        for at in range(first, first + count, BATCH_RUNS_MAX)
    ]


def run_all(jobs: Iterable[J], at_once: int, on_done: Callable[[J, dict[str, Any]], None]) -> None:
    """Every job, at most `at_once` of them; in fresh interpreters with a fixed hash seed."""
    waiting = deque(jobs)
    running: list[tuple[J, subprocess.Popen[bytes]]] = []
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                job = waiting.popleft()
                running.append((job, _start(job)))
            ended = [one for one in running if one[1].poll() is not None]
            for job, process in ended:
                running.remove((job, process))
                on_done(job, _numbers(job, process))
            if not ended:
                time.sleep(_POLL_S)
    finally:
        for _, process in running:
            process.kill()
            process.wait()


def _start(job: Job) -> "subprocess.Popen[bytes]":
    output = Path(os.environ.get("TMPDIR", "/tmp")) / f"dhsched-sim-{os.getpid()}-{id(job)}"
    with output.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", *job.words],
            stdout=file,
            env={**os.environ, "PYTHONHASHSEED": "0"},
            cwd=Path(__file__).parents[2],
        )
    process.output = output  # type: ignore[attr-defined]
    return process


def _numbers(job: Job, process: "subprocess.Popen[bytes]") -> dict[str, Any]:
    output: Path = process.output  # type: ignore[attr-defined]
    text = output.read_bytes()
    output.unlink()
    if process.returncode != 0:
        raise JobFailed(f"{job} ended with {process.returncode}")
    return json.loads(text)
