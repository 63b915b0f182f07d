"""From topics into a file: ranges, what belongs to them, breaks, and what goes wrong."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from dhsched.offline import capture as capture_module
from dhsched.offline import capture_file, merging
from dhsched.offline.capture import Captured, CaptureRequest, capture_from
from dhsched.offline.capture_file import CaptureError, CaptureReader, part_of
from dhsched.offline.codecs import CODECS
from dhsched.offline.container import Blocks, read_header
from dhsched.offline.entries import CapturedEvent, CapturedRecord, Entry, options_of
from dhsched.offline.topic_range import BadRange
from dhsched.output import CommandFailed, Output
from schemas.events import EventKind, LiveEvent
from schemas.options import LiveOptions
from schemas.partition import partition_of
from schemas.text_record import RecordKind, TextRecord, encode_text_record
from schemas.topics import EVENTS_TOPIC, TEXT_TOPIC
from stream.memory import MemoryBroker, MemoryRangeReader, MemoryTransport
from stream.transport import BrokerAway, LogRecord, TopicSpec
from tests.unit.dhsched.offline.captures import START_MS, read

PARTITIONS, EVENT_PARTITIONS = 4, 3
NOW_MS = START_MS + 10_000_000
LIVES = [f"live-{number}" for number in range(5)]


class City:
    """Topics with lives whose records and events come a second apart."""

    def __init__(self, *, events: bool = True) -> None:
        self.broker = MemoryBroker(seed=1)
        self.broker.make_topic(TopicSpec(TEXT_TOPIC, PARTITIONS))
        if events:
            self.broker.make_topic(TopicSpec(EVENTS_TOPIC, EVENT_PARTITIONS))
        self.at_ms = START_MS

    def say(self, live: str, text: str = "Words.", at_ms: int | None = None) -> int:
        """One record; its offset."""
        partition = partition_of(live.encode(), PARTITIONS)
        value = encode_text_record(TextRecord(RecordKind.TEXT, text))
        return self._put(TEXT_TOPIC, partition, live.encode(), value, at_ms)

    def tell(
        self, live: str, kind: EventKind, offset: int | None = None, epoch: int = 1, **data: str
    ) -> int:
        """One event; its offset in the events topic."""
        event = LiveEvent(kind, "e", "", live, "w", epoch, self.at_ms, offset, dict(data))
        partition = partition_of(live.encode(), EVENT_PARTITIONS)
        return self._put(EVENTS_TOPIC, partition, live.encode(), event.encode(), None)

    def open(self, live: str, epoch: int = 1) -> None:
        options = json.dumps(LiveOptions(seed=epoch).as_mapping())
        self.tell(live, EventKind.STATE_UPDATED, None, epoch, state="open", options=options)

    def _put(
        self, topic: str, partition: int, key: bytes, value: bytes | None, at_ms: int | None
    ) -> int:
        self.at_ms += 1_000
        log = self.broker.log(topic, partition)
        stamp = self.at_ms if at_ms is None else at_ms
        log.append(LogRecord(topic, partition, log.end, key, value, (("h", None),), stamp))
        return log.end - 1

    def written(self, topic: str, live: str | None = None) -> set[tuple[int, int]]:
        """(partition, offset) of what lies in a topic."""
        count = self.broker.partition_count(topic)
        return {
            (record.partition, record.offset)
            for partition in range(count)
            for record in self.broker.records(topic, partition)
            if live is None or record.key == live.encode()
        }


async def captured(city: City, path: Path, **asked: object) -> Captured:
    request = replace(CaptureRequest("memory", path, codec="null"), **asked)
    if request.live_id is None:
        request = replace(request, all_lives=True)
    wanted = request.wanted(NOW_MS)
    transport = MemoryTransport(city.broker)
    return await capture_from(transport, request, wanted, NOW_MS, Output.make(as_json=True))


def places(entries: object) -> dict[str, set[tuple[int, int]]]:
    found: dict[str, set[tuple[int, int]]] = {TEXT_TOPIC: set(), EVENTS_TOPIC: set()}
    for entry in entries:
        topic = entry.topic if isinstance(entry, CapturedRecord) else EVENTS_TOPIC
        found[topic].add((entry.partition, entry.offset))
    return found


@pytest.fixture
def city() -> City:
    """Five lives, each opened and claimed, that spoke for a while."""
    made = City()
    for live in LIVES:
        made.open(live)
        made.tell(live, EventKind.CLAIMED, 0)
    for number in range(40):
        live = LIVES[number % len(LIVES)]
        offset = made.say(live, f"Sentence {number}.")
        made.tell(live, EventKind.SPEAK_STARTED, offset)
    return made


@pytest.fixture(autouse=True)
def _quick_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory answers at once, so nothing is gained by waiting for it."""
    monkeypatch.setattr(merging, "READ_MS", 5)
    monkeypatch.setattr(merging, "AWAY_WAIT_S", 0.001)


