"""A small client of Dispatch's HTTP interface, for the commands and the one-machine demo."""

from collections.abc import AsyncIterator, Mapping
from types import TracebackType
from typing import Any, Self, cast

import httpx

from dhsched.output import CommandFailed


class DispatchClient:
    """Asks one Dispatch replica. Problem details (RFC 9457) become `CommandFailed`."""

    def __init__(self, base_url: str, timeout_s: float = 15.0) -> None:
        self._base_url = base_url
        self._http = httpx.AsyncClient(base_url=base_url, timeout=timeout_s)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._http.aclose()

    async def get(self, path: str, **params: str | int) -> dict[str, Any]:
        """GET a JSON document."""
        return await self._ask("GET", path, params=params)

    async def post(
        self, path: str, body: Mapping[str, object] | None = None, **headers: str
    ) -> dict[str, Any]:
        """POST a JSON document and return the answer's."""
        return await self._ask("POST", path, json=body, headers=headers)

    async def delete(self, path: str) -> dict[str, Any]:
        """DELETE and return the answer's document, empty when it has none."""
        return await self._ask("DELETE", path)

    async def is_ready(self) -> bool:
        """Whether the replica answers that it is ready; False while nobody listens."""
        try:
            answer = await self._http.get("/readyz", timeout=2.0)
        except httpx.TransportError:
            return False
        return answer.status_code == 200

    async def stream(self, path: str) -> AsyncIterator[bytes]:
        """The body of a long answer, as it comes, following redirects."""
        timeout = httpx.Timeout(15.0, read=None)
        async with self._http.stream("GET", path, timeout=timeout, follow_redirects=True) as answer:
            if answer.is_error:
                await answer.aread()
                raise _failure(answer)
            async for piece in answer.aiter_bytes():
                yield piece

    async def _ask(self, method: str, path: str, **request: Any) -> dict[str, Any]:
        try:
            answer = await self._http.request(method, path, **request)
        except httpx.TransportError as error:
            raise CommandFailed(
                f"no Dispatch answers at {self._base_url} ({type(error).__name__}); start one with "
                "`dhsched dispatch` or name it with --dispatch"
            ) from error
        if answer.is_error:
            raise _failure(answer)
        return cast("dict[str, Any]", answer.json()) if answer.content else {}


def _failure(answer: httpx.Response) -> CommandFailed:
    try:
        problem = cast("dict[str, Any]", answer.json())
        said = f"{problem.get('title', 'refused')}: {problem.get('detail', '')}".rstrip(": ")
    except ValueError:
        said = answer.text.strip()[:300] or answer.reason_phrase
    return CommandFailed(f"{said} (HTTP {answer.status_code})")
