"""A stand-in for the FoundationDB bindings: their surface, their laziness, their network thread.

It is there so that a mistake in our backend is found without a cluster. What it stores is kept by
the memory store's optimistic engine; errors of a read or a commit are put in by the test.
"""

import copy
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ownership.memory_store import MemoryStore
from ownership.memory_transaction import MemoryTransaction
from ownership.tuple_layer import pack

RETRYABLE_NOT_COMMITTED = {1007, 1009, 1020, 1037, 1042, 1051, 1078, 1213}
MAYBE_COMMITTED = {1021, 1039}


PREFIX = pack(("dhsched",))


def inside(key: bytes) -> bytes:
    """Everything must lie under the store's prefix; what is kept here is what comes after it."""
    assert key.startswith(PREFIX), key
    return key[len(PREFIX) :]


class FDBError(Exception):
    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code

    def __str__(self) -> str:
        return f"stand-in error ({self.code})"


class Predicates:
    def is_retryable(self, error: FDBError) -> bool:
        return error.code in RETRYABLE_NOT_COMMITTED | MAYBE_COMMITTED

    def is_maybe_committed(self, error: FDBError) -> bool:
        return error.code in MAYBE_COMMITTED

    def is_retryable_not_committed(self, error: FDBError) -> bool:
        return error.code in RETRYABLE_NOT_COMMITTED


class Modes:
    want_all, exact = -1, 1


class Future:
    def __init__(self) -> None:
        self._done = threading.Event()
        self._lock = threading.Lock()
        self._result: Any = None
        self._error: FDBError | None = None
        self._callbacks: list[Callable[[Any], None]] = []

    def settle(self, result: Any = None, error: FDBError | None = None) -> None:
        with self._lock:
            if self._done.is_set():
                return
            self._result, self._error = result, error
            self._done.set()
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(self)

    def is_ready(self) -> bool:
        return self._done.is_set()

    def on_ready(self, callback: Callable[[Any], None]) -> None:
        with self._lock:
            if not self._done.is_set():
                self._callbacks.append(callback)
                return
        callback(self)

    def cancel(self) -> None:
        self.settle(error=FDBError(1101))

    def wait(self) -> Any:
        if threading.current_thread().name == "stand-in network":
            raise FDBError(2026)
        assert self._done.wait(30), "the stand-in never answered"
        if self._error is not None:
            raise self._error
        return self._result


class Value(Future):
    """Claims to be bytes and is never None, as the real one."""

    __class__ = property(lambda self: bytes)  # type: ignore[assignment]

    @property
    def value(self) -> Any:
        return self.wait()


@dataclass
class KeyValue:
    key: bytes
    value: bytes


class Range:
    def __init__(self, future: Future) -> None:
        self._future = future

    def to_list(self) -> list[KeyValue]:
        return [KeyValue(*pair) for pair in self._future.wait()]


@dataclass
class CommitFate:
    """What becomes of one commit: the code it answers, and whether (and when) it applies."""

    code: int
    applied: bool = False
    later_s: float = 0.0


@dataclass
class Cluster:
    store: MemoryStore = field(default_factory=MemoryStore)
    lock: threading.RLock = field(default_factory=threading.RLock)
    commits: deque[CommitFate] = field(default_factory=deque)
    reads: deque[int] = field(default_factory=deque)
    arms: deque[int] = field(default_factory=deque)
    options: dict[str, Any] = field(default_factory=dict)
    silent: bool = False
    commit_s: float = 0.0
    commit_calls: int = 0
    pipelined: int = 0
    watches: dict[bytes, list[Future]] = field(default_factory=dict)
    work: "queue.SimpleQueue[Callable[[], None] | None]" = field(default_factory=queue.SimpleQueue)

    def __post_init__(self) -> None:
        self.store.on_commit = self._changed
        self.thread = threading.Thread(target=self._network, name="stand-in network", daemon=True)
        self.thread.start()

    def _network(self) -> None:
        while (work := self.work.get()) is not None:
            work()

    def stop(self) -> None:
        self.work.put(None)
        self.thread.join()

    def answer(self, future: Future, result: Any) -> None:
        if self.silent:
            return
        error = FDBError(self.reads.popleft()) if self.reads else None
        self.pipelined += 1

        def deliver() -> None:
            self.pipelined = 0
            future.settle(result, error)

        self.work.put(deliver)

    def _changed(self, _: int, changes: Mapping[bytes, bytes | None]) -> None:
        for key in changes:
            for future in self.watches.pop(key, []):
                self.work.put(future.settle)


