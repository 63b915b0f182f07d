"""Everything of DHSched on one machine: broker, store, Dispatch, workers with their stages."""

import asyncio
import contextlib
import shutil
import socket
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self, cast

from dhsched.client import DispatchClient
from dhsched.output import CommandFailed
from dhsched.processes import Children, ended
from stream.embedded import EmbeddedBroker, EmbeddedBrokerFailed

READY_S: Final = 90.0
POLL_S: Final = 0.1
HOST: Final = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class OneMachineSettings:
    """What to start. No `kafka` means the embedded broker, no `store` an LMDB of this run."""

    kafka: str = ""
    store: str = ""
    port: int = 8080
    workers: int = 1
    capacity: int = 8
    worker_flags: tuple[str, ...] = ()
    dispatch_flags: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict[str, str])


class OneMachine:
    """`async with OneMachine(settings, on_step) as machine`: up inside, all gone after.

    `on_step(name, detail)` is told what is being waited for and, with detail "ready", what came up.
    Raises CommandFailed with what to do when a part cannot start. Files of the run (logs, and the
    store unless one was named) lie in `run_dir`; they are removed at the end if all went well.
    """

    def __init__(
        self, settings: OneMachineSettings, on_step: Callable[[str, str], None] | None = None
    ) -> None:
        self._settings = settings
        self._on_step = on_step or _say_nothing
        self._broker: EmbeddedBroker | None = None
        self._failed = False
        self.run_dir = Path(tempfile.mkdtemp(prefix="dhsched-"))
        self.children = Children(self.run_dir)
        self.kafka = settings.kafka
        self.store = settings.store or f"lmdb://{self.run_dir / 'store'}"
        self.dispatch_url = f"http://{HOST}:{settings.port}"
        self._environment = dict(settings.environment)
        if settings.kafka and not settings.store:
            # A store of this run only: the group, which the broker remembers, must be as well.
            self._environment.setdefault("DHSCHED_GROUP", f"dhsched.workers.{self.run_dir.name}")

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            self._failed = True
            await self.stop()
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._failed = kind is not None and issubclass(kind, CommandFailed)
        await self.stop()

    async def _start(self) -> None:
        _refuse_taken_port(self._settings.port)
        if not self.kafka:
            self._on_step("broker", "starting the embedded broker")
            try:
                self._broker = await EmbeddedBroker.start()
            except EmbeddedBrokerFailed as error:
                raise CommandFailed(str(error)) from error
            self.kafka = self._broker.bootstrap
        self._on_step("broker", "ready")
        await self._start_dispatch()
        for number in range(1, self._settings.workers + 1):
            await self.start_worker(f"local-{number}")
        await self._wait_for_workers()

    async def _start_dispatch(self) -> None:
        self._on_step("dispatch", "starting")
        flags = ("--host", HOST, "--port", str(self._settings.port), *self._settings.dispatch_flags)
        child = await self.children.start(
            "dispatch",
            ("dispatch", "--kafka", self.kafka, "--store", self.store, *flags),
            self._environment,
        )
        async with DispatchClient(self.dispatch_url) as client:
            deadline_s = time.monotonic() + READY_S
            while not await client.is_ready():
                if child.process.returncode is not None:
                    raise ended(child)
                if time.monotonic() > deadline_s:
                    raise CommandFailed(
                        f"Dispatch was not ready within {READY_S:.0f} s; see {child.log_path}"
                    )
                await asyncio.sleep(POLL_S)
        self._on_step("dispatch", "ready")

    async def start_worker(self, node: str) -> None:
        """Start one more worker; it takes lives once its stages are up."""
        self._on_step(f"worker {node}", "starting its stages: speech, motion, render, encode")
        await self.children.start(
            f"worker-{node}",
            (
                "worker",
                "--kafka",
                self.kafka,
                "--store",
                self.store,
                "--node",
                node,
                "--capacity",
                str(self._settings.capacity),
                "--host",
                HOST,
                "--port",
                "0",
                *self._settings.worker_flags,
            ),
            self._environment,
        )

    async def _wait_for_workers(self) -> None:
        wanted = {f"local-{number}" for number in range(1, self._settings.workers + 1)}
        ready: set[str] = set()
        deadline_s = time.monotonic() + READY_S
        async with DispatchClient(self.dispatch_url) as client:
            while ready < wanted:
                self.children.raise_if_ended()
                if time.monotonic() > deadline_s:
                    missing = ", ".join(sorted(wanted - ready))
                    raise CommandFailed(
                        f"not ready within {READY_S:.0f} s: {missing}; logs: {self.run_dir}"
                    )
                for worker in cast(
                    "list[dict[str, str]]", (await client.get("/v1/workers"))["workers"]
                ):
                    node = worker["node"]
                    if node in wanted - ready and worker["state"] == "ready":
                        ready.add(node)
                        self._on_step(f"worker {node}", "ready")
                await asyncio.sleep(POLL_S)

    async def stop(self) -> None:
        """End all processes; safe to call twice."""
        await self.children.stop()
        if self._broker is not None:
            await self._broker.close()
            self._broker = None
        if not self._failed:
            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(self.run_dir)


def _say_nothing(name: str, detail: str) -> None:
    """For callers that show no progress."""


def _refuse_taken_port(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise CommandFailed(
                f"port {port} on {HOST} cannot be used ({error.strerror}); name another with --port"
            ) from error
