"""The process of one stage: `python -m gpu_stages.stage_main --control-fd N`.

Always a fresh interpreter, never a fork, so it starts without its parent's threads, locks and GPU
context. Everything it needs comes down as inherited descriptors and one Plan on the control socket.
It ends when it is told to, when the control socket ends, and by PR_SET_PDEATHSIG when the thread
that started it is gone; SIGINT is ignored, since what Ctrl-C means is the worker's to decide.
SIGUSR1 writes the state to stderr, SIGUSR2 every thread's stack.
"""

import argparse
import faulthandler
import importlib
import importlib.util
import json
import os
import resource
import signal
import socket
import sys
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Final

from gpu_stages.control import (
    ControlMessage,
    Dump,
    Dumped,
    LineReader,
    LoadFailed,
    Ping,
    Plan,
    Pong,
    Ready,
    SegmentNotMade,
    Stop,
    encode_line,
)
from gpu_stages.lifeline import follow_parent
from gpu_stages.live_table import LiveTableReader
from gpu_stages.rings import open_consumer, open_producer
from gpu_stages.stage import Stage
from gpu_stages.stage_loop import Ends, StageKeepsFailing, StageLoop

EXIT_LOAD_FAILED: Final = 3
EXIT_KEEPS_FAILING: Final = 4
UNSENT_BYTES_MAX: Final = 1 << 20


class BadStageClass(Exception):
    """The configured class does not exist or is not a Stage."""


def load_class(class_path: str) -> type[Stage]:
    """The Stage class named by `module:Class` or `path/to/file.py:Class`. Raises BadStageClass."""
    module_name, _, class_name = class_path.rpartition(":")
    if not module_name or not class_name:
        raise BadStageClass(f"{class_path!r} is not `module:Class` or `file.py:Class`")
    try:
        module = _load_module(module_name)
    except ImportError as error:
        raise BadStageClass(f"{class_path}: {error}") from error
    found = getattr(module, class_name, None)
    if not (isinstance(found, type) and issubclass(found, Stage)):
        raise BadStageClass(f"{class_path}: {class_name} is not a class derived from Stage")
    return found


