"""Dispatch as processes: two replicas on one store and one broker, and how they begin and end."""

import asyncio
import contextlib
import json
import signal
import socket
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from dispatch.main import serve
from dispatch.settings import DispatchSettings
from hosting.start import StartFailed
from ownership.kv import Database
from ownership.lives import close_live, list_lives
from ownership.meta import ensure_meta
from ownership.open import open_database
from ownership.workers import beat, list_workers, mark_dead, register_worker
from schemas.ids import ulid
from schemas.partition import partition_of
from schemas.store_values import LoadView, Meta, WorkerState, WorkerValue
from schemas.text_record import RecordKind, decode_text_record
from schemas.topics import TEXT_TOPIC
from stream.aiokafka_transport import AiokafkaTransport
from tests.support.wait import until

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio(loop_scope="module")]

LIMITS = "[dispatch.limits]\nrefresh_ms = 200\nlease_ms = 1500\nsweep_ms = 500\n"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(slots=True)
class Process:
    """One replica. `log` is what it wrote to standard error."""

    child: asyncio.subprocess.Process
    url: str
    log: Path

    async def end(self) -> int:
        """SIGTERM, and the exit status."""
        if self.child.returncode is None:
            self.child.send_signal(signal.SIGTERM)
        async with asyncio.timeout(15):
            return await self.child.wait()


async def start(tmp_path: Path, *flags: str, port: int | None = None) -> Process:
    port = free_port() if port is None else port
    log = tmp_path / f"dispatch-{port}-{len(list(tmp_path.glob('*.log')))}.log"
    with log.open("wb") as file:
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "dhsched", "dispatch", "--port", str(port), *flags, stderr=file
        )
    return Process(child, f"http://127.0.0.1:{port}", log)


async def failed(process: Process) -> str:
    """Waits for the end of a start that must fail; what it said."""
    try:
        async with asyncio.timeout(40):
            assert await process.child.wait() == 1
    finally:
        await process.end()
    return process.log.read_text()


@dataclass(slots=True)
class Service:
    """Two replicas, their store, and clients of both."""

    replicas: list[Process]
    http: list[httpx.AsyncClient]
    db: Database
    beating: list[asyncio.Task[None]]

    async def worker(self, worker_id: str, capacity: int) -> asyncio.Task[None]:
        """A worker that does nothing but beat, until its task is cancelled."""
        value = WorkerValue(
            worker_id, worker_id, capacity, "http://127.0.0.1:9", WorkerState.READY, 0
        )
        await register_worker(self.db, value)

        async def beats() -> None:
            while True:
                await beat(self.db, worker_id, LoadView(worker_id, 0, 0, capacity, capacity))
                await asyncio.sleep(0.1)

        task = asyncio.create_task(beats())
        self.beating.append(task)
        return task


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def replicas(
    tmp_path_factory: pytest.TempPathFactory, kafka_bootstrap: str
) -> AsyncIterator[Service]:
    """Two replicas for all tests here: a start takes seconds."""
    tmp_path = tmp_path_factory.mktemp("dispatch")
    config = tmp_path / "dhsched.toml"
    config.write_text(LIMITS)
    store = f"lmdb://{tmp_path}/store"
    flags = ("--kafka", kafka_bootstrap, "--store", store, "--config", str(config))
    started = [await start(tmp_path, *flags) for _ in range(2)]
    clients = [httpx.AsyncClient(base_url=one.url, timeout=20) for one in started]
    try:
        for one, client in zip(started, clients, strict=True):
            await until(lambda one=one, client=client: is_ready(one, client), timeout_s=90)
        async with await open_database(store) as db:
            yield Service(started, clients, db, [])
    finally:
        for client in clients:
            await client.aclose()
        statuses = [await one.end() for one in started]
        assert statuses == [0, 0], [one.log.read_text() for one in started]


@pytest_asyncio.fixture(loop_scope="module")
async def service(replicas: Service) -> AsyncIterator[Service]:
    """The replicas with no worker and no live left of earlier tests."""
    yield replicas
    for task in replicas.beating:
        task.cancel()
    await asyncio.gather(*replicas.beating, return_exceptions=True)
    replicas.beating.clear()
    for live in await list_lives(replicas.db, None, 1_000):
        await close_live(replicas.db, live.live_id, None, "test", 1)
    for view in await list_workers(replicas.db):
        await mark_dead(replicas.db, view.value.worker_id, view.beat)


async def is_ready(process: Process, client: httpx.AsyncClient) -> bool:
    assert process.child.returncode is None, process.log.read_text()
    with contextlib.suppress(httpx.TransportError):
        return (await client.get("/readyz")).status_code == 200
    return False


async def test_two_replicas_fill_the_last_slot_and_none_more(service: Service) -> None:
    for number, capacity in enumerate((20, 21, 23)):
        await service.worker(f"w{number}", capacity)
    answers = await asyncio.gather(
        *(service.http[number % 2].post("/v1/lives") for number in range(70))
    )
    statuses = sorted(answer.status_code for answer in answers)
    assert statuses == [201] * 64 + [429] * 6
    refused = next(answer for answer in answers if answer.status_code == 429)
    assert refused.json()["counts"]["free"] == 0
    views = {view.value.worker_id: view.held for view in await list_workers(service.db)}
    assert [views[f"w{number}"] for number in range(3)] == [20, 21, 23]


