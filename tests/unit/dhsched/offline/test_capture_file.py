"""Captures as files: what any Avro tool reads of them, and what broken ones do."""

import json
import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import fastavro
import pytest

from dhsched.offline import capture_file
from dhsched.offline.capture_file import CaptureError, CaptureReader, CaptureWriter, part_of
from dhsched.offline.codecs import CODECS
from dhsched.offline.entries import CapturedRecord, Entry
from schemas.registry import versions
from schemas.topics import EVENTS_TOPIC, TEXT_TOPIC
from tests.unit.dhsched.offline.captures import HEADER, event, read, record, write

ODD: list[Entry] = [
    CapturedRecord("t", 2, 7, 0, None, None, ()),
    CapturedRecord("t", 2, 9, -1, b"\xff\x00", b"", (("a", None), ("a", b"\x00"), ("", b"x"))),
    CapturedRecord("t", 0, 2**63 - 1, 2**63 - 1, b"k", b"v" * 300_000, ()),
    event(4, segments=2, frame=100, text="Grüße 🙂", state="open"),
]


@pytest.mark.parametrize("codec", CODECS)
def test_what_was_written_is_read(tmp_path: Path, codec: str) -> None:
    entries = [*ODD, *(record(offset) for offset in range(3_000)), event(5)]
    path = write(tmp_path / "a.avro", entries, codec)
    with CaptureReader(path) as reader:
        assert list(reader) == entries
        assert list(reader) == entries, "a second reading starts over"
        assert reader.header == HEADER
        assert reader.codec == codec
        assert reader.truncated_at is None
        assert reader.whole_bytes == path.stat().st_size
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("codec", [name for name in CODECS if name != "zstandard"])
def test_fastavro_alone_reads_it(tmp_path: Path, codec: str) -> None:
    path = write(tmp_path / "a.avro", [record(1), event(4, frame=9)], codec)
    with path.open("rb") as file:
        reader = fastavro.reader(file)
        text, said = list(reader)
        schema = reader.writer_schema
    assert schema["name"] == "dhsched.CaptureEntry"
    assert (text["topic"], text["offset"], text["key"]) == (TEXT_TOPIC, 1, b"live-1")
    assert text["value"] == record(1).value
    assert (said["topic"], said["event"]["kind"]) == (EVENTS_TOPIC, "claimed")
    assert json.loads(said["event"]["data"]) == {"frame": 9}


@pytest.mark.parametrize("codec", [name for name in CODECS if name != "zstandard"])
def test_what_another_tool_rewrote_is_read(tmp_path: Path, codec: str) -> None:
    entries = [*ODD, record(1)]
    first = write(tmp_path / "a.avro", entries)
    other = tmp_path / "b.avro"
    with first.open("rb") as source, other.open("wb") as target:
        rows = list(fastavro.reader(source))
        fastavro.writer(target, versions("capture_entry")[-1].parsed, rows, codec=codec)
    with CaptureReader(other) as reader:
        assert list(reader) == entries
        assert reader.header.topic == TEXT_TOPIC


def test_an_empty_capture(tmp_path: Path) -> None:
    path = write(tmp_path / "a.avro", [])
    assert read(path) == []


def test_every_truncation_gives_the_whole_blocks_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capture_file, "BLOCK_BYTES", 200)
    entries = [record(offset) for offset in range(20)]
    whole = write(tmp_path / "a.avro", entries, "deflate").read_bytes()
    cut = tmp_path / "cut.avro"
    cut.write_bytes(whole)
    with cut.open("rb") as file:
        blocks = [(block.offset, block.num_records) for block in fastavro.block_reader(file)]
    assert len(blocks) > 3
    ends = [*(start for start, _ in blocks[1:]), len(whole)]
    counts = [sum(count for _, count in blocks[: n + 1]) for n in range(len(blocks))]
    for size in range(blocks[0][0], len(whole)):
        cut.write_bytes(whole[:size])
        done = [n for n, end in enumerate(ends) if end <= size]
        expected = counts[done[-1]] if done else 0
        at = ends[done[-1]] if done else blocks[0][0]
        with CaptureReader(cut) as reader:
            assert list(reader) == entries[:expected]
            assert reader.truncated_at == (None if at == size else at)
            assert reader.whole_bytes == at
            assert bool(reader.trouble) == (at != size)


TAILS = [b"\x00" * 64, b"\x01junk", b"\xff" * 40, b"\x02\x04ab" + b"x" * 16]


@pytest.mark.parametrize("tail", TAILS)
def test_bytes_that_are_no_block_end_the_whole_part(tmp_path: Path, tail: bytes) -> None:
    path = write(tmp_path / "a.avro", [record(0)])
    size = path.stat().st_size
    with path.open("ab") as file:
        file.write(tail)
    with CaptureReader(path) as reader:
        assert list(reader) == [record(0)]
        assert reader.truncated_at == size