async def test_all_of_it(city: City, tmp_path: Path) -> None:
    done = await captured(city, tmp_path / "a.avro")
    entries = read(tmp_path / "a.avro")
    assert places(entries) == {
        TEXT_TOPIC: city.written(TEXT_TOPIC),
        EVENTS_TOPIC: city.written(EVENTS_TOPIC),
    }
    stamps = [entry.timestamp_ms for entry in entries]
    assert stamps == sorted(stamps)
    records = [entry for entry in entries if isinstance(entry, CapturedRecord)]
    logged = {
        (one.partition, one.offset): one
        for partition in range(PARTITIONS)
        for one in city.broker.records(TEXT_TOPIC, partition)
    }
    for one in records:
        raw = logged[one.partition, one.offset]
        assert (one.key, one.value, one.headers) == (raw.key, raw.value, raw.headers)
    assert done.document() == {
        "file": str(tmp_path / "a.avro"),
        "records": 40,
        "events": 50,
        "lives": 5,
        "bytes": (tmp_path / "a.avro").stat().st_size,
        "ranges": {str(p): [0, city.broker.log(TEXT_TOPIC, p).end] for p in range(PARTITIONS)},
        "missing_offsets": 0,
        "findings": [],
        "lost": [],
        "unreadable_events": 0,
    }
    assert done.source.done == done.source.total == 90


