"""Kafka's own tools, to see the system as operators see it."""

import asyncio
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from tests.support.apache_kafka import ROOT, KafkaUnavailable

TOOLS = ROOT / "build" / "kafka" / "tools"
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
CONSOLE_PRODUCER = "org.apache.kafka.tools.ConsoleProducer"


@dataclass(frozen=True, slots=True)
class Described:
    """One row of `kafka-consumer-groups --describe`; None where it prints a dash."""

    partition: int
    offset: int | None
    log_end: int | None
    lag: int | None
    client_id: str


def tools() -> None:
    """Fetched with Maven unless they are there. Raises KafkaUnavailable."""
    folder = ROOT / "deploy" / "kafka"
    done = subprocess.run(
        ["sh", str(folder / "fetch.sh"), str(TOOLS), str(folder / "tools" / "pom.xml")],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise KafkaUnavailable(f"the tools cannot be fetched: {done.stderr.strip()[-1_000:]}")


async def describe_group(bootstrap: str, group: str, topic: str) -> dict[int, Described]:
    """What `kafka-consumer-groups --describe --group GROUP` prints of a topic."""
    text = await _run(GROUPS, "--bootstrap-server", bootstrap, "--describe", "--group", group)
    rows = [line.split() for line in text.splitlines() if line.split()[:2] == [group, topic]]
    assert rows, text
    return {int(row[2]): _row(row) for row in rows}


async def console_produce(bootstrap: str, topic: str, records: Sequence[tuple[str, str]]) -> None:
    """Keys and values through `kafka-console-producer`, that is, the Java client's producer."""
    await _run(
        CONSOLE_PRODUCER,
        *("--bootstrap-server", bootstrap, "--topic", topic),
        *("--property", "parse.key=true", "--property", "key.separator=\t"),
        stdin="".join(f"{key}\t{value}\n" for key, value in records),
    )


async def _run(tool: str, *arguments: str, stdin: str = "") -> str:
    """What the tool printed. AssertionError with it when the tool failed."""
    child = await asyncio.create_subprocess_exec(
        *("java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
        f"-Dlog4j2.configurationFile={ROOT / 'deploy' / 'kafka' / 'log4j2.properties'}",
        *("-cp", f"{TOOLS}/*", tool, *arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await child.communicate(stdin.encode())
    text = out.decode(errors="replace")
    assert child.returncode == 0, text
    return text


def _row(row: list[str]) -> Described:
    offset, end, lag = (None if cell == "-" else int(cell) for cell in row[3:6])
    return Described(int(row[2]), offset, end, lag, row[8] if len(row) > 8 else "-")
