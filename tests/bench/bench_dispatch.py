"""CreateLive and PushText as a client sees them, beside the bare thing below each.

`rows()` starts what it needs: a broker, a store, one replica as a process, and workers that only
beat. `rows(base_url, kafka, store)` measures a service that runs; the rivals then use its broker
and a fresh store. Requests are made one after the other, rivals alternate with them, so that a
busy machine is as busy for both.

Against: CreateLive, one durable commit of as many keys to a bare store of the same kind. PushText,
one bare aiokafka produce of the same bytes with acks=all to the same topic.
"""

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from aiokafka import AIOKafkaProducer

from ownership.kv import Database, Transaction
from ownership.open import open_database
from ownership.workers import beat, register_worker
from schemas.store_values import LoadView, WorkerState, WorkerValue
from schemas.text_record import RecordKind, TextRecord, encode_text_record
from schemas.topics import TEXT_TOPIC
from stream.embedded import EmbeddedBroker

CREATES = int(os.environ.get("BENCH_CREATES", "300"))
PUSHES = int(os.environ.get("BENCH_PUSHES", "600"))
WARM_UP = 30
AT_ONCE = 16
KEYS_OF_A_CREATE = 7
TEXT = "A sentence of the length that people write. "
READY_S = 60.0
CAPACITY = 1_000


class Connection:
    """HTTP/1.1 over one kept socket: a client that costs little beside what it measures."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, base_url: str) -> Self:
        parts = urlsplit(base_url)
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return cls(reader, writer)

    async def ask(self, wanted: int, method: str, path: str, body: object = None) -> bytes:
        """The body of an answer with the wanted status. Raises RuntimeError for another."""
        content = b"" if body is None else json.dumps(body).encode()
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(content)}\r\n\r\n"
        )
        self._writer.write(head.encode() + content)
        lines = (await self._reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
        status = int(lines[0].split()[1])
        length = 0
        for line in lines[1:]:
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        answer = await self._reader.readexactly(length) if length else b""
        if status != wanted:
            raise RuntimeError(f"{method} {path} answered {status}: {answer[:500]!r}")
        return answer

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


@dataclass(frozen=True, slots=True)
class Timed:
    """Milliseconds of each measurement, sorted."""

    ms: list[float]

    def at(self, part: float) -> float:
        return self.ms[min(len(self.ms) - 1, int(part * len(self.ms)))]


Step = Callable[[int], Awaitable[None]]


async def alternate(count: int, ours: Step, rival: Step, between: Step) -> tuple[Timed, Timed]:
    """Both `count` times in turn, after some rounds that are not counted. `between` is untimed."""
    times: tuple[list[float], list[float]] = ([], [])
    for number in range(count + WARM_UP):
        for work, into in zip((ours, rival), times, strict=True):
            began_s = time.perf_counter()
            await work(number)
            if number >= WARM_UP:
                into.append((time.perf_counter() - began_s) * 1_000)
        await between(number)
    return Timed(sorted(times[0])), Timed(sorted(times[1]))


async def measure_create_live(
    base_url: str, rival: Database, count: int = CREATES
) -> tuple[Timed, Timed]:
    """Each live is closed again between the measurements, so that few slots do."""
    http = await Connection.open(base_url)
    made: list[str] = []

    async def ours(_: int) -> None:
        made.append(json.loads(await http.ask(201, "POST", "/v1/lives", {}))["live_id"])

    async def bare(number: int) -> None:
        def body(tr: Transaction) -> None:
            for key in range(KEYS_OF_A_CREATE):
                tr.set(b"%d/%d" % (number, key), b"x" * 64)

        await rival.run(body)

    async def close(_: int) -> None:
        await http.ask(200, "DELETE", f"/v1/lives/{made.pop()}")

    try:
        return await alternate(count, ours, bare, close)
    finally:
        await http.close()


async def measure_push_text(
    base_url: str, kafka: str, count: int = PUSHES
) -> tuple[Timed, Timed, float]:
    """Also texts per second with AT_ONCE clients, each to a live of its own."""
    http = await Connection.open(base_url)
    producer = AIOKafkaProducer(bootstrap_servers=kafka, acks="all", linger_ms=0)
    await producer.start()
    lives: list[str] = []

    async def push(through: Connection, live_id: str) -> None:
        await through.ask(202, "POST", f"/v1/lives/{live_id}/text", {"text": TEXT})

    async def ours(_: int) -> None:
        await push(http, lives[0])

    async def bare(_: int) -> None:
        record = TextRecord(RecordKind.TEXT, TEXT, None, "01MCC5RM0060Z63KE4QE3C69RG", 1)
        await producer.send_and_wait(
            TEXT_TOPIC, key=lives[0].encode(), value=encode_text_record(record)
        )

    async def nothing(_: int) -> None:
        pass

    try:
        for _ in range(AT_ONCE):
            lives.append(json.loads(await http.ask(201, "POST", "/v1/lives", {}))["live_id"])
        alone = await alternate(count, ours, bare, nothing)
        per_s = await _together(base_url, lives, count, push)
        for live_id in lives:
            await http.ask(200, "DELETE", f"/v1/lives/{live_id}")
        return *alone, per_s
    finally:
        await http.close()
        await producer.stop()


async def _together(
    base_url: str,
    lives: list[str],
    count: int,
    push: Callable[[Connection, str], Awaitable[None]],
) -> float:
    clients = [await Connection.open(base_url) for _ in lives]
    each = max(1, count // len(lives))

    async def one(client: Connection, live_id: str) -> None:
        for _ in range(each):
            await push(client, live_id)

    began_s = time.perf_counter()
    await asyncio.gather(*(one(*pair) for pair in zip(clients, lives, strict=True)))
    took_s = time.perf_counter() - began_s
    for client in clients:
        await client.close()
    return each * len(lives) / took_s


def _row(name: str, value: float, unit: str, against: str, rival: float | None) -> dict[str, Any]:
    return {
        "name": name,
        "value": round(value, 3),
        "unit": unit,
        "against": against,
        "against_value": None if rival is None else round(rival, 3),
        "ratio": None if rival is None else round(value / rival, 3),
    }


async def measure(base_url: str, kafka: str, rival_store: str) -> list[dict[str, Any]]:
    """Every row for a service that runs."""
    async with await open_database(rival_store) as rival:
        creates, commits = await measure_create_live(base_url, rival)
    pushes, sends, per_s = await measure_push_text(base_url, kafka)
    kind = rival_store.partition(":")[0]
    commit = f"one commit of {KEYS_OF_A_CREATE} keys, bare {kind}"
    send = "one aiokafka produce, acks=all, same broker"
    return [
        _row("create_live_p50_ms", creates.at(0.5), "ms", commit, commits.at(0.5)),
        _row("create_live_p99_ms", creates.at(0.99), "ms", commit, commits.at(0.99)),
        _row("push_text_p50_ms", pushes.at(0.5), "ms", send, sends.at(0.5)),
        _row("push_text_p99_ms", pushes.at(0.99), "ms", send, sends.at(0.99)),
        _row(f"push_text_per_s_{AT_ONCE}_clients", per_s, "1/s", "", None),
    ]


@contextlib.asynccontextmanager
async def own_service(folder: Path) -> AsyncIterator[tuple[str, str]]:
    """A replica as a process on an embedded broker and LMDB, and its broker's address."""
    store = f"lmdb://{folder}/store"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    broker = await EmbeddedBroker.start()
    try:
        flags = ("--kafka", broker.bootstrap, "--store", store, "--port", str(port))
        with (folder / "dispatch.log").open("wb") as log:
            child = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "dhsched", "dispatch", *flags, stderr=log
            )
        try:
            await _until_ready(child, port, folder / "dispatch.log")
            async with await open_database(store) as db:
                names = await _register(db)
                beating = asyncio.create_task(_beats(db, names))
                try:
                    yield f"http://127.0.0.1:{port}", broker.bootstrap
                finally:
                    beating.cancel()
                    await asyncio.gather(beating, return_exceptions=True)
        finally:
            if child.returncode is None:
                child.send_signal(signal.SIGTERM)
            await child.wait()
    finally:
        await broker.close()


