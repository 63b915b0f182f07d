"""Store values read from what a transaction found; what cannot be read is a broken store."""

from typing import TypeVar

from ownership.kv import StoreCorrupt
from schemas.bad_record import BadRecord
from schemas.store_values import (
    Checkpoint,
    ClaimValue,
    Cursor,
    GenerationValue,
    IdempotencyValue,
    LiveState,
    LoadView,
    Meta,
    OrphanValue,
    SlotValue,
    StoreValue,
    WorkerValue,
)

V = TypeVar("V", bound=StoreValue)
# What a release reads of each live, by its bytes: values cannot change, so those that were read or
# written here before need not be decoded again. Each is emptied when it is full.
_REMEMBERED_MAX = 8192
_generations: dict[bytes, GenerationValue] = {}
_cursors: dict[bytes, Cursor] = {}


def read_value(kind: type[V], raw: bytes | None) -> V | None:
    """The value, None when it is absent. Raises StoreCorrupt when it cannot be read."""
    if raw is None:
        return None
    try:
        return kind.decode(raw)
    except BadRecord as error:
        raise StoreCorrupt(f"a {kind.__name__} in the store cannot be read: {error}") from error


def read_generation(raw: bytes | None) -> GenerationValue | None:
    if raw is None:
        return None
    found = _generations.get(raw)
    if found is None:
        found = read_value(GenerationValue, raw)
        if found is not None:
            if len(_generations) >= _REMEMBERED_MAX:
                _generations.clear()
            _generations[raw] = found
    return found


def read_worker(raw: bytes | None) -> WorkerValue | None:
    return read_value(WorkerValue, raw)


def read_cursor(raw: bytes | None) -> Cursor | None:
    known = _cursors.get(raw) if raw is not None else None
    return read_value(Cursor, raw) if known is None else known


def write_cursor(cursor: Cursor, before: bytes | None) -> bytes:
    """The bytes of a cursor that its writer will soon read again, in the place of `before`.

    The next release of the live begins with what this one leaves, and to decode it would be the
    dearest step of a release.
    """
    raw = cursor.encode()
    if before is not None:
        _cursors.pop(before, None)
    if len(_cursors) >= _REMEMBERED_MAX:
        _cursors.clear()
    _cursors[raw] = cursor
    return raw


def read_live(raw: bytes | None) -> LiveState | None:
    return read_value(LiveState, raw)


def read_claim(raw: bytes | None) -> ClaimValue | None:
    return read_value(ClaimValue, raw)


def read_checkpoint(raw: bytes | None) -> Checkpoint | None:
    return read_value(Checkpoint, raw)


def read_slot(raw: bytes | None) -> SlotValue | None:
    return read_value(SlotValue, raw)


def read_load(raw: bytes | None) -> LoadView | None:
    return read_value(LoadView, raw)


def read_orphan(raw: bytes | None) -> OrphanValue | None:
    return read_value(OrphanValue, raw)


def read_idempotency(raw: bytes | None) -> IdempotencyValue | None:
    return read_value(IdempotencyValue, raw)


def read_meta(raw: bytes | None) -> Meta | None:
    return read_value(Meta, raw)
