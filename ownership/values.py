"""Store values in and out of bytes, and the shape of the few that are not Avro.

Values that seldom change (who owns a live, what a worker is) are read with every release, so what
their bytes mean is remembered.
"""

from functools import lru_cache
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
_REMEMBERED = 8192


def read_value(kind: type[V], raw: bytes | None) -> V | None:
    """The value, None when it is absent. Raises StoreCorrupt when it cannot be read."""
    if raw is None:
        return None
    try:
        return kind.decode(raw)
    except BadRecord as error:
        raise StoreCorrupt(f"a {kind.__name__} in the store cannot be read: {error}") from error


@lru_cache(maxsize=_REMEMBERED)
def _generation(raw: bytes) -> GenerationValue | None:
    return read_value(GenerationValue, raw)


@lru_cache(maxsize=_REMEMBERED)
def _worker(raw: bytes) -> WorkerValue | None:
    return read_value(WorkerValue, raw)


@lru_cache(maxsize=_REMEMBERED)
def _cursor(raw: bytes) -> Cursor | None:
    return read_value(Cursor, raw)


def read_generation(raw: bytes | None) -> GenerationValue | None:
    return None if raw is None else _generation(raw)


def read_worker(raw: bytes | None) -> WorkerValue | None:
    return None if raw is None else _worker(raw)


def read_cursor(raw: bytes | None) -> Cursor | None:
    return None if raw is None else _cursor(raw)


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
