"""Workers over a real broker and LMDB, with stub stages: what memory stand-ins cannot show."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest

from controller.clock import SystemClock
from controller.media import PacedMedia
from controller.shell import Worker, WorkerOptions, WorkerWorld
from gpu_stages.runtime_contract import Segment
from gpu_stages.stub import StubRuntime
from ownership.custody import watermark
from ownership.generations import commit_generation
from ownership.kv import Database
from ownership.lives import create_live, get_live
from ownership.model import CommitGeneration, CommittedGeneration, Created, CreateLive
from ownership.open import open_database
from schemas.dead_letter import DeadLetter
from schemas.options import LiveOptions
from schemas.partition import partition_of
from schemas.text_record import RecordKind, TextRecord, encode_text_record
from schemas.topics import DEAD_LETTER_TOPIC, TEXT_TOPIC
from stream.aiokafka_transport import AiokafkaTransport
from stream.embedded import EmbeddedBroker
from stream.topics import default_topics
from stream.transport import Producer
from tests.support.wait import until

pytestmark = pytest.mark.kafka

PARTITIONS = 4


class Ears(StubRuntime):
    """The stub, and the text that was fed to it."""

    def __init__(self) -> None:
        super().__init__(live_slots=32, ms_per_character=4)
        self.fed: list[Segment] = []

    def feed(self, live_slot: int, segment: Segment) -> None:
        super().feed(live_slot, segment)
        self.fed.append(segment)

    @property
    def text(self) -> str:
        return "".join(segment.text for segment in self.fed)


class Town:
    """A broker of its own, a store, and workers."""

    def __init__(self, broker: EmbeddedBroker, store: Path) -> None:
        self.broker = broker
        self.store = store
        self.running: list[asyncio.Future[None]] = []
        self.workers: list[Worker] = []
        self.closing: list[AiokafkaTransport | Database] = []

    async def open(self) -> None:
        self.transport = AiokafkaTransport(self.broker.bootstrap)
        await self.transport.ensure_topics(default_topics(text_partitions=PARTITIONS))
        self.producer: Producer = await self.transport.producer()
        self.db = await open_database(f"lmdb://{self.store}?sync=off&map_gib=1")

    async def worker(self, node: str) -> tuple[Worker, Ears]:
        transport = AiokafkaTransport(self.broker.bootstrap)
        self.closing.append(transport)
        ears, clock = Ears(), SystemClock()
        world = WorkerWorld(
            self.db, transport, ears, PacedMedia(clock), clock, Random(os.urandom(8))
        )
        worker = Worker(WorkerOptions(node, 32, f"http://{node}"), world)
        self.workers.append(worker)
        self.running.append(asyncio.ensure_future(worker.run()))
        await until(lambda: worker.ready, timeout_s=60)
        return worker, ears

    async def create(self, live_id: str, worker: Worker) -> None:
        assert worker.incarnation is not None
        answer = await create_live(
            self.db,
            CreateLive(
                live_id,
                LiveOptions(),
                partition_of(live_id.encode(), PARTITIONS),
                worker.incarnation.worker_id,
                f"m-{live_id}",
                f"c-{live_id}",
                0,
            ),
        )
        assert isinstance(answer, Created)

    async def push(self, live_id: str, text: str) -> None:
        value = encode_text_record(TextRecord(RecordKind.TEXT, text))
        await self.producer.send(TEXT_TOPIC, key=live_id.encode(), value=value)

    async def close(self) -> None:
        for worker in self.workers:
            worker.stop()
        await asyncio.gather(*self.running)
        for one in (*self.closing, self.transport, self.db):
            await one.close()


@pytest.fixture
async def town(tmp_path: Path) -> AsyncIterator[Town]:
    async with await EmbeddedBroker.start() as broker:
        made = Town(broker, tmp_path / "store")
        await made.open()
        yield made
        await made.close()


async def test_text_through_a_real_broker_and_a_move_under_it(town: Town) -> None:
    one, heard_one = await town.worker("one")
    await town.create("anna", one)
    await town.push("anna", "Hello there. ")
    await until(lambda: heard_one.text == "Hello there. ", timeout_s=40)

    # A second worker joins: the group divides the partitions anew, under a speaking live.
    two, heard_two = await town.worker("two")
    texts = [f"This is sentence number {n} for you. " for n in range(20)]
    for text in texts[:10]:
        await town.push("anna", text)
    await until(lambda: _shared(one, two), timeout_s=60, what="custody of both")
    for text in texts[10:]:
        await town.push("anna", text)
    await until(lambda: heard_one.text.endswith(texts[-1]), timeout_s=60)
    assert heard_one.text == "Hello there. " + "".join(texts)

    view = await get_live(town.db, "anna")
    assert view is not None
    assert two.incarnation is not None
    moved = await commit_generation(
        town.db, CommitGeneration("anna", view.generation, two.incarnation.worker_id, "move", 0)
    )
    assert isinstance(moved, CommittedGeneration)
    await town.push("anna", "From the other side.")
    await until(lambda: heard_two.text.endswith("From the other side."), timeout_s=40)
    again = heard_two.text.removesuffix("From the other side.")
    assert "".join(texts).endswith(again), "only what was released and not spoken is said again"

    # Records of nobody: dead-lettered by whoever has custody, and the watermark passes them.
    await town.push("nobody", "Is anybody there?")
    tail = await town.transport.tail(DEAD_LETTER_TOPIC, {0: 0})
    letters: list[DeadLetter] = []

    async def read() -> bool:
        records = await tail.poll(records_max=10, timeout_ms=200)
        letters.extend(DeadLetter.decode(raw.value) for raw in records)
        return bool(letters)

    await until(read, timeout_s=40)
    assert [letter.reason.value for letter in letters] == ["unknown_live"]
    partition, offset = letters[0].partition, letters[0].offset

    async def passed() -> bool:
        return await watermark(town.db, partition) > offset

    await until(passed, timeout_s=40, what="the watermark")


def _shared(one: Worker, two: Worker) -> bool:
    if one.incarnation is None or two.incarnation is None:
        return False
    counts = [len(worker.incarnation.consumer.custody.books) for worker in (one, two)]
    return sum(counts) == PARTITIONS and min(counts) > 0
