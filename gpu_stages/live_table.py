"""The table in shared memory that says, for every live slot of this worker, who has authority.

Stub of the first minutes: the layout and the reader's types. PURE parts come first.
"""

import zlib
from dataclasses import dataclass


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
    binding. `keyframe_requests` only counts up. `look` and `voice` are `name_code`s.
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
