"""Several lives at once, each in a process of the pool; what is done is told as it is done.

A process that dies takes one live with it and no other. When the parent is gone its processes find
their pipe closed and end, leaving no file under a final name.
"""

import contextlib
import logging
import multiprocessing
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any, Final, Protocol

import structlog

from dhsched.offline.entries import Entry
from dhsched.offline.replay_job import JobDone, JobFailed, LiveJob, StageKeeper, run_job

END_S: Final = 10.0
Opener = Callable[[LiveJob], Iterable[Entry]]
"""Opens a job's entries; a function of a module, since it travels to another process."""


class PoolReports(Protocol):
    """Who is told; calls come from the parent's own thread."""

    def began(self, job: LiveJob) -> None: ...

    def progress(self, job: LiveJob, done_ms: int, of_ms: int) -> None: ...

    def done(self, job: LiveJob, done: JobDone) -> None: ...

    def failed(self, job: LiveJob, why: str) -> None: ...


@dataclass(slots=True)
class _Member:
    process: SpawnProcess
    pipe: Any
    job: LiveJob | None = None


def run_here(jobs: Sequence[LiveJob], opener: Opener, reports: PoolReports) -> None:
    """One after the other, in this process."""
    keeper = StageKeeper()
    for job in jobs:
        reports.began(job)
        try:
            done = run_job(
                job, opener(job), keeper, lambda at, of, job=job: reports.progress(job, at, of)
            )
        except JobFailed as error:
            reports.failed(job, str(error))
        else:
            reports.done(job, done)


def run_pool(jobs: Sequence[LiveJob], at_once: int, opener: Opener, reports: PoolReports) -> None:
    """`at_once` processes, each with the next job as soon as it has none."""
    context = multiprocessing.get_context("spawn")
    waiting = deque(jobs)
    members: list[_Member] = []
    try:
        for _ in range(min(at_once, len(jobs))):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs, opener), daemon=True)
            process.start()
            theirs.close()
            members.append(_Member(process, ours))
        for member in members:
            _give(member, waiting, reports)
        while busy := {member.pipe: member for member in members if member.job is not None}:
            for pipe in wait(list(busy)):
                member = busy[pipe]  # type: ignore[index]
                _listen(member, waiting, reports)
        for job in waiting:
            reports.failed(job, "no process of the pool is left")
    finally:
        for member in members:
            member.pipe.close()
        for member in members:
            if member.job is not None:
                member.process.terminate()
            member.process.join(END_S)
            if member.process.is_alive():
                member.process.kill()
                member.process.join()
            member.process.close()


def _give(member: _Member, waiting: "deque[LiveJob]", reports: PoolReports) -> None:
    member.job = waiting.popleft() if waiting else None
    if member.job is not None:
        reports.began(member.job)
        # One that is gone already is noticed when it is listened to.
        with contextlib.suppress(OSError):
            member.pipe.send(member.job)


def _listen(member: _Member, waiting: "deque[LiveJob]", reports: PoolReports) -> None:
    job = member.job
    if job is None:
        return
    try:
        what, *rest = member.pipe.recv()
    except (EOFError, OSError):
        member.process.join(END_S)
        reports.failed(job, f"its process ended with status {member.process.exitcode}")
        member.job = None
        return
    match what:
        case "progress":
            reports.progress(job, *rest)
            return
        case "done":
            reports.done(job, *rest)
        case _:
            reports.failed(job, *rest)
    _give(member, waiting, reports)


def _serve(pipe: "Connection[Any, Any]", opener: Opener) -> None:
    """A process of the pool: jobs in, results out, until the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _leave)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    # Standard output is the parent's, for its document.
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    keeper = StageKeeper()
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        while True:
            job: LiveJob = pipe.recv()
            try:
                done = run_job(
                    job, opener(job), keeper, lambda at, of: pipe.send(("progress", at, of))
                )
            except JobFailed as error:
                pipe.send(("failed", str(error)))
            else:
                pipe.send(("done", done))


def _leave(_signal: int, _frame: object) -> None:
    sys.exit(1)
