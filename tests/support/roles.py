"""Roles of the system as real processes with stub stages, on a broker and a store."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests.support.apache_kafka import quiet_ports
from tests.support.stub_role import MS_PER_CHARACTER
from tests.support.wait import until

READY_S = 180
END_S = 120

CONFIG = """\
[dispatch.limits]
refresh_ms = 200
lease_ms = 1500
sweep_ms = 1000
[worker.limits]
beat_ms = 200
ownership_poll_ms = 200
reservation_ms = 3000
drain_ms = 15000
'reading.maintain_ms' = 200
"""


@dataclass(slots=True)
class Process:
    """One role. `log` holds what it wrote to standard error."""

    child: asyncio.subprocess.Process
    name: str
    url: str
    log: Path

    @property
    def said(self) -> str:
        return self.log.read_text(errors="replace")

    async def ready(self) -> bool:
        """Whether it answers so. AssertionError when it has ended."""
        assert self.child.returncode is None, f"{self.name} ended:\n{self.said}"
        with contextlib.suppress(httpx.TransportError):
            async with httpx.AsyncClient(timeout=5) as http:
                return (await http.get(f"{self.url}/readyz")).status_code == 200
        return False

    async def ended(self, timeout_s: float = END_S) -> int:
        """Its exit status, once it ends by itself or is told to."""
        try:
            async with asyncio.timeout(timeout_s):
                return await self.child.wait()
        except TimeoutError:
            raise AssertionError(f"{self.name} goes on:\n{self.said[-4_000:]}") from None

    def signal(self, number: signal.Signals) -> None:
        self.child.send_signal(number)

    async def stop(self) -> int:
        """SIGTERM, and the exit status."""
        self.signal(signal.SIGTERM)
        return await self.ended()


@dataclass(slots=True)
class Roles:
    """Starts roles on one broker and one store; ends those that are left."""

    kafka: str
    folder: Path
    group: str = "dhsched.workers"
    ms_per_character: int = 4
    processes: list[Process] = field(default_factory=list)

    @property
    def store(self) -> str:
        return f"lmdb://{self.folder}/store?map_gib=1&sync=off"

    async def dispatch(self, *flags: str, ready: bool = True) -> Process:
        return await self._start("dispatch", f"dispatch-{len(self.processes)}", flags, ready)

    async def worker(
        self, node: str, *flags: str, capacity: int = 8, ready: bool = True
    ) -> Process:
        given = ("--node", node, "--capacity", str(capacity), *flags)
        return await self._start("worker", f"worker-{node}-{len(self.processes)}", given, ready)

    async def _start(self, role: str, name: str, flags: tuple[str, ...], ready: bool) -> Process:
        config = self.folder / "dhsched.toml"
        if not config.exists():
            config.write_text(CONFIG)
        (port,) = quiet_ports(1)
        log = self.folder / f"{name}.log"
        with log.open("wb") as file:
            child = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "tests.support.stub_role", role, "--port", str(port)),
                *("--kafka", self.kafka, "--store", self.store, "--config", str(config), *flags),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env={
                    **os.environ,
                    "DHSCHED_GROUP": self.group,
                    "DHSCHED_DIES_WITH_PARENT": str(os.getpid()),
                    MS_PER_CHARACTER: str(self.ms_per_character),
                },
            )
        process = Process(child, name, f"http://127.0.0.1:{port}", log)
        self.processes.append(process)
        if ready:
            await until(process.ready, timeout_s=READY_S, what=f"{name} being ready")
        return process

    async def cli(self, *words: str, status: int = 0) -> Any:
        """What `dhsched WORDS --json` printed."""
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "dhsched", *words, "--json"),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await child.communicate()
        assert child.returncode == status, (child.returncode, out.decode(), err.decode())
        return json.loads(out or err)

    async def close(self) -> None:
        for process in self.processes:
            if process.child.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.signal(signal.SIGCONT)
                    process.signal(signal.SIGKILL)
                await process.child.wait()


@contextlib.asynccontextmanager
async def running_roles(kafka: str, folder: Path, **settings: Any) -> AsyncIterator[Roles]:
    """Roles that are ended, by force, with the block; its failure shows their logs."""
    roles = Roles(kafka, folder, **settings)
    try:
        yield roles
    except BaseException:
        for process in roles.processes:
            print(f"--- {process.name}\n{process.said[-6_000:]}")
        raise
    finally:
        await roles.close()
