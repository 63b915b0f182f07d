"""The table in shared memory that says, for every live slot of this worker, who has authority.

The controller is the only writer; every stage reads it before it looks at a message. Two copies
of each row let a reader never wait, also not for a writer that was paused in the middle:

    row:  version u64 | copy 0: fields, crc | copy 1: fields, crc

The writer fills the copy that the version does not name, then stores version + 1, which names it.
A reader loads the version, copies the named copy, and loads the version again: unchanged means that
the writer touched only the other copy meanwhile. Memory order is what `memory` says; besides, the
copy's CRC-32 covers its version, so on any machine a torn row is read again and not believed.

One more word lets readers notice binds and unbinds without looking at every row.
"""

import struct
import zlib
from dataclasses import dataclass
from typing import Final

from gpu_stages.memory import (
    CACHE_LINE_BYTES,
    SharedMemory,
    create_memory,
    fence,
    round_up,
)

_MAGIC: Final = 0x3154_4C44_4853_4448
_MAGIC_WORD, _ROWS_WORD, _BINDINGS_WORD = 0, 1, 2
_ROWS_AT: Final = CACHE_LINE_BYTES
_FIELDS: Final = struct.Struct("<QQIIqqQIIIIfI")
_CRC: Final = struct.Struct("<I")
_COPY_BYTES: Final = round_up(_FIELDS.size + _CRC.size, 8)
_ROW_BYTES: Final = round_up(8 + 2 * _COPY_BYTES)
_READS_MAX: Final = 10_000
U32: Final = 0xFFFF_FFFF
U64: Final = 0xFFFF_FFFF_FFFF_FFFF


class TornRow(RuntimeError):
    """A row could not be read whole in many tries: the table is damaged."""


def name_code(name: str) -> int:
    """The u32 by which a look or a voice is named in the table: CRC-32 of the UTF-8 name.

    A stage makes the same code of the names that it knows; so the table needs no registry of
    names, and a user's stage may bring looks and voices of its own.
    """
    return zlib.crc32(name.encode())


@dataclass(frozen=True, slots=True)
class LiveRow:
    """A consistent snapshot of one row. `binding` 0 means that the slot is empty.

    `utterance` is the live's current turn: messages of a lower one are muted. `credit_frame` is
    the last frame index that may be made, `start_frame` the index of the first tick under this
    binding. `keyframe_requests` only counts up. `look` and `voice` are `name_code`s. `flags` has
    no meaning yet.
    """

    live_slot: int
    binding: int
    epoch: int
    utterance: int
    keyframe_requests: int
    credit_frame: int
    start_frame: int
    seed: int
    look: int
    voice: int
    width_px: int
    height_px: int
    speed: float
    flags: int


def empty_row(live_slot: int) -> LiveRow:
    """The row of a slot that nobody is bound to."""
    return LiveRow(live_slot, 0, 0, 0, 0, -1, 0, 0, 0, 0, 0, 0, 1.0, 0)


def create_table(rows: int) -> int:
    """Memory for a table of `rows` empty rows; returns its descriptor."""
    fd = create_memory("dhsched-lives", _ROWS_AT + rows * _ROW_BYTES)
    memory = SharedMemory(fd)
    memory.words[_ROWS_WORD] = rows
    memory.words[_BINDINGS_WORD] = 1
    memory.words[_MAGIC_WORD] = _MAGIC
    memory.close()
    writer = LiveTableWriter(fd)
    for live_slot in range(rows):
        writer.write(empty_row(live_slot))
    writer.close()
    return fd


def _attach(fd: int) -> SharedMemory:
    memory = SharedMemory(fd)
    if memory.words[_MAGIC_WORD] != _MAGIC:
        memory.close()
        raise ValueError(f"descriptor {fd} is not a live table")
    return memory


class LiveTableWriter:
    """The controller's side. One process, one thread."""

    def __init__(self, fd: int) -> None:
        self._memory = _attach(fd)
        self.rows: int = self._memory.words[_ROWS_WORD]

    def write(self, row: LiveRow) -> None:
        """Replace one row; readers see the old one or this one, never a mixture."""
        offset = _ROWS_AT + row.live_slot * _ROW_BYTES
        words = self._memory.words
        version = words[offset // 8] + 1
        copy_at = offset + 8 + (version & 1) * _COPY_BYTES
        fields = _FIELDS.pack(
            row.binding,
            row.epoch,
            row.utterance,
            row.keyframe_requests & U32,
            row.credit_frame,
            row.start_frame,
            row.seed & U64,
            row.look,
            row.voice,
            row.width_px,
            row.height_px,
            row.speed,
            row.flags,
        )
        self._memory.view[copy_at : copy_at + _FIELDS.size + 4] = fields + _CRC.pack(
            zlib.crc32(fields, version & U32)
        )
        fence()
        words[offset // 8] = version
        fence()

    def bindings_changed(self) -> None:
        """Tell readers that a slot was bound or unbound. Call it after the row is written."""
        self._memory.words[_BINDINGS_WORD] += 1

    def close(self) -> None:
        """Unmap; the descriptor stays the caller's."""
        self._memory.close()


class LiveTableReader:
    """A stage's side; keeps the last snapshot of each row and copies only rows that changed."""

    def __init__(self, fd: int) -> None:
        self._memory = _attach(fd)
        self.rows: int = self._memory.words[_ROWS_WORD]
        self._versions = [0] * self.rows
        self._cache = [empty_row(live_slot) for live_slot in range(self.rows)]

    def bindings(self) -> int:
        """Grows whenever a slot was bound or unbound."""
        return self._memory.words[_BINDINGS_WORD]

    def row(self, live_slot: int) -> LiveRow:
        """The row as it is now. Raises `IndexError` for a slot that the table does not have."""
        if not 0 <= live_slot < self.rows:
            raise IndexError(f"live slot {live_slot} of a table of {self.rows}")
        version = self._memory.words[(_ROWS_AT + live_slot * _ROW_BYTES) // 8]
        if version == self._versions[live_slot]:
            return self._cache[live_slot]
        return self._copy(live_slot)

    def bound_rows(self) -> list[LiveRow]:
        """All rows that are bound now."""
        return [row for row in map(self.row, range(self.rows)) if row.binding]

    def _copy(self, live_slot: int) -> LiveRow:
        offset = _ROWS_AT + live_slot * _ROW_BYTES
        words, view = self._memory.words, self._memory.view
        for _ in range(_READS_MAX):
            version = words[offset // 8]
            fence()
            copy_at = offset + 8 + (version & 1) * _COPY_BYTES
            copied = bytes(view[copy_at : copy_at + _FIELDS.size + 4])
            fence()
            if words[offset // 8] != version:
                continue
            fields = copied[: _FIELDS.size]
            if _CRC.unpack_from(copied, _FIELDS.size)[0] != zlib.crc32(fields, version & U32):
                continue
            row = LiveRow(live_slot, *_FIELDS.unpack(fields))
            self._versions[live_slot] = version
            self._cache[live_slot] = row
            return row
        raise TornRow(f"live slot {live_slot}")

    def close(self) -> None:
        """Unmap; the descriptor stays the caller's."""
        self._memory.close()
