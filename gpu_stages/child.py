"""One stage process as its supervisor holds it: descriptors, stderr tail, and the wait for its end.

Everything runs on the event loop by readiness: the control socket, the pipe of stdout and stderr,
and the pidfd that says that the process is over. No thread, no signal handler, no polling. The
parent-death signal is tied to the *thread* that starts a child, so start from a thread that lives
as long as the stages should; with `asyncio.run` in the main thread that is so.
"""

import asyncio
import logging
import os
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from gpu_stages.control import BadControlLine, ControlMessage, LineReader, Plan, encode_line

TAIL_LINES_MAX: Final = 40
_LINE_CHARS_MAX: Final = 2000
_READ_BYTES: Final = 1 << 16
_THREAD_VARIABLES: Final = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)

log = logging.getLogger(__name__)


def stage_environment(threads: int) -> dict[str, str]:
    """The parent's environment, the modules it can import, and the thread counts of this stage."""
    environment = dict(os.environ)
    environment["PYTHONPATH"] = os.pathsep.join(path or os.getcwd() for path in sys.path)
    environment["PYTHONUNBUFFERED"] = "1"
    environment.update(dict.fromkeys(_THREAD_VARIABLES, str(threads)))
    return environment


class StageChild:
    """A running stage process. `ended` is set with the reason when it is over and reaped."""

    def __init__(
        self, plan: Plan, pass_fds: Sequence[int], on_message: Callable[[ControlMessage], None]
    ) -> None:
        """Starts the process. Raises `OSError` when it cannot be started."""
        self.stage = plan.stage
        self.tail: deque[str] = deque(maxlen=TAIL_LINES_MAX)
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[str] = self._loop.create_future()
        self._on_message = on_message
        self._lines = LineReader()
        self._unfinished = b""
        self._why = ""
        ours, theirs = socket.socketpair()
        output, output_of_child = os.pipe2(os.O_CLOEXEC)
        try:
            self._process = self._spawn(plan, (*pass_fds, theirs.fileno()), output_of_child)
        except BaseException:
            ours.close()
            os.close(output)
            raise
        finally:
            theirs.close()
            os.close(output_of_child)
        self.pid = self._process.pid
        self._pidfd = os.pidfd_open(self.pid)
        self._output = output
        self._socket = ours
        os.set_blocking(output, False)
        with suppress(OSError):  # it may be over already: the pidfd will say so
            ours.sendall(encode_line(plan))
        ours.setblocking(False)
        self._loop.add_reader(ours, self._read_control)
        self._loop.add_reader(output, self._read_output)
        self._loop.add_reader(self._pidfd, self._reap)

    @staticmethod
    def _spawn(plan: Plan, pass_fds: Sequence[int], output: int) -> "subprocess.Popen[bytes]":
        control_fd = pass_fds[-1]
        return subprocess.Popen(
            [sys.executable, "-m", "gpu_stages.stage_main", "--control-fd", str(control_fd)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=pass_fds,
            env=stage_environment(plan.threads),
            process_group=0,
        )

    def send(self, message: ControlMessage) -> bool:
        """Say something; False when the process does not take it (hung, or gone)."""
        line = encode_line(message)
        try:
            return self._socket.send(line) == len(line)
        except OSError:
            return False

    def kill(self, why: str, signal_number: int = signal.SIGKILL) -> None:
        """Signal the process; `why` becomes the reason of its end."""
        self._why = self._why or why
        if not self.ended.done():
            with suppress(ProcessLookupError):
                self._process.send_signal(signal_number)

    def _read_control(self) -> None:
        try:
            chunk = self._socket.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        if not chunk:
            self._loop.remove_reader(self._socket)
            return
        try:
            messages = self._lines.feed(chunk)
        except BadControlLine as error:
            self.kill(f"broken control stream: {error}")
            return
        for message in messages:
            self._on_message(message)

    def _read_output(self) -> None:
        try:
            chunk = os.read(self._output, _READ_BYTES)
        except BlockingIOError:
            return
        if not chunk:
            self._loop.remove_reader(self._output)
            return
        *lines, rest = (self._unfinished + chunk).split(b"\n")
        if len(rest) > _LINE_CHARS_MAX:
            lines, rest = [*lines, rest], b""
        self._unfinished = rest
        for line in lines:
            self._keep_line(line)

    def _keep_line(self, line: bytes) -> None:
        text = line.decode(errors="replace")[:_LINE_CHARS_MAX]
        if text.strip():
            self.tail.append(text)
            log.info("%s[%d]: %s", self.stage, self.pid, text)

    def _reap(self) -> None:
        status = self._process.wait()
        self._read_control()
        self._read_output()
        if self._unfinished:
            self._keep_line(self._unfinished)
        self._loop.remove_reader(self._pidfd)
        self._loop.remove_reader(self._output)
        self._loop.remove_reader(self._socket)
        os.close(self._pidfd)
        os.close(self._output)
        self._socket.close()
        if not self.ended.done():
            self.ended.set_result(self._why or _describe(status))


def _describe(status: int) -> str:
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"killed by signal {-status}"
