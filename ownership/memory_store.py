"""The committed state of the memory store, and the check that makes its commits serializable."""

import contextvars
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ownership.kv import add_int64
from ownership.memory_contents import Contents
from ownership.memory_transaction import MemoryTransaction
from ownership.watching import HintWatch

# A commit whose reads are older than this many commits is refused, as every optimistic store does
# that remembers a bounded past.
COMMITS_REMEMBERED = 20_000


@dataclass(frozen=True, slots=True)
class _Commit:
    version: int
    keys: set[bytes]
    ranges: list[tuple[bytes, bytes]]


@dataclass(slots=True)
class MemoryStore:
    """The committed state, shared by any number of `MemoryDatabase`s of one loop.

    Commits and answers are timers of the context in which the store was made, not of its clients:
    one that is paused or dead after sending does not hold up what it sent.

    `on_commit` is told every commit, in order: its version and what each key then holds (None:
    nothing). For checkers; it must not call back.
    """

    contents: Contents = field(default_factory=Contents)
    version: int = 0
    on_commit: Callable[[int, Mapping[bytes, bytes | None]], None] | None = None
    watches: dict[bytes, list[HintWatch]] = field(default_factory=dict[bytes, list[HintWatch]])
    context: contextvars.Context = field(default_factory=contextvars.copy_context)
    log: deque[_Commit] = field(default_factory=lambda: deque(maxlen=COMMITS_REMEMBERED))

    def commit(self, tr: MemoryTransaction) -> bool:
        """Apply a transaction, unless what it read was written since."""
        if not tr.writes and not tr.cleared and not tr.touched:
            return True
        if self._conflicts(tr):
            return False
        self.version += 1
        changes = self._apply(tr)
        keys = set(tr.writes) | tr.touched if tr.touched else set(tr.writes)
        self.log.append(_Commit(self.version, keys, tr.cleared))
        if self.watches:
            # In the order of the writes: that of a set would differ from process to process.
            for key in changes:
                for watch in self.watches.get(key, ()):
                    watch.fire()
        if self.on_commit is not None:
            self.on_commit(self.version, changes)
        return True

    def _conflicts(self, tr: MemoryTransaction) -> bool:
        points, ranges = tr.read_points, tr.read_ranges
        if tr.read_version == self.version or not (points or ranges):
            return False
        if self.log[0].version > tr.read_version + 1:
            return True
        for commit in reversed(self.log):
            if commit.version <= tr.read_version:
                return False
            if not points.isdisjoint(commit.keys):
                return True
            if ranges and any(b <= key < e for b, e in ranges for key in commit.keys):
                return True
            for begin, end in commit.ranges:
                if any(begin <= key < end for key in points):
                    return True
                if any(b < end and begin < e for b, e in ranges):
                    return True
        return False

    def _apply(self, tr: MemoryTransaction) -> dict[bytes, bytes | None]:
        contents = self.contents
        values = contents.values
        changes: dict[bytes, bytes | None] = {}
        for begin, end in tr.cleared:
            for key in contents.between(begin, end):
                contents.remove(key)
                del values[key]
                changes[key] = None
        for key, written in tr.writes.items():
            if written is None:
                if key in values:
                    del values[key]
                    contents.remove(key)
                changes[key] = None
                continue
            value = add_int64(values.get(key), written) if isinstance(written, int) else written
            if key not in values:
                contents.add(key)
            values[key] = changes[key] = value
        return changes
