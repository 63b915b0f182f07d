"""`async with` for every backend: entering gives the database, leaving closes it."""

from types import TracebackType
from typing import Self


class ClosesAtEnd:
    """What a backend inherits."""

    async def close(self) -> None:
        """See `ownership.kv.Database.close`."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()
