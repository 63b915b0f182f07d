"""`with` for the files of this folder: entering gives the reader or writer, leaving closes it."""

from types import TracebackType
from typing import Self


class ClosesAtEnd:
    """What a reader or writer of a file inherits."""

    def close(self) -> None:
        """Lets go of the file; may be called twice."""
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
