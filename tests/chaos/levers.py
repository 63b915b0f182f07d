"""What the nemesis can do inside a process: a few numbers in a file that both have mapped.

Reading one costs a look into memory, so the process looks at them at every call of the store.
"""

import mmap
from enum import IntEnum
from pathlib import Path

_BYTES = 64


class Lever(IntEnum):
    """Places in the file, 8 bytes each."""

    STORE = 0
    STOP_AFTER_RELEASE = 1
    WALL_OFFSET_MS = 2
    LOSE_STAGE = 3


class StoreMode(IntEnum):
    """AWAY: nothing reaches the store. UNSURE: some answers do not come back, applied or not."""

    OK = 0
    AWAY = 1
    UNSURE = 2


class Levers:
    """One process's numbers; made (with `fresh`) by the nemesis before the process starts."""

    def __init__(self, path: Path, *, fresh: bool = False) -> None:
        if fresh:
            path.write_bytes(bytes(_BYTES))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), _BYTES)
        self._numbers = memoryview(self._map).cast("q")

    def get(self, lever: Lever) -> int:
        return self._numbers[lever]

    def set(self, lever: Lever, value: int) -> None:
        self._numbers[lever] = value

    def close(self) -> None:
        self._numbers.release()
        self._map.close()
