"""How a bench and the processes that it measures talk: one JSON object a line, in and out.

A process is stopped (SIGSTOP) while others are measured and while records are produced, so that
each side of a comparison begins with the same backlog and has the machine to itself.
"""

import asyncio
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
ANSWER_S_MAX = 120.0
STOPPED_MS_MAX = 90_000
"""How long a stopped process stays a member of its consumer group."""


def tell(answer: dict[str, Any]) -> None:
    """Answer the bench."""
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


class Inbox:
    """What the bench says, for a process that has other things to do."""

    def __init__(self) -> None:
        self._orders: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.ended = False

    @classmethod
    async def open(cls) -> "Inbox":
        inbox = cls()
        reader = asyncio.StreamReader(limit=1 << 24)
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
        )
        inbox._reading = asyncio.ensure_future(inbox._read(reader))
        return inbox

    async def _read(self, reader: asyncio.StreamReader) -> None:
        while line := await reader.readline():
            self._orders.put_nowait(json.loads(line))
        self.ended = True
        self._orders.put_nowait({})

    def take(self) -> dict[str, Any] | None:
        """The next order, None while there is none."""
        return None if self._orders.empty() else self._orders.get_nowait()

    async def next(self) -> dict[str, Any] | None:
        """The next order, None when there will be none."""
        order = await self._orders.get()
        return order or None


class Peer:
    """A process that is measured."""

    def __init__(self, *command: str, python: str = sys.executable) -> None:
        self.process = subprocess.Popen(
            [python, "-m", *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            text=True,
        )
        self.hello = self.answer()

    def answer(self) -> dict[str, Any]:
        """The next answer. Raises RuntimeError when the process ended or said nothing in time."""
        assert self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], ANSWER_S_MAX)[0]:
            raise RuntimeError(f"{self.process.args} says nothing")
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.process.args} ended with {self.process.wait()}")
        return dict(json.loads(line))

    def order(self, **order: Any) -> None:
        """Ask, and do not wait."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()

    def ask(self, **order: Any) -> dict[str, Any]:
        """The answer to a question."""
        self.order(**order)
        return self.answer()

    def stop(self) -> None:
        """Let it do nothing."""
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> float:
        """Let it work again; the time when (CLOCK_MONOTONIC)."""
        at_s = time.monotonic()
        self.process.send_signal(signal.SIGCONT)
        return at_s

    def cpu_s(self) -> float:
        """Processor time that all its threads have used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def kill(self) -> float:
        """As a crash does; the time when."""
        at_s = time.monotonic()
        self.process.kill()
        self.process.wait()
        return at_s

    def close(self) -> None:
        """Ends it."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()
