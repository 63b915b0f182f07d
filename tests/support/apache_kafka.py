"""One node of Apache Kafka (KRaft) as a process, from the jars that deploy/kafka names."""

import base64
import ctypes
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from tests.support.kafka_ready import cluster_id

ROOT = Path(__file__).parents[2]
LIBS = ROOT / "build" / "kafka" / "libs"
JAVA_MIN = 17
START_TIMEOUT_S = 180.0
STOP_TIMEOUT_S = 15.0
HEAP = "-Xmx512m"

_CONFIG = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller_port}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}{listeners}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}{advertised}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT{protocols}
log.dirs={data}
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
auto.create.topics.enable=false
log.cleaner.dedupe.buffer.size=16777216
log.retention.check.interval.ms=1000
log.initial.task.delay.ms=500
num.network.threads=2
num.io.threads=2
"""


def _listeners(more: Mapping[int, int]) -> dict[str, str]:
    names = {port: f"MORE{at}" for at, port in enumerate(more)}
    return {
        "listeners": "".join(f",{names[port]}://127.0.0.1:{port}" for port in more),
        "advertised": "".join(f",{names[port]}://127.0.0.1:{at}" for port, at in more.items()),
        "protocols": "".join(f",{name}:PLAINTEXT" for name in names.values()),
    }


class KafkaUnavailable(Exception):
    """Apache Kafka cannot be run here; the message says why."""


class ApacheKafka:
    """A broker with a fresh data folder. `stop` and `start` again keep port and data.

    The kernel kills it when the thread that started it ends, so start it from the main thread.
    `more` are further listeners, each a port and the port of this host that it tells its clients
    to connect to, for a proxy in between.
    """

    def __init__(self, port: int = 0, *, more: Mapping[int, int] | None = None) -> None:
        self._libs = jars()
        self._folder = Path(tempfile.mkdtemp(prefix="dhsched-kafka-"))
        controller_port, own = quiet_ports(2)
        self.port = port or own
        self.bootstrap = f"127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None
        self._config = self._folder / "server.properties"
        self._config.write_text(
            _CONFIG.format(
                port=self.port,
                controller_port=controller_port,
                data=self._folder / "data",
                **_listeners(more or {}),
            )
        )
        try:
            self._format()
            self.start()
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        """Raises KafkaUnavailable while it is stopped."""
        if self._process is None:
            raise KafkaUnavailable("the broker is stopped")
        return self._process.pid

    def start(self) -> None:
        """Returns when the broker answers a metadata request. Raises KafkaUnavailable."""
        self.launch()
        until_s = time.monotonic() + START_TIMEOUT_S
        while not self.answers():
            if time.monotonic() > until_s:
                raise KafkaUnavailable(f"Kafka does not answer:\n{self.last_output()}")
            time.sleep(0.1)

    def launch(self) -> None:
        """Starts the process and does not wait for it."""
        with (self._folder / "output.log").open("ab") as output:
            self._process = subprocess.Popen(
                self._java("kafka.Kafka", str(self._config)),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                preexec_fn=_end_with_parent,
            )

    def answers(self) -> bool:
        """Whether it answers a metadata request now. Raises KafkaUnavailable when it has ended."""
        if self._process is None or self._process.poll() is not None:
            raise KafkaUnavailable(f"Kafka has ended:\n{self.last_output()}")
        return cluster_id(self.bootstrap) is not None

    def stop(self, *, kill: bool = False) -> None:
        """Ends the process and waits for it; the data stays. With `kill` at once, as a crash."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def close(self) -> None:
        """Ends it for good: the data is removed."""
        self.stop(kill=True)
        shutil.rmtree(self._folder, ignore_errors=True)

    def last_output(self) -> str:
        """The end of what the broker printed."""
        log = self._folder / "output.log"
        return log.read_text(errors="replace")[-3_000:] if log.exists() else ""

    def __enter__(self) -> "ApacheKafka":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _format(self) -> None:
        # An "A" in front, so that no name is taken for an option: base64url may begin with "-".
        name = "A" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")[1:]
        done = subprocess.run(
            self._java("kafka.tools.StorageTool", "format", "-t", name, "-c", str(self._config)),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise KafkaUnavailable(f"the storage cannot be formatted:\n{done.stdout}{done.stderr}")

    def _java(self, *command: str) -> list[str]:
        return [
            "java",
            HEAP,
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            f"-Dlog4j2.configurationFile={ROOT / 'deploy' / 'kafka' / 'log4j2.properties'}",
            "-cp",
            f"{self._libs}/*",
            *command,
        ]


def jars() -> Path:
    """The folder of jars, fetched with Maven unless it is complete. Raises KafkaUnavailable."""
    version = java_version()
    if version < JAVA_MIN:
        raise KafkaUnavailable(
            f"Java {JAVA_MIN} or newer is needed, there is " + (str(version) if version else "none")
        )
    done = subprocess.run(
        ["sh", str(ROOT / "deploy" / "kafka" / "fetch.sh"), str(LIBS)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise KafkaUnavailable(f"the jars cannot be fetched: {done.stderr.strip()[-1_000:]}")
    return LIBS


def java_version() -> int:
    """The major version of the `java` on the PATH, 0 when there is none."""
    try:
        done = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False)
    except OSError:
        return 0
    found = re.search(r'version "(\d+)', done.stderr)
    return int(found.group(1)) if found else 0


_given: set[int] = set()


def quiet_ports(count: int) -> list[int]:
    """Free ports below those that the kernel gives to outgoing connections, so that they are still
    free after a restart, and nobody who knocks at them meanwhile is connected to himself. None is
    given twice: who got it may not listen yet."""
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    found: list[int] = []
    while len(found) < count:
        port = random.randrange(max(1_024, first - 16_384), first)
        with socket.socket() as probe:
            # Of a broker that ended, connections may still be closing: that is no reason against.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in _given:
            _given.add(port)
            found.append(port)
    return found


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


_libc = ctypes.CDLL(None)


def _end_with_parent() -> None:
    _libc.prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