def _load_module(name: str) -> ModuleType:
    if not name.endswith(".py"):
        return importlib.import_module(name)
    spec = importlib.util.spec_from_file_location(Path(name).stem, name)
    if spec is None or spec.loader is None or not Path(name).is_file():
        raise ImportError(f"no file {name}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


class ControlEnd:
    """The stage's end of the control socket: never blocks the loop, never grows without bound."""

    def __init__(self, fd: int) -> None:
        self._socket = socket.socket(fileno=fd)
        self._reader = LineReader()
        self._unsent = b""
        self._early: list[ControlMessage] = []

    def fileno(self) -> int:
        """For select."""
        return self._socket.fileno()

    def wait_plan(self) -> Plan:
        """The first message."""
        self._socket.setblocking(True)
        while True:
            messages = self._reader.feed(self._read_some())
            if not messages:
                continue
            if not isinstance(messages[0], Plan):
                raise SystemExit(f"the first message was {messages[0]}, not a Plan")
            self._early = messages[1:]
            self._socket.setblocking(False)
            return messages[0]

    def _read_some(self) -> bytes:
        chunk = self._socket.recv(1 << 16)
        if not chunk:
            raise SystemExit(0)  # the supervisor is gone
        return chunk

    def receive(self) -> list[ControlMessage]:
        """What has come in. Ends the process when the supervisor is gone."""
        self._flush()
        early, self._early = self._early, []
        try:
            return early + self._reader.feed(self._read_some())
        except BlockingIOError:
            return early

    def send(self, message: ControlMessage) -> None:
        """Send, or keep until the socket takes it."""
        self._unsent += encode_line(message)
        self._flush()
        if len(self._unsent) > UNSENT_BYTES_MAX:
            raise SystemExit("the supervisor does not read")

    def _flush(self) -> None:
        try:
            while self._unsent:
                self._unsent = self._unsent[self._socket.send(self._unsent) :]
        except BlockingIOError:
            return
        except (BrokenPipeError, ConnectionResetError):
            raise SystemExit(0) from None


def _follow_parent(plan: Plan) -> None:
    """Die with the parent, also when it died before this call."""
    if not follow_parent(plan.parent_pid, signal.SIGKILL):
        raise SystemExit(0)


def _be_nice(increment: int) -> None:
    """A priority that this user may not have is a warning: the stage works without."""
    try:
        os.nice(increment)
    except PermissionError as error:
        print(f"nice {increment} was refused: {error}", file=sys.stderr, flush=True)


def _low_fd(fd: int) -> int:
    """The same descriptor under the lowest free number: select takes only small ones."""
    low = os.dup(fd)
    os.close(fd)
    return low


def _low_handle(handle: Mapping[str, object]) -> dict[str, object]:
    return {
        name: _low_fd(value) if name.endswith("_fd") and isinstance(value, int) else value
        for name, value in handle.items()
    }


def _open_ends(plan: Plan, control_fd: int, stage: Stage) -> Ends:
    """Attach before loading, so that what is sent meanwhile waits in the ring."""
    takes = plan.incoming["kind"] == "cuda" and stage.accepts_device_parts(
        plan.settings, plan.device
    )
    driver, why_not = None, ""
    if takes or plan.outgoing["kind"] == "cuda":
        from gpu_stages.cuda_driver import NoCuda, open_driver

        try:
            driver = open_driver(plan.device)
        except NoCuda as error:
            why_not = str(error)
            print(f"frames go through host memory: {why_not}", file=sys.stderr, flush=True)
    return Ends(
        incoming=open_consumer(_low_handle(plan.incoming), driver if takes else None, why_not),
        outgoing=open_producer(_low_handle(plan.outgoing), driver=driver),
        table=LiveTableReader(_low_fd(plan.table_fd)),
        bell_fd=_low_fd(plan.bell_fd),
        control_fd=control_fd,
    )


def _load_stage(plan: Plan, stage: Stage) -> None:
    if plan.batch_max is not None:
        stage.batch_max = plan.batch_max
    if plan.wait_us_max is not None:
        stage.wait_us_max = plan.wait_us_max
    stage.load(plan.settings, plan.device)
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(plan.threads)


def _serve(plan: Plan, control: ControlEnd, ends: Ends, stage: Stage, load_ms: int) -> None:
    def report(failed: SegmentNotMade) -> None:
        control.send(failed)

    def on_control() -> None:
        for message in control.receive():
            match message:
                case Ping(number):
                    control.send(Pong(number, loop.stats()))
                case Dump():
                    control.send(Dumped(loop.dump()))
                case Stop():
                    loop.stop()
                case _:
                    raise SystemExit(f"a stage does not expect {message}")

    def dump_to_stderr(_signal: int, _frame: object) -> None:
        print(json.dumps(loop.dump()), file=sys.stderr, flush=True)

    loop = StageLoop(stage, ends, on_control, report)
    signal.signal(signal.SIGUSR1, dump_to_stderr)
    control.send(Ready(load_ms, loop.wants_ticks))
    on_control()  # what came together with the plan
    loop.run()


def main() -> int:
    """Run one stage; the exit status says how it ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR2)
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--control-fd", type=int, required=True)
    control = ControlEnd(_low_fd(arguments.parse_args().control_fd))
    plan = control.wait_plan()
    _follow_parent(plan)
    _be_nice(plan.nice)
    started = time.monotonic()
    try:
        stage = load_class(plan.class_path)()
        ends = _open_ends(plan, control.fileno(), stage)
        _load_stage(plan, stage)
    except Exception as error:
        traceback.print_exc()
        control.send(LoadFailed(f"{type(error).__name__}: {error}"))
        return EXIT_LOAD_FAILED
    try:
        _serve(plan, control, ends, stage, round((time.monotonic() - started) * 1000))
    except StageKeepsFailing as error:
        print(f"giving up: {error}", file=sys.stderr, flush=True)
        return EXIT_KEEPS_FAILING
    return 0


if __name__ == "__main__":
    sys.exit(main())
