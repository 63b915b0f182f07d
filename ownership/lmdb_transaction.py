"""Reads and writes inside an LMDB transaction, which sees its own writes by itself."""

from collections.abc import Iterator, Sequence
from typing import Protocol, cast

import lmdb

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


class _Cursor(Protocol):
    """An LMDB cursor that gives bytes (as ours all do: `buffers` is off)."""

    def first(self) -> bool: ...
    def last(self) -> bool: ...
    def next(self) -> bool: ...
    def prev(self) -> bool: ...
    def set_range(self, key: bytes, /) -> bool: ...
    def key(self) -> bytes: ...
    def delete(self) -> bool: ...
    def iternext(self) -> Iterator[KeyValue]: ...
    def iterprev(self) -> Iterator[KeyValue]: ...
    def close(self) -> None: ...


class _Txn(Protocol):
    """An LMDB transaction that gives bytes."""

    def get(self, key: bytes, /) -> bytes | None: ...
    def put(self, key: bytes, value: bytes, /) -> bool: ...
    def delete(self, key: bytes, /) -> bool: ...


class LmdbReads:
    """Reads of one LMDB transaction; `snapshot` is the same, for nothing ever conflicts here."""

    __slots__ = ("_raw", "_txn")

    def __init__(self, txn: lmdb.Transaction) -> None:
        self._raw = txn
        self._txn = cast(_Txn, txn)

    def get(self, key: bytes) -> bytes | None:
        # LMDB itself says of a key that is too long only that it is absent.
        if not 0 < len(key) <= KEY_BYTES_MAX:
            check_key(key)
        return self._txn.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        sizes = list(map(len, keys))
        if sizes and (max(sizes) > KEY_BYTES_MAX or not min(sizes)):
            for key in keys:
                check_key(key)
        return list(map(self._txn.get, keys))

    def get_range(
        self, begin: bytes, end: bytes, *, limit: int = 0, reverse: bool = False
    ) -> list[KeyValue]:
        cursor = self._cursor()
        try:
            if reverse:
                return _backward(cursor, begin, end, limit)
            return _forward(cursor, begin, end, limit)
        finally:
            cursor.close()

    def _cursor(self) -> _Cursor:
        return cast(_Cursor, self._raw.cursor())

    @property
    def snapshot(self) -> "LmdbReads":
        return self


def _seek(cursor: _Cursor, bound: bytes) -> bool:
    """Stand at the first key >= bound; a bound may be longer than any key."""
    if not bound:
        return cursor.first()
    if len(bound) <= KEY_BYTES_MAX:
        return cursor.set_range(bound)
    short = bound[:KEY_BYTES_MAX]
    found = cursor.set_range(short)
    return cursor.next() if found and cursor.key() == short else found


def _forward(cursor: _Cursor, begin: bytes, end: bytes, limit: int) -> list[KeyValue]:
    pairs: list[KeyValue] = []
    if not _seek(cursor, begin):
        return pairs
    for key, value in cursor.iternext():
        if key >= end:
            break
        pairs.append((key, value))
        if len(pairs) == limit:
            break
    return pairs


def _backward(cursor: _Cursor, begin: bytes, end: bytes, limit: int) -> list[KeyValue]:
    pairs: list[KeyValue] = []
    if not (cursor.prev() if _seek(cursor, end) else cursor.last()):
        return pairs
    for key, value in cursor.iterprev():
        if key < begin:
            break
        if key >= end:
            continue
        pairs.append((key, value))
        if len(pairs) == limit:
            break
    return pairs


class LmdbTransaction(LmdbReads):
    """What a body gets inside the one write transaction."""

    __slots__ = ("_bytes", "_put")

    def __init__(self, txn: lmdb.Transaction) -> None:
        super().__init__(txn)
        self._bytes = 0
        self._put = self._txn.put

    def set(self, key: bytes, value: bytes) -> None:
        # Written out, for this is where a release spends its time in the one writer.
        key_bytes, value_bytes = len(key), len(value)
        if not 0 < key_bytes <= KEY_BYTES_MAX or value_bytes > VALUE_BYTES_MAX:
            check_key(key)
            check_value(value)
        self._bytes += key_bytes + value_bytes
        if self._bytes > TRANSACTION_BYTES_MAX:
            self._count(0)
        self._put(key, value)

    def clear(self, key: bytes) -> None:
        self._count(len(key))
        check_key(key)
        self._txn.delete(key)

    def clear_range(self, begin: bytes, end: bytes) -> None:
        self._count(len(begin) + len(end))
        cursor = self._cursor()
        try:
            found = _seek(cursor, begin)
            while found and cursor.key() < end:
                # Deleting leaves the cursor at the next key, or at nothing.
                cursor.delete()
                found = bool(cursor.key())
        finally:
            cursor.close()

    def add(self, key: bytes, delta: int) -> None:
        self.set(key, add_int64(self.get(key), delta))

    def add_read_conflict_key(self, key: bytes) -> None:
        """Nothing ever conflicts: write transactions come one after the other."""
        check_key(key)

    def add_write_conflict_key(self, key: bytes) -> None:
        """Nothing ever conflicts: write transactions come one after the other."""
        check_key(key)

    def _count(self, size: int) -> None:
        self._bytes += size
        if self._bytes > TRANSACTION_BYTES_MAX:
            raise StoreLimit(f"a transaction writes more than {TRANSACTION_BYTES_MAX} bytes")
