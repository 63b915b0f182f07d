"""A worker's HTTP interface over a stub of its stages, on the real loop."""

import asyncio
from collections.abc import AsyncIterator
from random import Random

import httpx
import pytest

from controller.clock import SystemClock
from controller.http import create_app
from controller.media import PacedMedia
from controller.shell import Worker, WorkerOptions, WorkerWorld
from gpu_stages.stub import StubRuntime
from ownership.lives import create_live
from ownership.memory import MemoryDatabase
from ownership.model import Created, CreateLive
from rtc_output.whep import WhepServer
from schemas.options import LiveOptions
from schemas.text_record import RecordKind, TextRecord, encode_text_record
from schemas.topics import TEXT_TOPIC
from stream.memory import MemoryBroker, MemoryTransport
from stream.topics import default_topics
from tests.support.wait import until


class Site:
    """One worker and a client of its interface."""

    def __init__(self) -> None:
        self.db = MemoryDatabase()
        self.broker = MemoryBroker()
        for spec in default_topics(text_partitions=1, events_partitions=1):
            self.broker.make_topic(spec)
        runtime = StubRuntime(live_slots=4, ms_per_character=10)
        clock = SystemClock()
        transport = MemoryTransport(self.broker)
        world = WorkerWorld(self.db, transport, runtime, PacedMedia(clock), clock, Random(1))
        self.worker = Worker(WorkerOptions("one", 4, "http://one"), world)
        self.whep = WhepServer()
        app = create_app(self.worker, runtime, self.whep)
        self.client = httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="http://worker"
        )
        self.running = asyncio.ensure_future(self.worker.run())

    async def create(self, live_id: str) -> int:
        incarnation = self.worker.incarnation
        assert incarnation is not None
        answer = await create_live(
            self.db,
            CreateLive(
                live_id, LiveOptions(), 0, incarnation.worker_id, f"m-{live_id}", f"c-{live_id}", 0
            ),
        )
        assert isinstance(answer, Created)
        await until(lambda: self._bound(live_id))
        return answer.generation.epoch

    def _bound(self, live_id: str) -> bool:
        session = self.worker.session(live_id)
        return session is not None and session.egress is not None


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    made = Site()
    await until(lambda: made.worker.ready)
    yield made
    made.worker.stop()
    await made.running
    await made.client.aclose()
    await made.whep.close()


async def test_health_and_metrics(site: Site) -> None:
    assert (await site.client.get("/healthz")).json() == {"status": "ok"}
    assert (await site.client.get("/readyz")).status_code == 200
    await site.create("anna")
    value = encode_text_record(TextRecord(RecordKind.TEXT, "Hello."))
    site.broker.append(TEXT_TOPIC, 0, b"anna", value)
    site.broker.append(TEXT_TOPIC, 0, b"anna", b"?")
    await until(lambda: site.worker.counters.dead_letters["not_avro_or_json"])
    shown = (await site.client.get("/metrics")).text
    assert 'dhsched_worker_lives{state="idle"}' in shown
    assert 'dhsched_worker_dead_letters_total{reason="not_avro_or_json"} 1.0' in shown
    for name in (
        "releases_total",
        "refused_stale_total",
        "falsely_refused_total",
        "reader_amplification",
        "unfinished_offsets",
        "lateness_seconds",
        "stages",
    ):
        assert f"dhsched_worker_{name}" in shown
    state = (await site.client.get("/state")).json()
    assert state["lives"]["anna"]["epoch"] == 1
    assert state["lives"]["anna"]["story"]


@pytest.mark.parametrize(
    ("path", "headers", "status", "kind"),
    [
        ("/whep/nobody", {"Content-Type": "application/sdp"}, 409, "not-owner"),
        ("/whep/anna", {"Content-Type": "text/plain"}, 415, "unsupported-media-type"),
        (
            "/whep/anna",
            {"Content-Type": "application/sdp", "DHSched-Epoch": "7"},
            409,
            "not-owner",
        ),
        ("/whep/anna", {"Content-Type": "application/sdp"}, 400, "malformed-sdp"),
    ],
)
async def test_offers_that_are_refused(
    site: Site, path: str, headers: dict[str, str], status: int, kind: str
) -> None:
    await site.create("anna")
    answer = await site.client.post(path, content=b"v=0", headers=headers)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["type"] == f"urn:dhsched:problem:{kind}"


async def test_an_offer_that_is_too_large(site: Site) -> None:
    await site.create("anna")
    answer = await site.client.post(
        "/whep/anna", content=b"v" * 70_000, headers={"Content-Type": "application/sdp"}
    )
    assert answer.status_code == 413


async def test_a_live_with_odd_characters_in_its_id(site: Site) -> None:
    epoch = await site.create("a/b c")
    answer = await site.client.post(
        "/whep/a%2Fb%20c",
        content=b"v=0",
        headers={"Content-Type": "application/sdp", "DHSched-Epoch": str(epoch)},
    )
    assert answer.status_code == 400, "the live is found, the offer is not SDP"


async def test_viewers_and_streams_that_are_not_there(site: Site) -> None:
    assert (await site.client.delete("/whep/anna/nothing")).status_code == 404
    assert (await site.client.get("/lives/nobody/stream.mp4")).status_code == 409
