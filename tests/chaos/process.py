"""One production process, watched from inside; tests/chaos/forge.py starts it.

The process is `dhsched dispatch` or `dhsched worker` as it is. Only these differ: the stages are
the stub, the store writes the journal, the clock can be stepped, and what is asked, fed and sent is
written into a diary.
"""

import ctypes
import json
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class Spec:
    """What the harness says to a process. `weaken` names a weaker protocol, or is empty."""

    role: str
    name: str
    folder: str
    config: str
    ms_per_character: int
    capacity: int
    weaken: str = ""

    @property
    def diary(self) -> Path:
        return Path(self.folder) / f"{self.name}.diary"

    @property
    def levers(self) -> Path:
        return Path(self.folder) / f"{self.name}.levers"

    @property
    def port(self) -> Path:
        """Written when the process listens."""
        return Path(self.folder) / f"{self.name}.port"

    @property
    def log(self) -> Path:
        return Path(self.folder) / f"{self.name}.log"

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def run(given: str, parent: int) -> NoReturn:
    """In the child of a fork: go on as this process, and end as it would."""
    spec = Spec(**json.loads(given))
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    os.setsid()
    log = os.open(spec.log, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for number, place in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(number, place)
    os.close(log)
    os.close(nothing)
    status = 0
    try:
        _instrument(spec)
        from dhsched.cli import main as dhsched

        sys.argv = ["dhsched", spec.role, "--config", spec.config]
        dhsched()
    except SystemExit as error:
        status = _status(error)
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _status(error: SystemExit) -> int:
    """As the interpreter would: a text is printed and means 1."""
    if error.code is None or isinstance(error.code, int):
        return error.code or 0
    print(error.code, file=sys.stderr)
    return 1


def _instrument(spec: Spec) -> None:
    import hosting.connections
    from tests.chaos.diary import Diary
    from tests.chaos.journal import JournaledDatabase
    from tests.chaos.levers import Levers
    from tests.sim import spies
    from tests.sim.ablations import PROTOCOLS
    from tests.sim.loop import PROCESS

    diary, levers = Diary(spec.diary), Levers(spec.levers)
    PROCESS.set(SimpleNamespace(name=spec.name))  # type: ignore[arg-type]
    spies.RECORDER = diary  # type: ignore[assignment]
    spies.install()
    if spec.weaken:
        for place, attribute, new in PROTOCOLS[spec.weaken].replacements:
            setattr(place, attribute, new)

    open_database = hosting.connections.open_database

    async def open_journaled(url: str, rng: Any = None) -> Any:
        return JournaledDatabase(await open_database(url, rng), spec.name, diary, levers)

    hosting.connections.open_database = open_journaled  # type: ignore[assignment]
    if spec.role == "worker":
        _instrument_worker(spec, diary, levers)
    else:
        _instrument_dispatch(spec, levers)


def _instrument_worker(spec: Spec, diary: Any, levers: Any) -> None:
    import controller.main
    from tests.chaos.media import LoggedMedia, LoggedRuntime

    process = SimpleNamespace(name=spec.name)

    def runtime(*_: Any, **__: Any) -> LoggedRuntime:
        made = LoggedRuntime(
            diary,
            process,  # type: ignore[arg-type]
            late_s=0.0,
            live_slots=spec.capacity,
            ms_per_character=spec.ms_per_character,
        )
        made.levers = levers
        LoggedMedia.runtime = made
        return made

    controller.main.PipelineRuntime = runtime  # type: ignore[assignment,misc]
    controller.main.PacedMedia = LoggedMedia  # type: ignore[misc]
    controller.main.SystemClock = _stepped(levers)  # type: ignore[misc]
    controller.main.listen = _telling(controller.main.listen, spec.port)


def _instrument_dispatch(spec: Spec, levers: Any) -> None:
    import dispatch.main

    dispatch.main.SystemClock = _stepped(levers)  # type: ignore[misc]
    dispatch.main.listen = _telling(dispatch.main.listen, spec.port)


def _stepped(levers: Any) -> Any:
    from controller.clock import SystemClock
    from tests.chaos.levers import Lever

    class SteppedClock(SystemClock):
        """The wall clock can be stepped; the monotonic ones never jump."""

        def wall_ms(self) -> int:
            return time.time_ns() // 1_000_000 + levers.get(Lever.WALL_OFFSET_MS)

    return SteppedClock


def _telling(listen: Any, path: Path) -> Any:
    @contextmanager
    def telling(host: str, port: int, backlog: int) -> Generator[socket.socket]:
        with listen(host, port, backlog) as listener:
            new = path.with_suffix(".new")
            new.write_text(str(listener.getsockname()[1]))
            new.rename(path)
            yield listener

    return telling
