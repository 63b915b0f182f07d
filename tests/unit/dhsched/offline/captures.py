"""Entries and captures for the tests of this folder."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from dhsched.offline.capture_file import CaptureReader, CaptureWriter
from dhsched.offline.entries import CapturedEvent, CapturedRecord, CaptureHeader, Entry
from schemas.events import EventKind, LiveEvent
from schemas.text_record import RecordKind, TextRecord, encode_text_record
from schemas.topics import TEXT_TOPIC

START_MS = 1_764_000_000_000

HEADER = CaptureHeader(
    topic=TEXT_TOPIC,
    partition_count=4,
    captured_at_ms=START_MS,
    version="0.1.0",
    ranges={0: (0, 100), 3: (5, 7)},
    event_ranges={1: (2, 40)},
    from_ms=START_MS,
)


def record(offset: int, text: str = "Some words.", live: str = "live-1", **more: int) -> Entry:
    """A record of the text topic; `more`: partition, timestamp_ms."""
    value = encode_text_record(TextRecord(RecordKind.TEXT, text, event_id=f"e{offset}"))
    return CapturedRecord(
        topic=TEXT_TOPIC,
        partition=more.get("partition", 0),
        offset=offset,
        timestamp_ms=more.get("timestamp_ms", START_MS + offset),
        key=live.encode(),
        value=value,
    )


def event(
    offset: int, kind: EventKind = EventKind.CLAIMED, live: str = "live-1", **data: str | int
) -> CapturedEvent:
    """An event at this offset of partition 1 of the events topic."""
    at_ms = START_MS + offset
    said = LiveEvent(kind, f"e{offset}", "", live, "worker-1", 3, at_ms, offset, dict(data))
    return CapturedEvent(said, 1, offset, at_ms)


def write(
    path: Path, entries: Iterable[Entry], codec: str = "null", header: CaptureHeader = HEADER
) -> Path:
    """A whole capture."""
    with CaptureWriter(path, header, codec=codec) as writer:
        for entry in entries:
            writer.write(entry)
        writer.commit()
    return path


def read(path: Path) -> Sequence[Entry]:
    """All entries of a capture."""
    with CaptureReader(path) as reader:
        return list(reader)