async def test_people_see_a_bar_and_what_came_of_it(
    city: City, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    request = CaptureRequest("memory", tmp_path / "a.avro", all_lives=True)
    transport = MemoryTransport(city.broker)
    await capture_from(transport, request, request.wanted(NOW_MS), NOW_MS, Output.make(False))
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "90/90 offsets" in printed.err


async def test_one_live(city: City, tmp_path: Path) -> None:
    await captured(city, tmp_path / "a.avro", live_id="live-2")
    entries = read(tmp_path / "a.avro")
    assert places(entries) == {
        TEXT_TOPIC: city.written(TEXT_TOPIC, "live-2"),
        EVENTS_TOPIC: city.written(EVENTS_TOPIC, "live-2"),
    }
    with CaptureReader(tmp_path / "a.avro") as reader:
        assert reader.header.live_id == "live-2"
        assert reader.header.partition_count == PARTITIONS


async def test_a_topic_of_somebody_else_s_cluster(tmp_path: Path) -> None:
    city = City(events=False)
    offsets = [city.say("live-1", f"Word {n}. ") for n in range(3)]
    done = await captured(city, tmp_path / "a.avro", live_id="live-1")
    assert [entry.offset for entry in read(tmp_path / "a.avro")] == offsets
    assert done.tally.events == 0
    with CaptureReader(tmp_path / "a.avro") as reader:
        assert reader.header.event_ranges == {}


async def test_a_topic_by_another_name(city: City, tmp_path: Path) -> None:
    city.broker.make_topic(TopicSpec("words", 1))
    city.broker.log("words", 0).append(LogRecord("words", 0, 0, None, b"x", (), START_MS))
    await captured(city, tmp_path / "a.avro", topic="words", events_topic="none")
    (entry,) = read(tmp_path / "a.avro")
    assert entry == CapturedRecord("words", 0, 0, START_MS, None, b"x", ())


async def test_a_range_of_time_has_what_its_records_need(city: City, tmp_path: Path) -> None:
    """Lives that were open before it: how they were opened, and who owned them."""
    city.tell("live-1", EventKind.CLAIMED, city.say("live-1") + 1, epoch=2)
    from_ms = city.at_ms + 500
    first = city.say("live-1", "In the range.")
    city.tell("live-1", EventKind.MOVED)
    until_ms = city.at_ms + 500
    city.tell("live-1", EventKind.SPEAK_ENDED, first)
    city.say("live-1", "Behind it.")
    city.tell("live-1", EventKind.MOVED)
    span = {"begin": f"-{NOW_MS - from_ms}ms", "until": f"-{NOW_MS - until_ms}ms"}
    await captured(city, tmp_path / "a.avro", live_id="live-1", **span)
    entries = read(tmp_path / "a.avro")
    opening, claim, record, moved, ended = entries
    assert isinstance(opening, CapturedEvent)
    assert options_of(opening.event) == LiveOptions(seed=1)
    assert isinstance(claim, CapturedEvent)
    assert (claim.event.kind, claim.event.epoch) == (EventKind.CLAIMED, 2)
    assert isinstance(record, CapturedRecord)
    assert record.offset == first
    assert isinstance(moved, CapturedEvent)
    assert moved.event.kind is EventKind.MOVED
    assert isinstance(ended, CapturedEvent)
    assert (ended.event.kind, ended.event.offset) == (EventKind.SPEAK_ENDED, first)


async def test_offsets(city: City, tmp_path: Path) -> None:
    partition = partition_of(b"live-3", PARTITIONS)
    mine = sorted(offset for _, offset in city.written(TEXT_TOPIC, "live-3"))
    begin, end = mine[2], mine[5]
    await captured(city, tmp_path / "a.avro", live_id="live-3", begin=str(begin), until=str(end))
    records = [e.offset for e in read(tmp_path / "a.avro") if isinstance(e, CapturedRecord)]
    assert records == mine[2:5]
    await captured(
        city, tmp_path / "b.avro", begin=f"{partition}:{begin}", until=f"{partition}:{end}"
    )
    texts = places(read(tmp_path / "b.avro"))[TEXT_TOPIC]
    assert texts == {
        (p, offset)
        for p, offset in city.written(TEXT_TOPIC)
        if p != partition or begin <= offset < end
    }


async def test_a_span_after_the_beginning(city: City, tmp_path: Path) -> None:
    await captured(city, tmp_path / "a.avro", until="+20s")
    records = [e for e in read(tmp_path / "a.avro") if isinstance(e, CapturedRecord)]
    first_ms = min(one.timestamp_ms for one in records)
    assert 5 < len(records) < 40
    assert max(one.timestamp_ms for one in records) < first_ms + 20_000
    begin = f"-{NOW_MS - first_ms - 5_000}ms"
    await captured(city, tmp_path / "b.avro", begin=begin, until="+5s")
    times = [e.timestamp_ms for e in read(tmp_path / "b.avro") if isinstance(e, CapturedRecord)]
    assert times
    assert all(first_ms + 5_000 <= at < first_ms + 10_000 for at in times)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"begin": "3"}, "of which of the 4 partitions"),
        ({"begin": "9:3"}, "partition 9 is not read"),
        ({"begin": "0:999"}, r"outside the log \[0, "),
        ({"begin": "+5m"}, "only the end of a range"),
        ({"begin": "-9950s", "until": "-9990s"}, "ends before it begins"),
    ],
)
async def test_ranges_that_are_not_there(
    city: City, tmp_path: Path, asked: dict[str, str], said: str
) -> None:
    with pytest.raises(BadRange, match=said):
        await captured(city, tmp_path / "a.avro", **asked)
    assert list(tmp_path.iterdir()) == []


