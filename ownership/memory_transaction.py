"""A transaction of the memory store: reads at one version, writes kept aside until the commit.

The body runs at one instant, so the version that it reads is simply the store as it then is. What
it read, points and ranges, is remembered and compared at the commit with all that was committed
since.
"""

from collections.abc import Sequence

from ownership.kv import (
    KEY_BYTES_MAX,
    TRANSACTION_BYTES_MAX,
    VALUE_BYTES_MAX,
    KeyValue,
    StoreLimit,
    add_int64,
    check_key,
    check_value,
)
from ownership.memory_contents import Contents


class MemoryReads:
    """Reads of what is committed."""

    __slots__ = ("_contents",)

    def __init__(self, contents: Contents) -> None:
        self._contents = contents

    def get(self, key: bytes) -> bytes | None:
        check_key(key)
        return self._contents.values.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return [self.get(key) for key in keys]

    def get_range(
        self, begin: bytes, end: bytes, *, limit: int = 0, reverse: bool = False
    ) -> list[KeyValue]:
        keys = self._contents.between(begin, end)
        if reverse:
            keys.reverse()
        values = self._contents.values
        return [(key, values[key]) for key in (keys[:limit] if limit else keys)]


class _Snapshot:
    """The reads of a transaction that it does not remember."""

    __slots__ = ("_tr",)

    def __init__(self, tr: "MemoryTransaction") -> None:
        self._tr = tr

    def get(self, key: bytes) -> bytes | None:
        return self._tr.look(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return [self._tr.look(key) for key in keys]

    def get_range(
        self, begin: bytes, end: bytes, *, limit: int = 0, reverse: bool = False
    ) -> list[KeyValue]:
        return self._tr.look_range(begin, end, limit, reverse)


class MemoryTransaction:
    """What a body gets. The store reads the public attributes at the commit."""

    __slots__ = (
        "_bytes",
        "_contents",
        "cleared",
        "read_points",
        "read_ranges",
        "read_version",
        "touched",
        "writes",
    )

    def __init__(self, contents: Contents, read_version: int) -> None:
        self._contents = contents
        self._bytes = 0
        self.read_version = read_version
        self.read_points: set[bytes] = set()
        self.read_ranges: list[tuple[bytes, bytes]] = []
        # Ranges are cleared first, then these are written: bytes to set, None to clear, an
        # integer to add to whatever is there at the commit.
        self.cleared: list[tuple[bytes, bytes]] = []
        self.writes: dict[bytes, bytes | int | None] = {}
        self.touched: set[bytes] = set()

    # -- reads ----------------------------------------------------------------------------

    def get(self, key: bytes) -> bytes | None:
        self._remember(key)
        return self.look(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        plain = not self.writes and not self.cleared
        if plain and keys and max(map(len, keys)) <= KEY_BYTES_MAX and b"" not in keys:
            self.read_points.update(keys)
            return list(map(self._contents.values.get, keys))
        return [self.get(key) for key in keys]

    def get_range(
        self, begin: bytes, end: bytes, *, limit: int = 0, reverse: bool = False
    ) -> list[KeyValue]:
        pairs = self.look_range(begin, end, limit, reverse)
        if limit and len(pairs) == limit:
            # What lies beyond the last pair was not seen, and does not conflict.
            last = pairs[-1][0]
            begin, end = (last, end) if reverse else (begin, last + b"\x00")
        if begin < end:
            self.read_ranges.append((begin, end))
        return pairs

    @property
    def snapshot(self) -> _Snapshot:
        return _Snapshot(self)

    def _remember(self, key: bytes) -> None:
        """An own set or clear hides the store, so reading it back depends on nobody."""
        if isinstance(self.writes.get(key, 0), int):
            self.read_points.add(key)

    def look(self, key: bytes) -> bytes | None:
        """The value as this transaction sees it."""
        check_key(key)
        written = self.writes.get(key, 0)
        if not isinstance(written, int):
            return written
        base = None if self._is_cleared(key) else self._contents.values.get(key)
        return add_int64(base, written) if key in self.writes else base

    def look_range(self, begin: bytes, end: bytes, limit: int, reverse: bool) -> list[KeyValue]:
        """The pairs of a range as this transaction sees them."""
        found = self._contents.between(begin, end)
        if self.writes or self.cleared:
            own = [key for key in self.writes if begin <= key < end]
            merged = sorted({*found, *own})
        else:
            merged = found
        if reverse:
            merged.reverse()
        pairs: list[KeyValue] = []
        for key in merged:
            value = self.look(key)
            if value is not None:
                pairs.append((key, value))
                if len(pairs) == limit:
                    break
        return pairs

    def _is_cleared(self, key: bytes) -> bool:
        cleared = self.cleared
        return bool(cleared) and any(begin <= key < end for begin, end in cleared)

    # -- writes ---------------------------------------------------------------------------

    def set(self, key: bytes, value: bytes) -> None:
        # Written out, for this is where a release spends its time.
        key_bytes, value_bytes = len(key), len(value)
        if not 0 < key_bytes <= KEY_BYTES_MAX or value_bytes > VALUE_BYTES_MAX:
            check_key(key)
            check_value(value)
        self._bytes += key_bytes + value_bytes
        if self._bytes > TRANSACTION_BYTES_MAX:
            self._count(0)
        self.writes[key] = value

    def clear(self, key: bytes) -> None:
        check_key(key)
        self._count(len(key))
        self.writes[key] = None

    def clear_range(self, begin: bytes, end: bytes) -> None:
        if begin >= end:
            return
        self._count(len(begin) + len(end))
        for key in [key for key in self.writes if begin <= key < end]:
            del self.writes[key]
        self.cleared.append((begin, end))

    def add(self, key: bytes, delta: int) -> None:
        check_key(key)
        self._count(len(key) + 8)
        written = self.writes.get(key, 0)
        if key in self.writes and not isinstance(written, int):
            self.writes[key] = add_int64(written, delta)
        elif self._is_cleared(key):
            self.writes[key] = add_int64(None, delta)
        else:
            self.writes[key] = (written if isinstance(written, int) else 0) + delta

    def add_read_conflict_key(self, key: bytes) -> None:
        check_key(key)
        self.read_points.add(key)

    def add_write_conflict_key(self, key: bytes) -> None:
        check_key(key)
        self.touched.add(key)

    def _count(self, size: int) -> None:
        self._bytes += size
        if self._bytes > TRANSACTION_BYTES_MAX:
            raise StoreLimit(f"a transaction writes more than {TRANSACTION_BYTES_MAX} bytes")
