"""The one thread of a process that writes to its LMDB environment.

LMDB has one write transaction at a time, over all processes, and it belongs to the thread that
began it. So every body of this process runs in this thread. Bodies that wait together share one
LMDB transaction, and so one flush to the disk: each runs in a child transaction of its own, and one
that raises takes back only its own writes. Their order in the queue is their order of commit.

The thread also looks after watches: after each commit, and every `POLL_S` for what other processes
committed, it compares the watched values with those last seen.
"""

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import lmdb

from ownership.kv import Committed, StoreAway, StoreError, StoreFull, Unknown
from ownership.lmdb_transaction import LmdbReads, LmdbTransaction
from ownership.watching import HintWatch

GROUP_MAX = 64
POLL_S = 0.025

Outcome = Committed[Any] | Unknown | BaseException


class _Progress(Enum):
    WAITING = auto()
    STARTED = auto()
    GIVEN_UP = auto()


class _Order(Enum):
    STOP = auto()
    WAKE = auto()


@dataclass(slots=True, eq=False)
class Job:
    """A body on its way. `progress` changes under the writer's lock only."""

    body: Callable[[LmdbTransaction], object]
    told: "asyncio.Future[Committed[Any] | Unknown]"
    progress: _Progress = _Progress.WAITING


class Writer:
    """Owns the environment from `start` to `stop`."""

    def __init__(self, env: lmdb.Environment, name: str) -> None:
        self.env = env
        self._jobs: queue.SimpleQueue[Job | _Order] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._watched: dict[HintWatch, bytes | None] = {}
        self._seen_txn = -1
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def submit(self, job: Job) -> None:
        """Queue a body; its future is answered on its own loop."""
        self._jobs.put(job)

    def give_up(self, job: Job) -> bool:
        """Take a job back; False when its body has already been started."""
        with self._lock:
            if job.progress is _Progress.STARTED:
                return False
            job.progress = _Progress.GIVEN_UP
            return True

    def stop(self) -> threading.Thread:
        """End after the jobs that are queued. Returns the thread, to be joined."""
        self._jobs.put(_Order.STOP)
        return self._thread

    def watch(self, watch: HintWatch) -> None:
        """Begin to compare the value of its key."""
        with self.env.begin() as txn:
            value = LmdbReads(txn).get(watch.key)
        with self._lock:
            first = not self._watched
            self._watched[watch] = value
        if first:
            # Until now the thread waited for jobs without a limit.
            self._jobs.put(_Order.WAKE)

    def unwatch(self, watch: HintWatch) -> None:
        with self._lock:
            self._watched.pop(watch, None)

    # -- the thread -----------------------------------------------------------------------

    def _run(self) -> None:
        try:
            going = True
            while going:
                going = self._turn()
        finally:
            self.env.close()

    def _turn(self) -> bool:
        try:
            job = self._jobs.get(timeout=POLL_S if self._watched else None)
        except queue.Empty:
            self._compare()
            return True
        if job is _Order.STOP:
            return False
        going = job is _Order.WAKE or self._commit_group(job)
        self._compare()
        return going

    def _commit_group(self, first: Job) -> bool:
        """One LMDB transaction for the job and all that wait with it; False: stop afterwards."""
        try:
            txn = self.env.begin(write=True)
        except lmdb.Error as error:
            away = _unapplied(error)
            _tell([(first, away)] if self._start(first) else [])
            return True
        # Only now, with the lock of all processes taken, are the others gathered: what has not
        # begun can still be given up with a certain answer.
        group, going = self._gather(first)
        done: list[tuple[Job, Outcome]] = []
        try:
            if len(group) == 1:
                done.append((group[0], _run_body(group[0], txn)))
            else:
                for job in group:
                    done.append((job, self._run_child(job, txn)))
            if len(group) == 1 and isinstance(done[0][1], BaseException):
                txn.abort()
            else:
                txn.commit()
        except lmdb.Error as error:
            with contextlib.suppress(lmdb.Error):
                txn.abort()
            fate = _after_commit(error)
            raised = {id(job): told for job, told in done if isinstance(told, BaseException)}
            done = [(job, raised.get(id(job), fate)) for job in group]
        _tell(done)
        return going

    def _gather(self, first: Job) -> tuple[list[Job], bool]:
        group = [first] if self._start(first) else []
        while len(group) < GROUP_MAX:
            try:
                job = self._jobs.get_nowait()
            except queue.Empty:
                return group, True
            if job is _Order.STOP:
                return group, False
            if job is not _Order.WAKE and self._start(job):
                group.append(job)
        return group, True

    def _start(self, job: Job) -> bool:
        with self._lock:
            if job.progress is _Progress.GIVEN_UP:
                return False
            job.progress = _Progress.STARTED
            return True

    def _run_child(self, job: Job, parent: lmdb.Transaction) -> Outcome:
        child = self.env.begin(write=True, parent=parent)
        outcome = _run_body(job, child)
        if isinstance(outcome, BaseException):
            child.abort()
        else:
            child.commit()
        return outcome

    def _compare(self) -> None:
        """Fire the watches whose values are not those last seen."""
        if not self._watched:
            return
        changed: list[HintWatch] = []
        try:
            with self.env.begin() as txn:
                if txn.id() == self._seen_txn:
                    return
                self._seen_txn = txn.id()
                with self._lock:
                    reads = LmdbReads(txn)
                    for watch, old in self._watched.items():
                        new = reads.get(watch.key)
                        if new != old:
                            self._watched[watch] = new
                            changed.append(watch)
        except lmdb.Error:
            # A hint that is not given; whoever watches also polls.
            return
        for watch in changed:
            watch.fire_from_thread()


def _run_body(job: Job, txn: lmdb.Transaction) -> Outcome:
    try:
        return Committed(job.body(LmdbTransaction(txn)))
    except lmdb.Error as error:
        return _unapplied(error)
    except BaseException as error:
        return error


def _unapplied(error: lmdb.Error) -> StoreError:
    """What an LMDB error means before the commit."""
    if isinstance(error, lmdb.MapFullError):
        return StoreFull("the LMDB map is full: open it with a larger map_gib in every process")
    if isinstance(error, lmdb.DiskError):
        return StoreFull(f"the disk under the LMDB store is full: {error}")
    return StoreAway(f"LMDB: {error}")


def _after_commit(error: lmdb.Error) -> StoreError | Unknown:
    """What an LMDB error means at the commit.

    Without room nothing was written, for the data pages go before the page that makes them count.
    After any other error that page may or may not be on the disk.
    """
    cause = _unapplied(error)
    return cause if isinstance(cause, StoreFull) else Unknown(str(cause))


def _tell(done: list[tuple[Job, Outcome]]) -> None:
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[Job, Outcome]]] = {}
    for job, outcome in done:
        by_loop.setdefault(job.told.get_loop(), []).append((job, outcome))
    for loop, answers in by_loop.items():
        if loop.is_closed():
            continue
        try:
            loop.call_soon_threadsafe(_answer, answers)
        except RuntimeError:
            # The loop was closed between the look and the call: nobody waits.
            continue


def _answer(answers: list[tuple[Job, Outcome]]) -> None:
    for job, outcome in answers:
        if job.told.done():
            continue
        if isinstance(outcome, BaseException):
            job.told.set_exception(outcome)
        else:
            job.told.set_result(outcome)
