"""`dhsched capture` as a process of its own, from topics of real brokers that are not all ours."""

import json
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from dhsched.offline.capture_file import CaptureReader
from dhsched.offline.entries import CapturedEvent, CapturedRecord, Entry, options_of
from schemas.events import EventKind, LiveEvent
from schemas.options import LiveOptions
from stream.aiokafka_transport import AiokafkaTransport
from stream.transport import TopicSpec
from tests.support.kafka_ready import run
from tests.support.kafka_source import KafkaSource

pytestmark = pytest.mark.kafka

PARTITIONS = 3
# An hour ago: what is older than its topic keeps records is deleted while it is written.
AT_MS = (int(time.time()) - 3_600) * 1_000
COMMAND_S = 120


@dataclass(slots=True)
class Place:
    """A broker with two topics of this test's own."""

    bootstrap: str
    apache: bool
    text: str = field(default_factory=lambda: f"text-{uuid.uuid4().hex[:8]}")
    events: str = field(default_factory=lambda: f"events-{uuid.uuid4().hex[:8]}")

    def make(self, *topics: str) -> None:
        async def ensure() -> None:
            transport = AiokafkaTransport(self.bootstrap)
            try:
                await transport.ensure_topics([TopicSpec(topic, PARTITIONS) for topic in topics])
            finally:
                await transport.close()

        run(ensure)

    def write(self, topic: str, records: Sequence[dict[str, Any]], **settings: str) -> None:
        """As a client that is not ours writes."""
        producer = Producer(
            {"bootstrap.servers": self.bootstrap, "partitioner": "murmur2_random", **settings}
        )
        failed: list[KafkaError] = []

        def told(error: KafkaError | None, _: object) -> None:
            if error is not None:
                failed.append(error)

        for record in records:
            producer.produce(topic, on_delivery=told, **record)
            producer.poll(0)
        assert producer.flush(30) == 0
        assert failed == []

    def capture(self, out: Path, *flags: str, shell: str = "") -> "Done":
        """The command; `shell` is run before it in the same process."""
        command = [sys.executable, "-m", "dhsched", "capture", "--out", str(out), "--json"]
        command += ["--kafka", self.bootstrap, "--topic", self.text, *flags]
        if not any(flag.startswith("--events-topic") for flag in flags):
            command += ["--events-topic", self.events]
        if shell:
            command = ["bash", "-c", f'{shell}; exec "$@"', "capture", *command]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=COMMAND_S, check=False
        )
        assert done.stdout, done.stderr
        return Done(done.returncode, json.loads(done.stdout.splitlines()[0]))


@dataclass(slots=True)
class Done:
    status: int
    said: dict[str, Any]


@pytest.fixture(params=["embedded", "apache"])
def place(request: pytest.FixtureRequest) -> Place:
    if request.param == "embedded":
        return Place(request.getfixturevalue("embedded_bootstrap"), apache=False)
    source: KafkaSource = request.getfixturevalue("kafka")
    if not source.apache:
        pytest.skip(f"Apache Kafka is not here, only {source.name}")
    return Place(source.bootstrap, apache=True)


def read(path: Path) -> list[Entry]:
    with CaptureReader(path) as reader:
        assert reader.truncated_at is None
        return list(reader)


def words(
    count: int, live: Callable[[int], str] = lambda n: f"live-{n % 5}"
) -> list[dict[str, Any]]:
    return [
        {
            "key": live(number).encode(),
            "value": json.dumps({"text": f"Word {number}. " + "x" * 400}).encode(),
            "timestamp": AT_MS + 1_000 * number,
        }
        for number in range(count)
    ]


def test_a_topic_of_somebody_else(place: Place, tmp_path: Path) -> None:
    """Everything of every record; and nobody else's reading is disturbed."""
    place.make(place.text)
    odd = {"key": b"live-1", "value": b"{}", "headers": [("a", b"1"), ("a", None)]}
    place.write(place.text, [*words(40), odd, {"key": None, "value": b"?"}])
    settings = {
        "bootstrap.servers": place.bootstrap,
        "group.id": f"group-{uuid.uuid4().hex[:8]}",
        "enable.auto.commit": False,
    }
    consumer = Consumer(settings)
    committed = [TopicPartition(place.text, partition, 2) for partition in range(PARTITIONS)]
    try:
        consumer.commit(offsets=committed, asynchronous=False)
        done = place.capture(tmp_path / "a.avro", "--all")
        assert done.status == 0, done.said
        found = consumer.committed(committed, timeout=20)
        assert [(one.partition, one.offset) for one in found] == [(p, 2) for p in range(3)]
    finally:
        consumer.close()
    assert (done.said["records"], done.said["events"], done.said["lives"]) == (42, 0, 5)
    assert done.said["findings"] == []
    entries = [entry for entry in read(tmp_path / "a.avro") if isinstance(entry, CapturedRecord)]
    by_value = {entry.value: entry for entry in entries}
    for written in words(40):
        entry = by_value[written["value"]]
        assert (entry.topic, entry.key) == (place.text, written["key"])
        assert entry.timestamp_ms == written["timestamp"]
    assert by_value[b"{}"].headers == (("a", b"1"), ("a", None))
    assert by_value[b"?"].key is None
    for partition in range(PARTITIONS):
        offsets = [entry.offset for entry in entries if entry.partition == partition]
        assert offsets == list(range(len(offsets)))


