"""Reads and writes of a FoundationDB transaction, inside the worker thread that runs its body.

The bindings give lazy objects that are never None and wait when they are touched. They are turned
into `bytes | None` here and go no further; many reads are sent before the first is waited for.

What FoundationDB's error codes mean for us is decided here as well. Source: the error codes page of
its documentation, and the client's own predicates, which the bindings offer.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from ownership.kv import (
    INT64_MASK,
    KEY_BYTES_MAX,
    TRANSACTION_BYTES_MAX,
    Conflict,
    KeyValue,
    StoreAway,
    StoreError,
    StoreLimit,
    StoreMisconfigured,
    Unknown,
    check_key,
    check_value,
)

# Not committed, but on its way: a timeout or a cancellation gives up the answer, not the commit,
# and a cluster that changes its version may have taken it. They are named here beside the
# client's predicate, because that says of some only that they are not retryable.
COMMIT_UNKNOWN_RESULT = 1021
TRANSACTION_CANCELLED = 1025
TRANSACTION_TIMED_OUT = 1031
CLUSTER_VERSION_CHANGED = 1039
OPERATION_CANCELLED = 1101
MAYBE_LATER = frozenset(
    {
        COMMIT_UNKNOWN_RESULT,
        TRANSACTION_CANCELLED,
        TRANSACTION_TIMED_OUT,
        CLUSTER_VERSION_CHANGED,
        OPERATION_CANCELLED,
    }
)
# Conflict, too old, future version, process behind, tag throttled: certainly not committed.
NOT_COMMITTED = frozenset({1007, 1009, 1020, 1037, 1213})
TOO_LARGE = frozenset({2101, 2102, 2103})
NOT_ALLOWED = frozenset({6000, 6001, 2006})


class Bindings(Protocol):
    """What is used of the module `fdb`, once an API version is selected."""

    FDBError: type[Exception]
    StreamingMode: Any
    predicates: Any

    def open(self, cluster_file: str | None = None) -> Any: ...


def code_of(error: Exception) -> int:
    """The error's code in FoundationDB's numbering; 0 when it has none."""
    code = getattr(error, "code", 0)
    return code if isinstance(code, int) else 0


def before_commit(bindings: Bindings, error: Exception) -> Conflict | StoreError:
    """What an error of a read means: nothing was sent to be committed."""
    code = code_of(error)
    if code in TOO_LARGE:
        return StoreLimit(f"FoundationDB: {error}")
    if code in NOT_ALLOWED:
        return StoreMisconfigured(f"FoundationDB: {error}")
    if code in NOT_COMMITTED or bindings.predicates.is_retryable(error):
        return Conflict()
    return StoreAway(f"FoundationDB: {error}")


def at_commit(bindings: Bindings, error: Exception) -> Conflict | Unknown | StoreError:
    """What an error of the commit means. What we do not know counts as unknown."""
    code = code_of(error)
    if code in MAYBE_LATER or bindings.predicates.is_maybe_committed(error):
        return Unknown(f"FoundationDB: {error}")
    if code in NOT_COMMITTED or bindings.predicates.is_retryable_not_committed(error):
        return Conflict()
    if code in TOO_LARGE:
        return StoreLimit(f"FoundationDB: {error}")
    if code in NOT_ALLOWED:
        return StoreMisconfigured(f"FoundationDB: {error}")
    return Unknown(f"FoundationDB: {error}")


class FdbReads:
    """Reads of a transaction, or of its snapshot twin, under the store's prefix."""

    __slots__ = ("_bindings", "_prefix", "_tr")

    def __init__(self, bindings: Bindings, tr: Any, prefix: bytes) -> None:
        self._bindings = bindings
        self._tr = tr
        self._prefix = prefix

    def get(self, key: bytes) -> bytes | None:
        check_key(key)
        return self._tr.get(self._prefix + key).value

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        for key in keys:
            if not 0 < len(key) <= KEY_BYTES_MAX:
                check_key(key)
        sent = [self._tr.get(self._prefix + key) for key in keys]
        return [lazy.value for lazy in sent]

    def get_range(
        self, begin: bytes, end: bytes, *, limit: int = 0, reverse: bool = False
    ) -> list[KeyValue]:
        if begin >= end:
            return []
        modes = self._bindings.StreamingMode
        found = self._tr.get_range(
            self._prefix + begin,
            self._prefix + end,
            limit,
            reverse,
            modes.exact if limit else modes.want_all,
        )
        skip = len(self._prefix)
        return [(pair.key[skip:], pair.value) for pair in found.to_list()]


class FdbTransaction(FdbReads):
    """What a body gets."""

    __slots__ = ("_bytes", "wrote")

    def __init__(self, bindings: Bindings, tr: Any, prefix: bytes) -> None:
        super().__init__(bindings, tr, prefix)
        self._bytes = 0
        self.wrote = False

    @property
    def snapshot(self) -> FdbReads:
        return FdbReads(self._bindings, self._tr.snapshot, self._prefix)

    def set(self, key: bytes, value: bytes) -> None:
        check_key(key)
        check_value(value)
        self._count(len(key) + len(value))
        self._tr.set(self._prefix + key, value)

    def clear(self, key: bytes) -> None:
        check_key(key)
        self._count(len(key))
        self._tr.clear(self._prefix + key)

    def clear_range(self, begin: bytes, end: bytes) -> None:
        if begin < end:
            self._count(len(begin) + len(end))
            self._tr.clear_range(self._prefix + begin, self._prefix + end)

    def add(self, key: bytes, delta: int) -> None:
        check_key(key)
        self._count(len(key) + 8)
        self._tr.add(self._prefix + key, (delta & INT64_MASK).to_bytes(8, "little"))

    def add_read_conflict_key(self, key: bytes) -> None:
        check_key(key)
        self._tr.add_read_conflict_key(self._prefix + key)

    def add_write_conflict_key(self, key: bytes) -> None:
        check_key(key)
        self.wrote = True
        self._tr.add_write_conflict_key(self._prefix + key)

    def _count(self, size: int) -> None:
        self.wrote = True
        self._bytes += size
        if self._bytes > TRANSACTION_BYTES_MAX:
            raise StoreLimit(f"a transaction writes more than {TRANSACTION_BYTES_MAX} bytes")