async def test_timestamps_that_go_back_keep_the_logs_order(tmp_path: Path) -> None:
    city = City()
    random = Random(5)
    for number in range(60):
        city.say(LIVES[number % 5], at_ms=START_MS + random.randrange(1_000))
    await captured(city, tmp_path / "a.avro")
    last: dict[int, int] = {}
    for entry in read(tmp_path / "a.avro"):
        assert entry.offset == last.get(entry.partition, -1) + 1
        last[entry.partition] = entry.offset
    assert sum(last.values()) + len(last) == 60


async def test_gaps_are_told(city: City, tmp_path: Path) -> None:
    partition = partition_of(b"live-1", PARTITIONS)
    end = city.broker.log(TEXT_TOPIC, partition).end
    city.broker.leave_gap(TEXT_TOPIC, partition, 3)
    city.say("live-1")
    city.broker.leave_gap(TEXT_TOPIC, partition, 2)  # As a transaction's marker ends a log.
    done = await captured(city, tmp_path / "a.avro")
    assert done.document()["findings"] == [
        f"{TEXT_TOPIC} partition {partition}: offsets {end} to {end + 2} are not there",
        f"{TEXT_TOPIC} partition {partition}: offsets {end + 4} to {end + 5} are not there",
    ]
    assert done.document()["missing_offsets"] == 5


async def test_an_unreadable_event_is_counted(city: City, tmp_path: Path) -> None:
    city._put(EVENTS_TOPIC, 0, b"live-1", b"junk", None)
    city._put(EVENTS_TOPIC, 0, b"live-1", None, None)
    done = await captured(city, tmp_path / "a.avro")
    assert done.source.unreadable_events == 2
    assert done.tally.events == 50


async def test_a_live_that_is_not_there(city: City, tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="holds no record of live 'nobody'"):
        await captured(city, tmp_path / "a.avro", live_id="nobody")
    assert list(tmp_path.iterdir()) == []


async def test_an_empty_topic_is_an_empty_capture(tmp_path: Path) -> None:
    done = await captured(City(), tmp_path / "a.avro")
    assert read(done.path) == []


