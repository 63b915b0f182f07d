"""CreateLive and PushText as a client sees them, beside the bare thing below each.

For a system that runs (see bench_live). Requests are made one after the other, rivals alternate
with them, so that a busy machine is as busy for both.

Against: CreateLive, one durable commit of as many keys to a bare store of the same kind. PushText,
one bare aiokafka produce of the same bytes with acks=all to the same topic.
"""

import asyncio
import itertools
import json
import os
import socket
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Self
from urllib.parse import urlsplit

from aiokafka import AIOKafkaProducer

from ownership.kv import Database, Transaction
from ownership.open import open_database
from schemas.text_record import RecordKind, TextRecord, encode_text_record
from schemas.topics import TEXT_TOPIC
from tests.bench.figures import Row, row

CREATES = int(os.environ.get("BENCH_CREATES", "300"))
PUSHES = int(os.environ.get("BENCH_PUSHES", "600"))
WARM_UP = 30
AT_ONCE = 16
KEYS_OF_A_CREATE = 7
TEXT = "A sentence of the length that people write. "


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
    base_url: str, kafka: str, lives_max: int, count: int = PUSHES
) -> tuple[Timed, Timed, float]:
    """To one live, which speaks what it gets. Also texts per second with AT_ONCE clients."""
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
        for _ in range(min(AT_ONCE, lives_max)):
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
    clients = [await Connection.open(base_url) for _ in range(AT_ONCE)]
    each = max(1, count // AT_ONCE)

    async def one(client: Connection, live_id: str) -> None:
        for _ in range(each):
            await push(client, live_id)

    began_s = time.perf_counter()
    await asyncio.gather(*map(one, clients, itertools.cycle(lives)))
    took_s = time.perf_counter() - began_s
    for client in clients:
        await client.close()
    return each * AT_ONCE / took_s


async def measure(base_url: str, kafka: str, rival_store: str, lives: int) -> list[Row]:
    """Every row for a system that runs and has room for so many lives."""
    async with await open_database(rival_store) as rival:
        creates, commits = await measure_create_live(base_url, rival)
    pushes, sends, per_s = await measure_push_text(base_url, kafka, lives)
    kind = rival_store.partition(":")[0]
    commit = f"one commit of {KEYS_OF_A_CREATE} keys, bare {kind}"
    send = "one aiokafka produce, acks=all, same broker"
    return [
        row("create_live_p50_ms", creates.at(0.5), "ms", commit, commits.at(0.5)),
        row("create_live_p99_ms", creates.at(0.99), "ms", commit, commits.at(0.99)),
        row("push_text_p50_ms", pushes.at(0.5), "ms", send, sends.at(0.5)),
        row("push_text_p99_ms", pushes.at(0.99), "ms", send, sends.at(0.99)),
        row(f"push_text_per_s_{AT_ONCE}_clients", per_s, "1/s"),
    ]