def test_a_block_that_expands_without_bound_ends_the_whole_part(tmp_path: Path) -> None:
    path = write(tmp_path / "a.avro", [record(0)], "deflate")
    with CaptureReader(path) as reader:
        sync = reader._head.sync
    bomb = CODECS["deflate"].compress(b"\x00" * (65 * 1024 * 1024))
    with path.open("ab") as file:
        from dhsched.offline.container import write_long

        file.write(write_long(1) + write_long(len(bomb)) + bomb + sync)
    with CaptureReader(path) as reader:
        assert list(reader) == [record(0)]
        assert "does not end within" in reader.trouble


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "it is empty"),
        (b"{}", "no Avro object container"),
        (b"Obj\x01", "its header is cut off"),
        (b"Obj\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", "ten bytes"),
        (b"Obj\x01\x02\x02a\x02b\x00" + b"s" * 16, "its schema cannot be read"),
    ],
)
def test_what_is_no_container(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "a.avro"
    path.write_bytes(content)
    with pytest.raises(CaptureError, match=said):
        CaptureReader(path)


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ('"string"', "another schema"),
        ('{"type": "record", "name": "Other", "fields": []}', "'Other' of another schema"),
        (
            '{"type": "record", "name": "R", "fields": [{"name": "r", "type": "R"}]}',
            "contains itself",
        ),
        ("[1]", "cannot be read"),
    ],
)
def test_another_schema(tmp_path: Path, schema: str, said: str) -> None:
    from dhsched.offline.container import write_header

    path = tmp_path / "a.avro"
    path.write_bytes(write_header({"avro.schema": schema.encode()}, b"s" * 16))
    with pytest.raises(CaptureError, match=said):
        CaptureReader(path)


def test_an_unknown_codec(tmp_path: Path) -> None:
    path = write(tmp_path / "a.avro", [])
    path.write_bytes(path.read_bytes().replace(b"\x08null", b"\x08lzzz"))
    with pytest.raises(CaptureError, match=r"'lzzz' is not known here; known: null, deflate"):
        CaptureReader(path)
    with pytest.raises(CaptureError, match="no codec 'lzzz'"):
        CaptureWriter(tmp_path / "b.avro", HEADER, codec="lzzz")
    assert not part_of(tmp_path / "b.avro").exists()


def test_rows_that_cannot_be(tmp_path: Path) -> None:
    path = write(tmp_path / "a.avro", [event(4)])
    with path.open("rb") as file:
        (row,) = fastavro.reader(file)
    row["event"]["kind"] = "danced"
    with path.open("wb") as file:
        fastavro.writer(file, versions("capture_entry")[-1].parsed, [row])
    with CaptureReader(path) as reader, pytest.raises(CaptureError, match="danced"):
        list(reader)


def test_a_payload_that_does_not_decode(tmp_path: Path) -> None:
    path = write(tmp_path / "a.avro", [record(0)])
    with CaptureReader(path) as reader:
        sync = reader._head.sync
    with path.open("ab") as file:
        file.write(b"\x06\x08abcd" + sync)
    found: list[Entry] = []
    with CaptureReader(path) as reader, pytest.raises(CaptureError, match="does not decode"):
        found.extend(reader)
    assert found == [record(0)]


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="No such file"):
        CaptureReader(tmp_path / "a.avro")


# -- writing


def test_nothing_stands_under_the_final_name_before_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.avro"
    with CaptureWriter(path, HEADER, codec="null") as writer:
        writer.write(record(0))
        writer.flush()
        assert not path.exists()
        writer.commit()
        assert path.exists()
    with CaptureWriter(tmp_path / "b.avro", HEADER) as writer:
        writer.write(record(0))
    assert not (tmp_path / "b.avro").exists()


def test_a_path_that_exists_is_refused_unless_it_may_be_replaced(tmp_path: Path) -> None:
    path = write(tmp_path / "a.avro", [record(0)])
    with pytest.raises(CaptureError, match="exists; name another file, or replace it"):
        CaptureWriter(path, HEADER)
    with pytest.raises(CaptureError, match="is a folder"):
        CaptureWriter(tmp_path, HEADER)
    with pytest.raises(CaptureError, match="does not exist; make it first"):
        CaptureWriter(tmp_path / "no" / "a.avro", HEADER)
    with CaptureWriter(path, HEADER, overwrite=True) as writer:
        assert read(path) == [record(0)]
        writer.commit()
    assert read(path) == []