def test_a_full_disk_and_on_again(place: Place, tmp_path: Path) -> None:
    place.make(place.text)
    place.write(place.text, words(1_000))
    out = tmp_path / "a.avro"
    flags = ("--all", "--codec", "null")
    done = place.capture(out, *flags, shell="ulimit -f 200")
    assert done.status == 1
    assert "no space left" in done.said["error"]
    assert not out.exists()
    done = place.capture(out, *flags)
    assert done.status == 1
    assert "--resume" in done.said["error"]
    done = place.capture(out, *flags, "--resume")
    assert done.status == 0, done.said
    assert done.said["records"] == 1_000
    assert done.said["findings"] == []
    values = [entry.value for entry in read(out) if isinstance(entry, CapturedRecord)]
    assert sorted(values, key=str) == sorted((one["value"] for one in words(1_000)), key=str)
    done = place.capture(out, *flags)
    assert done.status == 2
    assert "exists" in done.said["error"]


def test_a_span_of_time_with_the_events_that_belong_to_it(place: Place, tmp_path: Path) -> None:
    place.make(place.text, place.events)
    place.write(place.text, words(60, live=lambda _: "live-1"))
    options = LiveOptions(look="clay", seed=11)
    events = [
        LiveEvent(
            EventKind.STATE_UPDATED,
            "opened",
            "",
            "live-1",
            "w",
            1,
            AT_MS,
            None,
            {"state": "open", "options": json.dumps(options.as_mapping())},
        ),
        LiveEvent(EventKind.CLAIMED, "claimed", "", "live-1", "w", 1, AT_MS + 1, 0),
        *(
            LiveEvent(EventKind.SPEAK_ENDED, f"s{n}", "", "live-1", "w", 1, AT_MS + 1_000 * n, n)
            for n in range(60)
        ),
    ]
    place.write(
        place.events,
        [
            {"key": b"live-1", "value": event.encode(), "timestamp": event.at_ms + 2_500}
            for event in events
        ],
    )

    def moment(seconds: float) -> str:
        return datetime.fromtimestamp(AT_MS / 1_000 + seconds, UTC).isoformat()

    out = tmp_path / "a.avro"
    span = ("--from", moment(19.5), "--until", moment(30))
    done = place.capture(out, "--live", "live-1", *span)
    assert done.status == 0, done.said
    entries = read(out)
    records = [one.offset for one in entries if isinstance(one, CapturedRecord)]
    assert records == list(range(20, 30))
    told = [one.event for one in entries if isinstance(one, CapturedEvent)]
    assert [one.event_id for one in told] == [
        "opened",
        "claimed",
        *(f"s{n}" for n in range(20, 30)),
    ]
    assert options_of(told[0]) == options
    assert isinstance(entries[0], CapturedEvent)


def test_a_log_that_ends_with_a_transactions_marker(place: Place, tmp_path: Path) -> None:
    if not place.apache:
        pytest.skip("the embedded broker has no transactions")
    place.make(place.text)
    producer = Producer(
        {"bootstrap.servers": place.bootstrap, "transactional.id": uuid.uuid4().hex}
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    for number in range(3):
        producer.produce(place.text, b'{"text": "Hi."}', b"live-1", partition=number)
    producer.commit_transaction(30)
    done = place.capture(tmp_path / "a.avro", "--all")
    assert done.status == 0, done.said
    assert done.said["records"] == 3
    assert done.said["missing_offsets"] == 3, "the markers"


def test_what_is_not_there(place: Place, tmp_path: Path) -> None:
    done = place.capture(tmp_path / "a.avro", "--all")
    assert done.status == 1
    assert f"there is no topic {place.text}" in done.said["error"]
    place.make(place.text)
    done = place.capture(tmp_path / "a.avro", "--live", "nobody")
    assert done.status == 1
    assert "holds no record of live 'nobody'" in done.said["error"]
    done = place.capture(tmp_path / "a.avro", "--all", "--from", "noon")
    assert done.status == 2
    assert list(tmp_path.iterdir()) == []


def test_no_broker(tmp_path: Path) -> None:
    done = Place("127.0.0.1:1", apache=False).capture(tmp_path / "a.avro", "--all")
    assert done.status == 1
    assert "no Kafka broker answers at 127.0.0.1:1" in done.said["error"]
    assert list(tmp_path.iterdir()) == []
