"""A whole system as a user runs it: Dispatch, a worker with its stages, a real broker."""

import socket
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
import pytest_asyncio

from dhsched.one_machine import OneMachine, OneMachineSettings
from tests.support.sse import EventLog


def free_port() -> int:
    """A port nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(slots=True)
class System:
    """The running system and short ways to use it."""

    machine: OneMachine
    http: httpx.AsyncClient
    kafka: str

    async def create(self, **body: Any) -> str:
        """Open a live and return its id."""
        answer = await self.http.post("/v1/lives", json=body)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["live_id"])

    async def say(self, live_id: str, text: str, **more: Any) -> dict[str, Any]:
        """Push text through Dispatch."""
        answer = await self.http.post(f"/v1/lives/{live_id}/text", json={"text": text, **more})
        assert answer.status_code == 202, answer.text
        return dict(answer.json())

    async def close(self, live_id: str) -> None:
        """Close a live."""
        answer = await self.http.delete(f"/v1/lives/{live_id}")
        assert answer.is_success, answer.text

    def events(self, live_id: str) -> EventLog:
        """Follow a live's events."""
        return EventLog(self.machine.dispatch_url, live_id)

    @property
    def worker_pid(self) -> int:
        """The first worker's process."""
        return self.machine.children.named("worker-local-1").process.pid


SystemFactory = Callable[..., AsyncIterator[System]]


async def running_system(kafka: str, **settings: Any) -> AsyncIterator[System]:
    """A system of its own, ended at the end."""
    asked = OneMachineSettings(kafka=kafka, port=free_port(), **settings)
    async with (
        OneMachine(asked) as machine,
        httpx.AsyncClient(base_url=machine.dispatch_url, timeout=20) as http,
    ):
        yield System(machine, http, machine.kafka)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def system(kafka_bootstrap: str) -> AsyncIterator[System]:
    """One system on the tests' broker (Apache Kafka where it is), shared by all tests."""
    async for made in running_system(kafka_bootstrap):
        yield made


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def embedded_system() -> AsyncIterator[System]:
    """One system on the embedded broker."""
    async for made in running_system(""):
        yield made


@pytest.fixture(params=["kafka", "embedded"])
def any_system(request: pytest.FixtureRequest) -> System:
    """The same test on both brokers."""
    name = "system" if request.param == "kafka" else "embedded_system"
    return request.getfixturevalue(name)