def test_a_file_that_appeared_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a.avro"
    with CaptureWriter(path, HEADER) as writer:
        writer.write(record(0))
        path.write_bytes(b"somebody else's")
        with pytest.raises(CaptureError, match="exists"):
            writer.commit()
    assert path.read_bytes() == b"somebody else's"
    assert read(part_of(path)) == [record(0)]


def test_going_on_behind_the_last_whole_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capture_file, "BLOCK_BYTES", 500)
    path = tmp_path / "a.avro"
    with CaptureWriter(path, HEADER, codec="deflate") as writer:
        for offset in range(50):
            writer.write(record(offset))
        writer.flush()
    part = part_of(path)
    whole = part.read_bytes()
    part.write_bytes(whole[:-5])
    with pytest.raises(CaptureError, match="go on with --resume"):
        CaptureWriter(path, HEADER)
    assert part.read_bytes() == whole[:-5]
    seen: list[Entry] = []
    with CaptureWriter.resume(path, seen.append) as writer:
        assert 0 < len(seen) < 50
        assert seen == [record(offset) for offset in range(len(seen))]
        assert writer.header == HEADER
        for offset in range(len(seen), 60):
            writer.write(record(offset))
        writer.commit()
        assert writer.entries == 60
    assert read(path) == [record(offset) for offset in range(60)]
    with path.open("rb") as file:
        assert len(list(fastavro.reader(file))) == 60


def test_going_on_with_nothing(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="there is no interrupted capture"):
        CaptureWriter.resume(tmp_path / "a.avro", print)
    part_of(tmp_path / "a.avro").write_bytes(b"")
    with pytest.raises(CaptureError, match="it is empty"):
        CaptureWriter.resume(tmp_path / "a.avro", print)


def test_two_writers_of_one_file(tmp_path: Path) -> None:
    path = tmp_path / "a.avro"
    with CaptureWriter(path, HEADER) as writer:
        writer.write(record(0))
        with pytest.raises(CaptureError, match="another process writes"):
            CaptureWriter.resume(path, print)
        with pytest.raises(CaptureError, match="another process writes"):
            CaptureWriter(path, HEADER, overwrite=True)
        writer.commit()
    assert read(path) == [record(0)]


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """The kernel takes no more bytes per file, as a full disk takes none."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_a_disk_without_room_for_the_beginning_keeps_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.avro"
    with files_of_at_most(100), pytest.raises(CaptureError, match="cannot write"):
        CaptureWriter(path, HEADER)
    assert list(tmp_path.iterdir()) == []


def test_a_capture_that_was_killed_before_its_beginning_is_none(tmp_path: Path) -> None:
    path = tmp_path / "a.avro"
    part_of(path).touch()
    assert read(write(path, [record(0)])) == [record(0)]


def write_all(writer: CaptureWriter, entries: list[Entry]) -> None:
    for entry in entries:
        writer.write(entry)


def test_a_full_disk(tmp_path: Path) -> None:
    path = tmp_path / "a.avro"
    entries = [record(offset, os.urandom(400).hex()) for offset in range(400)]
    with CaptureWriter(path, HEADER, codec="null") as writer:
        with files_of_at_most(200_000), pytest.raises(CaptureError, match="no space left") as said:
            write_all(writer, entries)
        assert "a.avro.part" in str(said.value)
        assert "--resume" in str(said.value)
    assert not path.exists()
    seen: list[Entry] = []
    with CaptureWriter.resume(path, seen.append) as writer:
        assert seen == entries[: len(seen)]
        assert seen
        for entry in entries[len(seen) :]:
            writer.write(entry)
        writer.commit()
    assert read(path) == entries


@pytest.mark.parametrize("codec", CODECS)
def test_damaged_bytes_are_read_or_refused_and_nothing_else(tmp_path: Path, codec: str) -> None:
    entries = [*ODD[:2], *ODD[3:], *(record(offset) for offset in range(40))]
    whole = write(tmp_path / "whole.avro", entries, codec).read_bytes()
    path = tmp_path / "a.avro"
    random = Random(codec)
    read_whole, refusals = 0, list[str]()
    for _ in range(250):
        damaged = bytearray(whole)
        for _ in range(random.randint(1, 4)):
            # As often in the short header as in the blocks.
            at = random.randrange(random.choice([2_000, len(whole)]))
            damaged[min(at, len(whole) - 1)] = random.randrange(256)
        path.write_bytes(damaged)
        try:
            with CaptureReader(path) as reader:
                read_whole += sum(1 for _ in reader) == len(entries)
        except CaptureError as error:
            refusals.append(str(error))
    assert read_whole
    assert refusals
    assert all(str(path) in said for said in refusals)
