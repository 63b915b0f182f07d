"""How fast one worker consumes through the fence, beside consumers that need no fence or have one.

500 lives, all owned by one production controller with instant stages, on Apache Kafka and LMDB
(durable commits). In each round every side is stopped while the same records are produced; then
one after the other goes on alone and works the backlog off, in changing order. Ratios are of the
rounds' medians. What each side does with a record:

- ours, with its core compiled where the page says so: decodes and checks it, de-duplicates by
  `seq`, gathers text into segments, releases them by commits that revalidate every live's
  generation and write cursor and checkpoint, feeds the stages with a permit each, hears them spoken
  and tells the events topic.
- bare: aiokafka's `getmany`, fastavro, and a commit of the offsets after every fetch.
- library: quixstreams with exactly-once processing, the same state kept per live (next offset,
  `seq`, open text, checkpoint), the same two events of each sentence to an output topic, a commit
  twice a second. Its interval is fixed, and nothing counts before the commit, while first sound is
  due within half a second of its text: so one more row has it commit every 50 ms. Ours commits
  whenever the commit before is done: within milliseconds where there is little to do, a few times
  a second under such a backlog.

What is not alike, and in whose favour. Ours speaks each segment (a tick through session and egress,
made by the stand-in for the stages) and refuses what is not exactly a record; the library does
neither. The library's last records wait for the commit that ends its round, a quarter of a second
on average where it commits twice a second. Ours flushes each commit to the disk, the broker does
not. Our events may be dropped under load, the library's never: a round of ours ends when all of
them are written, and a row says if any was dropped. Both producers wait for all replicas, of which
there is one.

A worker lets three segments of a live be released and not spoken, because its next owner would have
to make them again; so three sentences is what one release carries. The library takes in one commit
whatever has come. The last row is measured with as many segments as one release may carry.

The text is what a language model streams, a word a record; a second pair of rows is measured with
a whole sentence a record, where nothing is shared by the records of a segment.
"""

import asyncio
import contextlib
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient

from controller.session_core import SessionLimits
from controller.text_queue import QueueLimits
from hosting.connections import ensure_topics, make_transport
from ownership.lives import create_live, get_live
from ownership.model import Created, CreateLive
from ownership.open import open_database
from schemas.options import LiveOptions
from schemas.partition import partition_of
from schemas.registry import versions
from schemas.text_record import RecordKind, TextRecord, encode_text_record
from schemas.topics import TEXT_TOPIC
from tests.bench.figures import Row, load, row
from tests.bench.rival_library import NotThere, rival_python
from tests.bench.talking import STOPPED_MS_MAX, Peer
from tests.support.apache_kafka import ApacheKafka, KafkaUnavailable

LIVES = 500
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "5"))
LIBRARY_ROUNDS = 3
SENTENCES = int(os.environ.get("BENCH_SENTENCES", "9"))
"""For each live in each round; whole ones, so that no side waits for the rest of one."""
SENTENCE = "A sentence of the length that people write, and some more of it. "
WORDS = [f"{word} " for word in SENTENCE.split()]
WORD_RECORDS = LIVES * SENTENCES * len(WORDS)
SENTENCE_RECORDS = 3 * LIVES * SENTENCES
LIBRARY_RECORDS = 3 * WORD_RECORDS
EVENT_ID = "01MCC5RM0060Z63KE4QE3C69RG"
LOOK_AGAIN_S = 0.02
CATCH_UP_S_MAX = 120
BARE = "bare aiokafka getmany + fastavro + commit, same broker and records"
LIBRARY_ROW = "fenced_consumption_vs_stream_library"
LIBRARY = "quixstreams, exactly-once, the same state per live, same broker and records"
SELDOM_S, OFTEN_S = 0.5, 0.05
"""How often the library commits: for much at once, and for speech that follows its text soon."""