async def test_one_key_one_live_over_processes(service: Service) -> None:
    await service.worker("keyed", 8)
    key = {"Idempotency-Key": "order-9"}
    answers = await asyncio.gather(
        *(service.http[n % 2].post("/v1/lives", headers=key) for n in range(6))
    )
    assert [answer.status_code for answer in answers] == [201] * 6
    assert len({answer.json()["live_id"] for answer in answers}) == 1
    views = {view.value.worker_id: view.held for view in await list_workers(service.db)}
    assert views["keyed"] == 1


async def test_text_reaches_the_log_and_events_every_replica(
    service: Service, kafka_bootstrap: str
) -> None:
    await service.worker("text", 8)
    live_id = f"live/{ulid(0, b'0123456789')}"
    opened = await service.http[0].post("/v1/lives", json={"live_id": live_id})
    path = opened.headers["location"]
    partition = opened.json()["partition"]
    pushed = await service.http[1].post(f"{path}/text", json={"text": "Hello.", "end_turn": True})
    assert pushed.status_code == 202, pushed.text
    place = pushed.json()
    transport = AiokafkaTransport(kafka_bootstrap)
    try:
        count = await transport.partition_count(TEXT_TOPIC)
        assert partition == place["partition"] == partition_of(live_id.encode(), count)
        reader = await transport.range_reader(TEXT_TOPIC)
        records = await reader.read(partition, place["offset"], records_max=10, timeout_ms=5_000)
    finally:
        await transport.close()
    mine = [record for record in records if record.key == live_id.encode()]
    assert [decode_text_record(one.value).kind for one in mine] == [
        RecordKind.TEXT,
        RecordKind.END_TURN,
    ]
    kinds: list[str] = []
    url = f"{path}/events?last_event_id=0:-1"
    async with asyncio.timeout(20), service.http[1].stream("GET", url) as answer:
        async for line in answer.aiter_lines():
            if line.startswith("data:"):
                event: dict[str, Any] = json.loads(line[5:])
                kinds.append(event["kind"])
            if len(kinds) == 2:
                break
    assert kinds == ["state_updated", "generation_committed"]


async def test_lives_of_a_silent_worker_go_on_once(service: Service) -> None:
    silent = await service.worker("silent", 8)
    for number in range(8):
        answer = await service.http[0].post("/v1/lives", json={"live_id": f"live-{number}"})
        assert answer.status_code == 201
    await service.worker("loud", 16)
    silent.cancel()

    async def lives(replica: int) -> list[dict[str, Any]]:
        paths = [f"/v1/lives/live-{number}" for number in range(8)]
        return [(await service.http[replica].get(path)).json() for path in paths]

    async def moved() -> bool:
        return all([live["generation"]["worker_id"] == "loud" for live in await lives(1)])

    await until(moved, timeout_s=15, what="the recovery")
    assert [live["generation"]["epoch"] for live in await lives(0)] == [2] * 8


async def test_an_idle_live_ends(service: Service) -> None:
    await service.worker("idle", 2)
    body = {"live_id": "brief", "options": {"idle_timeout_ms": 1_000}}
    assert (await service.http[0].post("/v1/lives", json=body)).status_code == 201

    async def closed() -> bool:
        live = (await service.http[1].get("/v1/lives/brief")).json()
        return (live["state"], live["close_reason"]) == ("closed", "idle_timeout")

    await until(closed, timeout_s=15, what="the end")


async def test_streams_end_with_their_replica(tmp_path: Path, kafka_bootstrap: str) -> None:
    flags = ("--kafka", kafka_bootstrap, "--store", f"lmdb://{tmp_path}/store")
    process = await start(tmp_path, *flags)
    last: list[str] = []
    connected = asyncio.Event()

    async def listen(http: httpx.AsyncClient) -> None:
        async with http.stream("GET", "/v1/events") as answer:
            async for line in answer.aiter_lines():
                last.append(line)
                connected.set()

    try:
        async with httpx.AsyncClient(base_url=process.url, timeout=20) as http:
            await until(lambda: is_ready(process, http), timeout_s=90)
            listening = asyncio.create_task(listen(http))
            await connected.wait()
            assert await process.end() == 0
            await listening
    finally:
        await process.end()
    assert any('"notice": "stopping"' in line for line in last)


async def test_a_taken_port_is_said_and_ends_the_process(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = int(taken.getsockname()[1])
        process = await start(tmp_path, "--kafka", "127.0.0.1:1", port=port)
        said = await failed(process)
    assert f"cannot listen on 127.0.0.1:{port}" in said
    assert "Traceback" not in said


async def test_a_broker_that_is_not_there_is_said(tmp_path: Path) -> None:
    settings = DispatchSettings(kafka="127.0.0.1:1", store=f"lmdb://{tmp_path}/store", port=0)
    with pytest.raises(StartFailed, match=r"no Kafka broker answers at 127\.0\.0\.1:1"):
        await serve(settings)


async def test_a_store_that_cannot_be_opened_is_said(kafka_bootstrap: str) -> None:
    settings = DispatchSettings(kafka=kafka_bootstrap, store="oracle://x", port=0)
    with pytest.raises(StartFailed, match="oracle://x"):
        await serve(settings)


async def test_a_store_of_another_topic_is_refused(tmp_path: Path, kafka_bootstrap: str) -> None:
    store = f"lmdb://{tmp_path}/store"
    async with await open_database(store) as db:
        await ensure_meta(db, Meta(partition_count=7))
    settings = DispatchSettings(kafka=kafka_bootstrap, store=store, port=0)
    with pytest.raises(StartFailed, match=r"made for a dhsched\.text of 7 partitions"):
        await serve(settings)