async def _until_ready(child: asyncio.subprocess.Process, port: int, log: Path) -> None:
    deadline_s = time.monotonic() + READY_S
    while True:
        with contextlib.suppress(OSError, RuntimeError):
            http = await Connection.open(f"http://127.0.0.1:{port}")
            try:
                await http.ask(200, "GET", "/readyz")
                return
            finally:
                await http.close()
        if child.returncode is not None or time.monotonic() > deadline_s:
            raise RuntimeError(f"the replica did not start: {log.read_text()}")
        await asyncio.sleep(0.1)


async def _register(db: Database) -> list[str]:
    """Four workers, with slots for all that is created: nobody confirms that a live is gone."""
    names = [f"bench-{number}" for number in range(4)]
    for name in names:
        value = WorkerValue(name, name, CAPACITY, "http://127.0.0.1:9", WorkerState.READY, 0)
        await register_worker(db, value)
        await beat(db, name, LoadView(name, 0, 0, CAPACITY, CAPACITY))
    return names


async def _beats(db: Database, names: list[str]) -> None:
    while True:
        await asyncio.sleep(0.5)
        for name in names:
            await beat(db, name, LoadView(name, 0, 0, CAPACITY, CAPACITY))


def rows(base_url: str = "", kafka: str = "", rival_store: str = "") -> list[dict[str, Any]]:
    """Of the service at `base_url`, or of one that is started here."""

    async def run() -> list[dict[str, Any]]:
        with tempfile.TemporaryDirectory(prefix="bench-dispatch-") as name:
            rival = rival_store or f"lmdb://{name}/rival"
            if base_url:
                return await measure(base_url, kafka, rival)
            async with own_service(Path(name)) as (own_url, own_kafka):
                return await measure(own_url, own_kafka, rival)

    return asyncio.run(run())