async def test_records_deleted_while_they_are_read(
    city: City, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retention is quicker than the capture: the loss is named and the rest is captured."""
    partition = partition_of(b"live-1", PARTITIONS)
    monkeypatch.setattr(merging, "RECORDS_PER_READ", 4)
    honest = MemoryRangeReader.read

    async def read_and_cut(self: MemoryRangeReader, *given: int, **more: int):
        found = await honest(self, *given, **more)
        if self._topic == TEXT_TOPIC and given[0] == partition and found[-1:]:
            city.broker.cut_log(TEXT_TOPIC, partition, 7)
        return found

    monkeypatch.setattr(MemoryRangeReader, "read", read_and_cut)
    done = await captured(city, tmp_path / "a.avro")
    assert [(one.first, one.end) for one in done.source.lost] == [(4, 7)]
    offsets = {o for p, o in places(read(done.path))[TEXT_TOPIC] if p == partition}
    assert offsets == {0, 1, 2, 3, *range(7, city.broker.log(TEXT_TOPIC, partition).end)}


# -- breaks


def block_ends(path: Path) -> list[int]:
    with path.open("rb") as file:
        head = read_header(file)
        return [head.size, *(block.end for block in Blocks(file, head, CODECS["null"]))]


def cuts(path: Path) -> Iterator[int]:
    """Where a capture may have been killed: at every block's end and within the next one."""
    size = path.stat().st_size
    for end in block_ends(path):
        yield end
        if end < size:
            yield min(size, end + 7)


@pytest.mark.parametrize("asked", [{}, {"live_id": "live-1"}, {"begin": "-9995s"}])
async def test_a_capture_killed_anywhere_goes_on_to_the_same_entries(
    city: City, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: dict[str, str]
) -> None:
    monkeypatch.setattr(capture_file, "BLOCK_BYTES", 300)
    whole = tmp_path / "whole.avro"
    await captured(city, whole, **asked)
    entries = read(whole)
    city.say("live-1", "Written after the capture began: no part of it.")
    path = tmp_path / "a.avro"
    tried = 0
    for size in cuts(whole):
        part_of(path).write_bytes(whole.read_bytes()[:size])
        done = await captured(city, path, resume=True, **asked)
        assert read(path) == entries
        assert done.tally.records + done.tally.events == len(entries)
        assert done.document()["findings"] == []
        path.unlink()
        tried += 1
    assert tried > 8


async def test_a_broker_that_goes_away_leaves_what_was_captured(
    city: City, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merging, "RECORDS_PER_READ", 2)
    path = tmp_path / "a.avro"
    honest = capture_file.CaptureWriter.write

    def write_and_cut(self: capture_file.CaptureWriter, entry: Entry) -> None:
        honest(self, entry)
        if self.entries == 30:
            city.broker.away = True

    monkeypatch.setattr(capture_file.CaptureWriter, "write", write_and_cut)
    with pytest.raises(BrokerAway):
        await captured(city, path)
    assert not path.exists()
    kept = read(part_of(path))
    assert len(kept) >= 30
    monkeypatch.undo()
    city.broker.away = False
    await captured(city, path, resume=True)
    await captured(city, tmp_path / "b.avro")
    assert read(path) == read(tmp_path / "b.avro")


async def test_going_on_with_another_capture_is_refused(city: City, tmp_path: Path) -> None:
    await captured(city, tmp_path / "b.avro", live_id="live-1")
    part_of(tmp_path / "a.avro").write_bytes((tmp_path / "b.avro").read_bytes()[:-3])
    with pytest.raises(CaptureError, match=r"is a capture of live live-1 from dhsched\.text"):
        await captured(city, tmp_path / "a.avro", resume=True)
    with pytest.raises(CaptureError, match="is left of a capture that was interrupted"):
        await captured(city, tmp_path / "a.avro", live_id="live-1")


async def test_nothing_to_go_on_with_is_a_beginning(city: City, tmp_path: Path) -> None:
    done = await captured(city, tmp_path / "a.avro", resume=True)
    assert done.tally.records == 40


# -- usage


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({}, "--live, or all of them with --all"),
        ({"live_id": "a", "all_lives": True}, "--live, or all of them with --all"),
        ({"live_id": "x" * 129}, "1 to 128 bytes"),
        ({"all_lives": True, "begin": "noon"}, "--from: 'noon' is neither"),
        ({"all_lives": True, "until": "-10"}, "--until: '10' is no length"),
    ],
)
def test_wrong_usage(asked: dict[str, object], said: str) -> None:
    with pytest.raises(CommandFailed, match=said) as error:
        replace(CaptureRequest("k", Path("a.avro")), **asked).wanted(NOW_MS)
    assert error.value.exit_status == 2


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"kafka": ""}, "name the brokers"),
        ({"kafka": "here:nowhere"}, "is not HOST:PORT"),
        ({"codec": "zip"}, "no codec 'zip'"),
        ({"out": Path("/no/such/folder/a.avro")}, "does not exist"),
    ],
)
async def test_what_is_wrong_is_said_before_a_broker_is_asked(
    asked: dict[str, object], said: str
) -> None:
    request = replace(CaptureRequest("127.0.0.1:9", Path("a.avro"), all_lives=True), **asked)
    with pytest.raises(CommandFailed, match=said) as error:
        await capture_module.capture(request, Output.make(as_json=True))
    assert error.value.exit_status == 2
