"""Roles of the system inside the test's own loop: `serve` as it is, with stub stages.

What a real process adds (signals, its own memory) is in `tests.support.roles`; here a start costs
milliseconds instead of seconds of importing.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

import controller.main
import dispatch.main
import hosting.vigil
from controller.settings import WorkerSettings
from controller.shell import Worker
from dispatch.settings import DispatchSettings
from gpu_stages.stub import StubRuntime
from tests.support.wait import until

READY_S = 60
LOOK_S = 0.3
DISPATCH_LIMITS = {"refresh_ms": 200, "lease_ms": 1_500, "sweep_ms": 1_000}
WORKER_LIMITS = {
    "beat_ms": 200,
    "ownership_poll_ms": 200,
    "reservation_ms": 3_000,
    "reading.maintain_ms": 200,
}


@dataclass(slots=True)
class Role:
    """One role. `task` is its `serve`."""

    url: str
    task: asyncio.Task[None]
    stop: Callable[[], None]
    worker: Worker | None = None

    async def get(self, path: str) -> httpx.Response:
        async with httpx.AsyncClient(base_url=self.url, timeout=20) as http:
            return await http.get(path)

    async def ready(self) -> bool:
        """Whether it answers so; raises what ended it."""
        if self.task.done():
            self.task.result()
        try:
            return (await self.get("/readyz")).status_code == 200
        except httpx.TransportError:
            return False

    async def faults(self) -> set[str]:
        """What its metrics say is wrong around it."""
        start = "dhsched_surroundings_faults{"
        lines = [one for one in (await self.get("/metrics")).text.splitlines() if start in one]
        return {one.split('"')[1] for one in lines if one.endswith(" 1.0")}

    async def ended(self, timeout_s: float = 60) -> Exception:
        """What ended it."""
        await asyncio.wait({self.task}, timeout=timeout_s)
        assert self.task.done(), "it goes on"
        error = self.task.exception()
        assert isinstance(error, Exception), "it ended in good order"
        return error

    async def die(self) -> None:
        """Gone at once, without a goodbye to the store."""
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


@dataclass(slots=True)
class RolesHere:
    """Starts roles on one broker and one store."""

    kafka: str
    store: str
    group: str = "dhsched.workers"
    roles: list[Role] = field(default_factory=list)

    async def worker(self, node: str, **settings: Any) -> Role:
        """A worker that is ready. Raises StartFailed."""
        given = WorkerSettings(
            kafka=self.kafka,
            store=self.store,
            group=self.group,
            node=node,
            limits=WORKER_LIMITS,
            **settings,
        )
        begun: asyncio.Future[tuple[int, Worker]] = asyncio.get_running_loop().create_future()
        serving = controller.main.serve(given, lambda *made: begun.set_result(made))
        task = asyncio.create_task(serving)
        await asyncio.wait({task, begun}, return_when=asyncio.FIRST_COMPLETED)
        if not begun.done():
            task.result()
        port, worker = begun.result()
        role = Role(f"http://127.0.0.1:{port}", task, worker.stop, worker)
        self.roles.append(role)
        await until(role.ready, timeout_s=READY_S, what=f"worker {node} being ready")
        return role

    async def dispatch(self, **settings: Any) -> Role:
        """A replica that is ready. Raises StartFailed."""
        given = DispatchSettings(
            kafka=self.kafka, store=self.store, port=0, limits=DISPATCH_LIMITS, **settings
        )
        begun: asyncio.Future[tuple[int, asyncio.Event]]
        begun = asyncio.get_running_loop().create_future()
        serving = dispatch.main.serve(given, lambda *made: begun.set_result(made))
        task = asyncio.create_task(serving)
        await asyncio.wait({task, begun}, return_when=asyncio.FIRST_COMPLETED)
        if not begun.done():
            task.result()
        port, stop = begun.result()
        role = Role(f"http://127.0.0.1:{port}", task, stop.set)
        self.roles.append(role)
        await until(role.ready, timeout_s=READY_S, what="dispatch being ready")
        return role

    async def close(self) -> None:
        for role in self.roles:
            await role.die()


@asynccontextmanager
async def roles_here(
    monkeypatch: pytest.MonkeyPatch, kafka: str, folder: Path, group: str
) -> AsyncIterator[RolesHere]:
    """Everything that was started ends with the block."""

    def stub(settings: WorkerSettings) -> StubRuntime:
        return StubRuntime(live_slots=settings.capacity, ms_per_character=4)

    monkeypatch.setattr(controller.main, "_runtime", stub)
    monkeypatch.setattr(hosting.vigil, "LOOK_S", LOOK_S)
    made = RolesHere(kafka, f"lmdb://{folder}/store?map_gib=1&sync=off", group)
    try:
        yield made
    finally:
        await made.close()