@dataclass
class Feed:
    """Produces records and knows where each live's input ends."""

    kafka: str
    produced: int = 0
    ends: dict[str, int] = field(default_factory=dict[str, int])
    by_partition: dict[int, int] = field(default_factory=dict[int, int])
    numbers: dict[str, int] = field(default_factory=dict[str, int])

    def __post_init__(self) -> None:
        self.lives = [f"live-{number:04d}" for number in range(LIVES)]
        settings = {"partitioner": "murmur2_random", "linger.ms": 20, "acks": "all"}
        self._producer = Producer({"bootstrap.servers": self.kafka, **settings})

    def produce(self, records: int, texts: list[str]) -> None:
        """So many more, in turns to all lives. Returns when all are in the log."""
        for number in range(records):
            live_id = self.lives[number % LIVES]
            seq = self.numbers[live_id] = self.numbers.get(live_id, 0) + 1
            text = texts[number // LIVES % len(texts)]
            record = TextRecord(RecordKind.TEXT, text, seq, EVENT_ID, 1_764_000_000_000)
            value = encode_text_record(record)
            self._producer.produce(TEXT_TOPIC, value, live_id, on_delivery=self._written)
            if number % 1_000 == 0:
                self._producer.poll(0)
        if self._producer.flush(60):
            raise RuntimeError("the broker did not take all records")
        self.produced += records

    def _written(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            raise RuntimeError(f"not produced: {error}")
        key, partition, offset = message.key(), message.partition(), message.offset()
        assert key is not None
        assert partition is not None
        assert offset is not None
        self.ends[key.decode()] = offset + 1
        self.by_partition[partition] = offset + 1


@dataclass
class Side:
    """One of those compared. `finish(feed)` returns when it worked everything off, and when."""

    peer: Peer
    finish: Callable[[Feed], float]
    per_s: list[float] = field(default_factory=list[float])
    cpu_us: list[float] = field(default_factory=list[float])
    """Processor time per record, of each round: what a busy machine changes least."""

    def measure(self, feed: Feed, records: int) -> None:
        """One round, alone."""
        used_s, began_s = self.peer.cpu_s(), self.peer.go_on()
        ended_s = self.finish(feed)
        self.peer.stop()
        self.per_s.append(records / (ended_s - began_s))
        self.cpu_us.append((self.peer.cpu_s() - used_s) * 1e6 / records)

    def forget(self) -> None:
        """Begin to measure anew."""
        self.per_s.clear()
        self.cpu_us.clear()

    @property
    def median(self) -> float:
        return statistics.median(self.per_s)


def rows() -> list[Row]:
    """The figures of this module, for `make bench`."""
    found: list[Row] = []
    for ahead in (SessionLimits().segments_ahead_max, QueueLimits().cuts_per_step_max):
        with tempfile.TemporaryDirectory(prefix="dhsched-bench-") as folder, _kafka() as kafka:
            found += asyncio.run(_measure(kafka.bootstrap, Path(folder), ahead))
    return found


@contextlib.contextmanager
def _kafka() -> Iterator[ApacheKafka]:
    try:
        with ApacheKafka() as kafka:
            yield kafka
    except KafkaUnavailable as error:
        raise RuntimeError(f"this is measured on Apache Kafka only: {error}") from error


async def _measure(kafka: str, folder: Path, ahead: int) -> list[Row]:
    store = f"lmdb://{folder}/store?map_gib=4"
    feed = Feed(kafka)
    transport = make_transport(kafka, "bench")
    await ensure_topics(transport, kafka)
    partitions = await transport.partition_count(TEXT_TOPIC)
    db = await open_database(store)
    with _worker(kafka, store, ahead) as worker:
        for number, live_id in enumerate(feed.lives):
            request = CreateLive(
                live_id,
                LiveOptions(),
                partition_of(live_id.encode(), partitions),
                str(worker.hello["worker_id"]),
                f"m-{live_id}",
                f"c-{live_id}",
                0,
                number,
            )
            assert isinstance(await create_live(db, request), Created)
        worker.ask(until=dict.fromkeys(feed.lives, 0))
        ours = Side(worker, lambda fed: _answered(worker, until=fed.ends))
        if ahead == SessionLimits().segments_ahead_max:
            with _peer("tests.bench.bare_peer", "--kafka", kafka) as bare:
                against = Side(bare, lambda fed: _answered(bare, until={"records": fed.produced}))
                found = _beside(feed, ours, against)
            for name, commit_s in ((LIBRARY_ROW, SELDOM_S), (f"{LIBRARY_ROW}_often", OFTEN_S)):
                found.append(_beside_library(name, feed, ours, folder, commit_s))
        else:
            name = f"{LIBRARY_ROW}_{ahead}_ahead"
            found = [_beside_library(name, feed, ours, folder, SELDOM_S)]
        worker.go_on()
        _tell_events(worker, found)
    for live_id, end in feed.ends.items():
        view = await get_live(db, live_id)
        assert view is not None
        assert view.cursor is not None
        assert view.cursor.next_offset == end, f"{live_id} was not released to its end"
    await db.close()
    await transport.close()
    return found


def _beside(feed: Feed, ours: Side, bare: Side) -> list[Row]:
    found: list[Row] = []
    for kind, texts, records in (
        ("", WORDS, WORD_RECORDS),
        ("_sentences", [SENTENCE], SENTENCE_RECORDS),
    ):
        ours.forget()
        bare.forget()
        for number in range(ROUNDS + 1):
            for side in (ours, bare):
                side.peer.stop()
            feed.produce(records, texts)
            for side in (ours, bare) if number % 2 else (bare, ours):
                side.measure(feed, records)
            if number == 0:
                ours.forget()
                bare.forget()
        found.append(_row(f"fenced_consumption{kind}_vs_aiokafka", ours, BARE, bare, 0.2))
    return found


def _beside_library(name: str, feed: Feed, ours: Side, folder: Path, commit_s: float) -> Row:
    ours.peer.stop()
    try:
        python = rival_python()
    except NotThere as error:
        return row(name, ours.median, "records/s", f"not measured: {error}")
    schema = json.dumps(versions("text_record")[-1].parsed)
    options = ("--kafka", feed.kafka, "--state", str(folder / name), "--topic", TEXT_TOPIC)
    options += ("--schema", schema, "--group", name, "--commit-s", str(commit_s))
    admin = AdminClient({"bootstrap.servers": feed.kafka})
    with _peer("tests.bench.library_peer", *options, python=python) as peer:
        library = Side(peer, lambda fed: _committed(admin, name, fed.by_partition))
        ours.peer.go_on()
        _join(feed, admin, name)
        for side in (ours, library):
            side.finish(feed)
            side.peer.stop()
        ours.forget()
        for number in range(LIBRARY_ROUNDS):
            feed.produce(LIBRARY_RECORDS, WORDS)
            for side in (library, ours) if number % 2 else (ours, library):
                side.measure(feed, LIBRARY_RECORDS)
    against = f"{LIBRARY}, a commit every {commit_s:g} s"
    return _row(name, ours, against, library, 2.0)


def _row(name: str, ours: Side, against: str, rival: Side, required: float) -> Row:
    return row(
        name,
        ours.median,
        "records/s",
        against,
        rival.median,
        required=required,
        lives=LIVES,
        rounds=[round(one) for one in ours.per_s],
        rounds_against=[round(one) for one in rival.per_s],
        cpu_us_per_record=round(statistics.median(ours.cpu_us), 1),
        cpu_us_per_record_against=round(statistics.median(rival.cpu_us), 1),
        load=load(),
    )


def _join(feed: Feed, admin: AdminClient, group: str) -> None:
    """Return when the library reads: it begins at the log's end, whenever it gets its partitions.

    Raises TimeoutError.
    """
    until_s, within_s = time.monotonic() + CATCH_UP_S_MAX, 2.0
    while True:
        feed.produce(LIVES * len(WORDS), WORDS)
        with contextlib.suppress(TimeoutError):
            _committed(admin, group, feed.by_partition, within_s=within_s)
            return
        within_s *= 2
        if time.monotonic() > until_s:
            raise TimeoutError("the library does not begin to read")


def _answered(peer: Peer, **order: object) -> float:
    return float(peer.ask(**order)["at_s"])


def _committed(
    admin: AdminClient, group: str, ends: dict[int, int], within_s: float = CATCH_UP_S_MAX
) -> float:
    """When the group's offsets had come to these ends. Raises TimeoutError.

    A transaction's marker takes an offset too, so at or beyond the end is at the end.
    """
    until_s = time.monotonic() + within_s
    while time.monotonic() < until_s:
        asked = ConsumerGroupTopicPartitions(group)
        (answer,) = admin.list_consumer_group_offsets([asked]).values()
        at = {
            one.partition: one.offset
            for one in answer.result().topic_partitions
            if one.topic == TEXT_TOPIC
        }
        if all(at.get(partition, -1) >= end for partition, end in ends.items()):
            return time.monotonic()
        time.sleep(LOOK_AGAIN_S)
    raise TimeoutError(f"{group} did not come to the end within {within_s} s")


def _tell_events(worker: Peer, found: list[Row]) -> None:
    """Into the rows that were measured with this worker."""
    counters = worker.ask(counters=True)["counters"]
    sent, dropped = counters["events_sent"], counters["events_dropped"]
    for one in found:
        one["events"] = {"sent": sent, "dropped": dropped}
        if dropped:
            one["unit"] += f", {dropped} of {sent + dropped} events dropped"


@contextlib.contextmanager
def _peer(*command: str, **more: str) -> Iterator[Peer]:
    peer = Peer(*command, **more)
    try:
        yield peer
    finally:
        peer.close()


def _worker(kafka: str, store: str, ahead: int) -> contextlib.AbstractContextManager[Peer]:
    options = ("--kafka", kafka, "--store", store, "--node", "one", "--capacity", str(LIVES))
    options += ("--ahead", str(ahead))
    return _peer("tests.bench.worker_peer", *options, "--session-ms", str(STOPPED_MS_MAX))
