"""A capture of a million records is read in the memory of one block."""

import io
import os
from pathlib import Path

import fastavro

from dhsched.offline import capture_file
from dhsched.offline.capture_file import CaptureReader, CaptureWriter
from dhsched.offline.codecs import CODECS
from dhsched.offline.container import read_header, write_block
from dhsched.offline.entries import CapturedRecord
from dhsched.offline.rows import row_of
from schemas.registry import versions
from schemas.topics import EVENTS_TOPIC
from tests.unit.dhsched.offline.captures import HEADER

RECORDS = 1_000_000
PER_BLOCK = 1_000
GROWTH_BYTES_MAX = 24 * 1024 * 1024


def held_bytes() -> int:
    """What this process holds in memory now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def small(offset: int) -> CapturedRecord:
    return CapturedRecord("t", 0, offset, offset, b"a", b"{}")


def a_million(path: Path) -> Path:
    """A capture of RECORDS records; every block is the same one, for the sake of speed."""
    with CaptureWriter(path, HEADER, codec="null") as writer:
        writer.commit()
    with path.open("rb") as file:
        sync = read_header(file).sync
    payload = io.BytesIO()
    schema = versions(capture_file.SCHEMA)[-1].parsed
    for offset in range(PER_BLOCK):
        fastavro.schemaless_writer(payload, schema, row_of(small(offset), EVENTS_TOPIC))
    block = write_block(PER_BLOCK, payload.getvalue(), CODECS["null"], sync)
    with path.open("ab") as file:
        for _ in range(RECORDS // PER_BLOCK):
            file.write(block)
    return path


def test_a_million_records_are_read_in_the_memory_of_one_block(tmp_path: Path) -> None:
    path = a_million(tmp_path / "a.avro")
    read = at_first = most = 0
    with CaptureReader(path) as reader:
        for _ in reader:
            read += 1
            if read % 50_000 == 0:
                held = held_bytes()
                at_first = at_first or held
                most = max(most, held)
    path.unlink()  # Tens of megabytes that pytest would keep.
    assert read == RECORDS
    assert most - at_first < GROWTH_BYTES_MAX, f"it grew by {most - at_first} bytes"
