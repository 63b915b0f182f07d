"""Requests and results of the release and of custody. Callers reach them through `ownership.model`.

PURE.
"""

from dataclasses import dataclass

from schemas.options import LiveOptions
from schemas.quick_init import quick_init
from schemas.store_values import Checkpoint, Cursor, Generation

# -- release ----------------------------------------------------------------------------------


@quick_init
@dataclass(frozen=True, slots=True)
class ReleaseItem:
    """Move the cursor of one live from `expected_next_offset` to `new_next_offset`.

    The two may be equal: a further segment of a record whose cursor has moved already, or a
    checkpoint alone. `last_seq` and `checkpoint` None keep what is stored. `skipped` is the range
    of offsets, end exclusive, that an interrupt passes over.
    """

    live_id: str
    generation: Generation
    expected_next_offset: int
    new_next_offset: int
    release_id: str
    last_seq: int | None = None
    checkpoint: Checkpoint | None = None
    skipped: tuple[int, int] | None = None


@quick_init
@dataclass(frozen=True, slots=True)
class Released:
    """Committed under the generation that the item names: it may go into the stages, once."""

    item: ReleaseItem


@dataclass(frozen=True, slots=True)
class Stale:
    """Fenced: the item's generation does not own the live. `actual` does (None: nobody)."""

    item: ReleaseItem
    actual: Generation | None


@dataclass(frozen=True, slots=True)
class CursorMoved:
    """The generation is right, the cursor is not where the item expects it (None: no cursor)."""

    item: ReleaseItem
    actual: Cursor | None


# -- custody ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Disposed:
    """No live will ever release this record: send it to the dead-letter topic, now or again."""


@dataclass(frozen=True, slots=True)
class BelongsToOpenLive:
    """The live is open: its owner will release the record. `generation` None: it waits for one."""

    generation: Generation | None


@dataclass(frozen=True, slots=True)
class AlreadyDisposed:
    """The record lies below the live's cursor: released, skipped or dead-lettered before."""

    next_offset: int


# -- lives that records open ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OpenForRecord:
    """Open the live that the record at `offset` names, unless it lived before.

    `targets` are workers in the order in which admission is tried; when all refuse, the live is
    opened all the same and waits as an orphan.
    """

    live_id: str
    options: LiveOptions
    partition: int
    offset: int
    targets: tuple[str, ...]
    commit_id: str
    create_id: str
    now_ms: int
    slot_draw: int = 0


@dataclass(frozen=True, slots=True)
class OpenedForRecord:
    """The record is the live's. `generation` None: it waits for capacity."""

    generation: Generation | None


@dataclass(frozen=True, slots=True)
class LivedBefore:
    """A live of this id was closed: a record does not bring it back."""

    live_id: str
