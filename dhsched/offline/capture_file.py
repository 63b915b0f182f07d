"""A capture as a file: one Avro object container, readable by any Avro tool."""

from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from dhsched.offline.entries import CaptureHeader, Entry


class CaptureError(Exception):
    """The file cannot be read (or not be written) as a capture; `str()` says why."""


class CaptureReader:
    """Iterates over the entries, one block in memory at a time.

    A file that ends within a block yields every whole entry before it; then `truncated_at` is the
    byte where the whole part ends, and iteration ends as if the file did. Raises CaptureError when
    opened: not a container, another schema, an unknown codec.
    """

    header: CaptureHeader
    truncated_at: int | None

    def __init__(self, path: Path) -> None:
        raise NotImplementedError

    def __iter__(self) -> Iterator[Entry]:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class CaptureWriter:
    """Writes entries block by block into `<path>.part`, which `commit` gives its final name."""

    def __init__(self, path: Path, header: CaptureHeader, *, codec: str = "deflate") -> None:
        raise NotImplementedError

    def write(self, entry: Entry) -> None:
        """Raises CaptureError when the disk is full."""
        raise NotImplementedError

    def commit(self) -> None:
        """Whole and on the disk under the final name."""
        raise NotImplementedError

    def close(self) -> None:
        """Without a commit the part file stays, for `resume`."""
        raise NotImplementedError