class TransactionRead:
    def __init__(self, owner: "Transaction", snapshot: bool) -> None:
        self._owner = owner
        self._is_snapshot = snapshot

    @property
    def _reads(self) -> Any:
        inner = self._owner.inner()
        return inner.snapshot if self._is_snapshot else inner

    def get(self, key: bytes) -> Value:
        future = Value()
        self._owner.cluster.answer(future, self._reads.get(inside(key)))
        return future

    def get_range(self, begin: bytes, end: bytes, limit: int, reverse: bool, mode: int) -> Range:
        assert mode == (Modes.exact if limit else Modes.want_all)
        if begin > end:
            raise FDBError(2005)
        future = Future()
        pairs = self._reads.get_range(inside(begin), inside(end), limit=limit, reverse=reverse)
        self._owner.cluster.answer(future, [(PREFIX + key, value) for key, value in pairs])
        return Range(future)


class Transaction(TransactionRead):
    def __init__(self, cluster: Cluster) -> None:
        super().__init__(self, snapshot=False)
        self.cluster = cluster
        self._inner: MemoryTransaction | None = None
        self._armed: list[tuple[bytes, Future]] = []
        self.snapshot = TransactionRead(self, snapshot=True)

    def inner(self) -> MemoryTransaction:
        """The read version is taken with the first read or write."""
        if self._inner is None:
            with self.cluster.lock:
                store = self.cluster.store
                self._inner = MemoryTransaction(copy.deepcopy(store.contents), store.version)
        return self._inner

    def set(self, key: bytes, value: bytes) -> None:
        self.inner().set(inside(key), value)

    def clear(self, key: bytes) -> None:
        self.inner().clear(inside(key))

    def clear_range(self, begin: bytes, end: bytes) -> None:
        self.inner().clear_range(inside(begin), inside(end))

    def add(self, key: bytes, param: bytes) -> None:
        assert len(param) == 8
        self.inner().add(inside(key), int.from_bytes(param, "little", signed=True))

    def add_read_conflict_key(self, key: bytes) -> None:
        self.inner().add_read_conflict_key(inside(key))

    def add_write_conflict_key(self, key: bytes) -> None:
        self.inner().add_write_conflict_key(inside(key))

    def watch(self, key: bytes) -> Future:
        future = Future()
        self._armed.append((inside(key), future))
        return future

    def commit(self) -> Future:
        future, inner, cluster = Future(), self.inner(), self.cluster
        cluster.commit_calls += 1
        writes = bool(inner.writes or inner.cleared or inner.touched)
        fate = cluster.commits.popleft() if writes and cluster.commits else None

        def apply() -> bool:
            with cluster.lock:
                return cluster.store.commit(inner)

        def decide() -> None:
            if cluster.commit_s:
                time.sleep(cluster.commit_s)
            if fate is None:
                applied = apply()
                self._arm()
                future.settle(error=None if applied else FDBError(1020))
                return
            if fate.applied and not fate.later_s:
                apply()
            elif fate.applied:
                threading.Timer(fate.later_s, apply).start()
            future.settle(error=FDBError(fate.code))

        cluster.work.put(decide)
        return future

    def _arm(self) -> None:
        for key, future in self._armed:
            if self.cluster.arms:
                future.settle(error=FDBError(self.cluster.arms.popleft()))
            else:
                self.cluster.watches.setdefault(key, []).append(future)


class Options:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def __getattr__(self, name: str) -> Callable[[int], None]:
        def note(value: int) -> None:
            self._cluster.options[name] = value

        return note


class Database:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.options = Options(cluster)

    def create_transaction(self) -> Transaction:
        return Transaction(self._cluster)


class StandIn:
    """Where the backend expects the module `fdb`."""

    FDBError = FDBError
    StreamingMode = Modes
    predicates = Predicates()

    def __init__(self, cluster: Cluster | None = None) -> None:
        self.cluster = Cluster() if cluster is None else cluster
        self.opened: list[str | None] = []

    def open(self, cluster_file: str | None = None) -> Database:
        self.opened.append(cluster_file)
        return Database(self.cluster)
