"""A store, a broker and any number of replicas in one event loop, with clocks that tests turn."""

import asyncio
import random
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import httpx

from dispatch.app import create_app
from dispatch.limits import Limits
from dispatch.metrics import Metrics
from dispatch.readiness import ReadinessProbe
from dispatch.replica import Replica
from dispatch.service import DispatchService
from dispatch.settings import DispatchSettings
from dispatch.whep_proxy import WhepProxy
from ownership.generations import claim
from ownership.memory import MemoryDatabase
from ownership.memory_store import MemoryStore
from ownership.meta import ensure_meta
from ownership.model import Claimed, Generation
from ownership.retry import Retry
from ownership.workers import beat, register_worker
from schemas.events import LiveEvent
from schemas.store_values import LoadView, Meta, WorkerState, WorkerValue
from schemas.text_record import TextRecord, decode_text_record
from schemas.topics import EVENTS_TOPIC, TEXT_TOPIC
from stream.memory import MemoryBroker, MemoryTransport
from stream.topics import default_topics

PARTITIONS = 12


@dataclass(slots=True)
class HandClock:
    """Both clocks move only when a test says so."""

    now: int = 1_000
    wall: int = 1_800_000_000_000

    def now_ms(self) -> int:
        return self.now

    def wall_ms(self) -> int:
        return self.wall

    def pass_ms(self, ms: int) -> None:
        self.now += ms
        self.wall += ms


class World:
    """One store, one broker. Replicas are made by `replica`; their loops run only if asked."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.broker = MemoryBroker(seed=7)
        self.clock = HandClock()
        self.db = MemoryDatabase(self.store)
        self.retry = Retry()
        self._replicas = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._clients: list[httpx.AsyncClient] = []

    async def __aenter__(self) -> Self:
        for spec in default_topics(text_partitions=PARTITIONS):
            self.broker.make_topic(spec)
        await ensure_meta(self.db, Meta(PARTITIONS))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for client in self._clients:
            await client.aclose()
        await self.db.close()

    def service(self, limits: Limits | None = None) -> DispatchService:
        """One more replica, without HTTP."""
        self._replicas += 1
        rng = random.Random(self._replicas)
        return DispatchService(
            MemoryDatabase(self.store, rng=random.Random(100 + self._replicas), retry=self.retry),
            MemoryTransport(self.broker),
            self.clock,
            rng,
            limits or Limits(),
            PARTITIONS,
        )

    def replica(
        self,
        *,
        limits: Limits | None = None,
        owners: httpx.AsyncBaseTransport | None = None,
        **settings: object,
    ) -> Replica:
        """One more replica. `owners` answers for the workers."""
        service = self.service(limits)
        client = httpx.AsyncClient(transport=owners or httpx.MockTransport(_nobody))
        self._clients.append(client)
        chosen = DispatchSettings(**{"heartbeat_s": 0.2, **settings})  # type: ignore[arg-type]
        metrics = Metrics(service)
        whep = WhepProxy(
            service.db,
            self.clock,
            client,
            claim_wait_ms=0,
            retry_after_s=2,
            on_retry=metrics.retry,
        )
        return Replica(service, chosen, metrics, whep, ReadinessProbe(service))

    def http(self, replica: Replica) -> httpx.AsyncClient:
        """A client of the replica's application, without a socket."""
        transport = httpx.ASGITransport(app=create_app(replica))
        client = httpx.AsyncClient(transport=transport, base_url="http://dispatch")
        self._clients.append(client)
        return client

    def run(self, service: DispatchService) -> None:
        """Runs the replica's loops until the test ends."""
        self._tasks.append(asyncio.create_task(service.run()))

    def run_feed(self, service: DispatchService) -> None:
        """Runs only what writes and reads events."""
        self._tasks.append(asyncio.create_task(service.feed.run()))
        self._tasks.append(asyncio.create_task(service.publisher.run()))

    async def worker(
        self,
        worker_id: str,
        capacity: int = 4,
        *,
        node: str | None = None,
        partitions: tuple[int, ...] = (),
    ) -> str:
        """One more worker that is ready."""
        value = WorkerValue(
            worker_id,
            node or worker_id,
            capacity,
            f"http://{worker_id}.test",
            WorkerState.READY,
            self.clock.wall_ms(),
        )
        await register_worker(self.db, value)
        await self.beat(worker_id, capacity, partitions=partitions)
        return worker_id

    async def beat(
        self, worker_id: str, capacity: int = 4, *, partitions: tuple[int, ...] = ()
    ) -> object:
        """One sign of life."""
        view = LoadView(worker_id, 0, 0, capacity, capacity, partitions, self.clock.wall_ms())
        return await beat(self.db, worker_id, view)

    async def claim(self, live_id: str, generation: Generation) -> None:
        """The owner accepts."""
        claimed = await claim(
            self.db,
            live_id,
            generation,
            f"claim-{live_id}-{generation.epoch}",
            self.clock.wall_ms(),
        )
        assert isinstance(claimed, Claimed)

    def texts(self, live_id: str | None = None) -> list[TextRecord]:
        """What lies in the text topic, by partition and offset."""
        return [
            decode_text_record(record.value)
            for partition in range(PARTITIONS)
            for record in self.broker.records(TEXT_TOPIC, partition)
            if live_id is None or record.key == live_id.encode()
        ]

    def events(self, live_id: str) -> list[LiveEvent]:
        """What lies in the events topic of one live."""
        count = self.broker.partition_count(EVENTS_TOPIC)
        return [
            LiveEvent.decode(record.value)
            for partition in range(count)
            for record in self.broker.records(EVENTS_TOPIC, partition)
            if record.key == live_id.encode()
        ]


def _nobody(request: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("nobody listens there", request=request)
