"""Reads Dispatch's server-sent events in tests, with a deadline and no sleeping."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any, Self

import httpx

Event = dict[str, Any]


class EventLog:
    """Follows a live's events in the background; `wait_for` looks at old and new ones alike."""

    def __init__(self, base_url: str, live_id: str) -> None:
        self._url = f"{base_url}/v1/lives/{live_id}/events"
        self._arrived = asyncio.Condition()
        self._connected = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.events: list[Event] = []

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._follow())
        async with asyncio.timeout(10):
            await self._connected.wait()
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _follow(self) -> None:
        timeout = httpx.Timeout(10, read=None)
        async with (
            httpx.AsyncClient(timeout=timeout) as client,
            client.stream("GET", self._url, headers={"Last-Event-ID": "0:0"}) as answer,
        ):
            answer.raise_for_status()
            self._connected.set()
            async for event in parse(answer.aiter_lines()):
                async with self._arrived:
                    self.events.append(event)
                    self._arrived.notify_all()

    async def wait_for(
        self, wanted: Callable[[Event], bool], *, timeout_s: float = 20, what: str = "event"
    ) -> Event:
        """The first event that is wanted. AssertionError with all events when none came."""

        def found() -> Event | None:
            return next((event for event in self.events if wanted(event)), None)

        try:
            async with asyncio.timeout(timeout_s), self._arrived:
                await self._arrived.wait_for(found)
        except TimeoutError:
            kinds = [(event["kind"], event.get("offset")) for event in self.events]
            raise AssertionError(f"no {what} within {timeout_s} s; there were {kinds}") from None
        event = found()
        assert event is not None
        return event

    async def wait_for_kind(self, kind: str, *, timeout_s: float = 20) -> Event:
        """The first event of this kind."""
        return await self.wait_for(
            lambda event: event["kind"] == kind, timeout_s=timeout_s, what=kind
        )

    def of_kind(self, kind: str) -> list[Event]:
        """All events of this kind so far."""
        return [event for event in self.events if event["kind"] == kind]


async def parse(lines: AsyncIterator[str]) -> AsyncIterator[Event]:
    """The JSON data of each event of a stream."""
    async for line in lines:
        if line.startswith("data:"):
            yield json.loads(line[5:])
