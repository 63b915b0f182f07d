"""A whole system as a user runs it: Dispatch, a worker with its stages, a real broker."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

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


@contextlib.contextmanager
def running_system(kafka: str, **settings: Any) -> Iterator[System]:
    """A system of its own, ended at the end. It lives on a loop in a thread of its own, so that
    tests on any loop, and tests without one, can use it.
    """
    asked = OneMachineSettings(kafka=kafka, port=free_port(), **settings)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="system", daemon=True)
    thread.start()

    def wait(work: Coroutine[Any, Any, Any]) -> None:
        asyncio.run_coroutine_threadsafe(work, loop).result(timeout=180)

    machine = OneMachine(asked)
    # No connection is kept, so the client serves any loop and has nothing to close.
    limits = httpx.Limits(max_keepalive_connections=0)
    http = httpx.AsyncClient(base_url=machine.dispatch_url, timeout=20, limits=limits)
    try:
        wait(machine.__aenter__())
        yield System(machine, http, machine.kafka)
    finally:
        wait(machine.stop())
        loop.call_soon_threadsafe(loop.stop)
        thread.join(timeout=10)
        loop.close()


@pytest.fixture(scope="session")
def system(kafka_bootstrap: str) -> Iterator[System]:
    """One system on the tests' broker (Apache Kafka where it is), shared by all tests."""
    with running_system(kafka_bootstrap) as made:
        yield made


@pytest.fixture(scope="session")
def embedded_system() -> Iterator[System]:
    """One system on the embedded broker."""
    with running_system("") as made:
        yield made


@pytest.fixture(params=["kafka", "embedded"])
def any_system(request: pytest.FixtureRequest) -> System:
    """The same test on both brokers."""
    name = "system" if request.param == "kafka" else "embedded_system"
    return request.getfixturevalue(name)
