"""Child processes of one-machine mode: started, watched and ended together, logs kept in files."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final

from dhsched.output import CommandFailed

PARENT_ENV: Final = "DHSCHED_DIES_WITH_PARENT"
STOP_S: Final = 15.0
KILL_S: Final = 5.0
TAIL_LINES: Final = 15


@dataclass(slots=True)
class Child:
    """A process of ours. In a session of its own, so that a Ctrl-C in the terminal reaches only us
    and the children are ended in order.
    """

    name: str
    process: asyncio.subprocess.Process
    log_path: Path
    log: IO[bytes] = field(repr=False)

    def tail(self) -> str:
        """The last lines of its log."""
        lines = self.log_path.read_text(errors="replace").splitlines()
        return "\n".join(lines[-TAIL_LINES:])


class Children:
    """Starts children and ends them in the reverse order, whatever happens."""

    def __init__(self, log_dir: Path) -> None:
        self._log_dir = log_dir
        self._children: list[Child] = []

    async def start(
        self, name: str, command: Sequence[str], env: Mapping[str, str] | None = None
    ) -> Child:
        """Run `dhsched <command>` as a child with the kernel's promise to end it with us."""
        log_path = self._log_dir / f"{name}.log"
        log = log_path.open("wb")
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "dhsched",
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, **(env or {}), PARENT_ENV: str(os.getpid())},
            start_new_session=True,
        )
        child = Child(name, process, log_path, log)
        self._children.append(child)
        return child

    def named(self, name: str) -> Child:
        """The child of that name."""
        return next(child for child in self._children if child.name == name)

    async def first_to_end(self) -> Child:
        """Wait until any child ends; none should before it is told to."""
        waits = {asyncio.create_task(child.process.wait()): child for child in self._children}
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waits:
                task.cancel()
        return waits[done.pop()]

    def raise_if_ended(self) -> None:
        """CommandFailed with the log's end when a child is gone."""
        for child in self._children:
            if child.process.returncode is not None:
                raise ended(child)

    async def stop(self) -> None:
        """End all of them: asked first, killed after a deadline."""
        for child in reversed(self._children):
            await _stop(child)
            child.log.close()
        self._children.clear()


def ended(child: Child) -> CommandFailed:
    """What to say of a child that ended by itself."""
    return CommandFailed(
        f"the {child.name} ended with status {child.process.returncode}; the end of "
        f"{child.log_path}:\n{child.tail()}"
    )


async def _stop(child: Child) -> None:
    if child.process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        child.process.terminate()
    try:
        async with asyncio.timeout(STOP_S):
            await child.process.wait()
    except TimeoutError:
        # Its own children carry the kernel's promise to end with it.
        with contextlib.suppress(ProcessLookupError):
            child.process.send_signal(signal.SIGKILL)
        async with asyncio.timeout(KILL_S):
            await child.process.wait()
