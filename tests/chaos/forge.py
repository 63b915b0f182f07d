"""Starts the processes of a run, each a fork of one that has imported everything already.

Importing costs a process three seconds of a core, and a run starts a process every few seconds. A
fork shares nothing with its siblings but what was imported: the forge opens no file, socket, store
or thread of theirs, and each child goes on as the production command in a session of its own.

`python -m tests.chaos.forge` reads one spec per line and answers "begun PID"; when that one is gone
it says "ended PID STATUS".
"""

import asyncio
import contextlib
import ctypes
import importlib
import os
import selectors
import signal
import sys
from pathlib import Path

PR_SET_PDEATHSIG = 1
IMPORTS = (
    "controller.main",
    "dispatch.main",
    "dhsched.cli",
    "ownership.lmdb_store",
    "tests.chaos.journal",
    "tests.chaos.media",
    "tests.chaos.process",
    "tests.sim.ablations",
    "tests.sim.spies",
)


class ForgedProcess:
    """What `asyncio.subprocess.Process` is to its user, for a grandchild."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._ended = asyncio.Event()

    def send_signal(self, number: int) -> None:
        # The forge buries it only after it told us, so the number is still its own.
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    async def wait(self) -> int:
        await self._ended.wait()
        assert self.returncode is not None
        return self.returncode

    def ended(self, status: int) -> None:
        self.returncode = status
        self._ended.set()


class Forge:
    """The harness' side."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._begun: asyncio.Queue[ForgedProcess] = asyncio.Queue()
        self._known: dict[int, ForgedProcess] = {}
        self._asking = asyncio.Lock()

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.chaos.forge",
            str(os.getpid()),
            cwd=self._root,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        self._reading = asyncio.create_task(self._read())

    async def begin(self, spec: str) -> ForgedProcess:
        """A new process; raises RuntimeError when the forge is gone."""
        process = self._process
        if process is None or process.stdin is None:
            raise RuntimeError("the forge was not started")
        async with self._asking:
            process.stdin.write(spec.encode() + b"\n")
            await process.stdin.drain()
            return await asyncio.wait_for(self._begun.get(), 120.0)

    async def close(self) -> None:
        """Every process of it is gone by now, or ends with it."""
        process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            process.stdin.close()
            await process.wait()
        if self._reading is not None:
            await self._reading

    async def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            what, pid, *status = line.decode().split()
            if what == "begun":
                one = self._known[int(pid)] = ForgedProcess(int(pid))
                self._begun.put_nowait(one)
            else:
                self._known.pop(int(pid)).ended(int(status[0]))


# -- the forge itself ----------------------------------------------------------------------------


def main() -> None:
    """Until its input ends; whoever it started ends with it."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(sys.argv[1]):
        sys.exit("the harness is gone")
    _import_everything()
    wake, woken = os.pipe()
    os.set_blocking(woken, False)
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(woken)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    selector = selectors.DefaultSelector()
    selector.register(0, selectors.EVENT_READ)
    selector.register(wake, selectors.EVENT_READ)
    rest = b""
    while True:
        for key, _ in selector.select():
            if key.fd == wake:
                with contextlib.suppress(BlockingIOError):
                    os.read(wake, 4_096)
                continue
            data = os.read(0, 65_536)
            if not data:
                return
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                _begin(line.decode(), (wake, woken))
        _bury()


def _import_everything() -> None:
    for name in IMPORTS:
        importlib.import_module(name)


def _begin(spec: str, pipes: tuple[int, int]) -> None:
    parent = os.getpid()
    pid = os.fork()
    if pid:
        _tell(f"begun {pid}")
        return
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for one in pipes:
            os.close(one)
        from tests.chaos.process import run

        run(spec, parent)
    finally:
        os._exit(70)  # `run` ends the process itself


def _bury() -> None:
    """Told first, buried then: as long as the harness does not know, the number is not reused."""
    while True:
        try:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if found is None:
            return
        killed = found.si_code in (os.CLD_KILLED, os.CLD_DUMPED)
        _tell(f"ended {found.si_pid} {-found.si_status if killed else found.si_status}")
        os.waitpid(found.si_pid, 0)


def _tell(line: str) -> None:
    os.write(1, f"{line}\n".encode())


if __name__ == "__main__":
    main()
