"""Entries as rows of the schema `capture_entry`, and the header as the file's metadata.

PURE.
"""

import json
from collections.abc import Mapping
from typing import Any, Final, TypeAlias, cast

from dhsched.offline.entries import CapturedEvent, CapturedRecord, CaptureHeader, Entry, Headers
from schemas.events import EventKind, LiveEvent
from schemas.topics import EVENTS_TOPIC, TEXT_PARTITIONS, TEXT_TOPIC

Row: TypeAlias = dict[str, Any]

METADATA_KEY: Final = "dhsched.capture"


class BadRow(ValueError):
    """A row that fits the schema and says something that cannot be."""


def row_of(entry: Entry, events_topic: str) -> Row:
    """The row of an entry. An event's original bytes are not kept: its fields are."""
    match entry:
        case CapturedRecord():
            return {
                "topic": entry.topic,
                "partition": entry.partition,
                "offset": entry.offset,
                "timestamp_ms": entry.timestamp_ms,
                "key": entry.key,
                "value": entry.value,
                "headers": [{"name": name, "value": value} for name, value in entry.headers],
                "event": None,
            }
        case CapturedEvent(event=event):
            return {
                "topic": events_topic,
                "partition": entry.partition,
                "offset": entry.offset,
                "timestamp_ms": entry.timestamp_ms,
                "key": event.live_id.encode(),
                "value": None,
                "headers": [],
                "event": {
                    "kind": event.kind.value,
                    "event_id": event.event_id,
                    "source_event_id": event.source_event_id,
                    "live_id": event.live_id,
                    "worker_id": event.worker_id,
                    "epoch": event.epoch,
                    "at_ms": event.at_ms,
                    "offset": event.offset,
                    "data": json.dumps(dict(event.data), separators=(",", ":")),
                },
            }


def headers_of(rows: list[Row]) -> Headers:
    """A record's headers."""
    return tuple((row["name"], row["value"]) for row in rows)


def event_of(row: Row) -> CapturedEvent:
    """The entry of a row that holds an event. Raises BadRow."""
    fields = cast(Row, row["event"])
    try:
        kind = EventKind(fields["kind"])
        data: Any = json.loads(fields["data"])
    except (ValueError, RecursionError) as error:
        raise BadRow(f"event {fields['event_id']!r}: {error}") from error
    if not isinstance(data, dict):
        raise BadRow(f"event {fields['event_id']!r}: its data is not a JSON object")
    event = LiveEvent(
        kind=kind,
        event_id=fields["event_id"],
        source_event_id=fields["source_event_id"],
        live_id=fields["live_id"],
        worker_id=fields["worker_id"],
        epoch=fields["epoch"],
        at_ms=fields["at_ms"],
        offset=fields["offset"],
        data=cast("dict[str, Any]", data),
    )
    return CapturedEvent(event, row["partition"], row["offset"], row["timestamp_ms"])


def metadata_of(header: CaptureHeader) -> bytes:
    """The header as a JSON object."""
    return json.dumps(
        {
            "topic": header.topic,
            "partition_count": header.partition_count,
            "captured_at_ms": header.captured_at_ms,
            "version": header.version,
            "live_id": header.live_id,
            "ranges": {str(p): list(span) for p, span in header.ranges.items()},
            "events_topic": header.events_topic,
            "event_ranges": {str(p): list(span) for p, span in header.event_ranges.items()},
            "from_ms": header.from_ms,
            "until_ms": header.until_ms,
        },
        separators=(",", ":"),
    ).encode()


def header_of(raw: bytes | None) -> CaptureHeader:
    """The header in a file's metadata; a plain one when another tool left it out.

    Raises BadRow.
    """
    if raw is None:
        return CaptureHeader(TEXT_TOPIC, TEXT_PARTITIONS, 0, "", events_topic=EVENTS_TOPIC)
    try:
        given: Any = json.loads(raw)
        live_id, from_ms, until_ms = (given[name] for name in ("live_id", "from_ms", "until_ms"))
        return CaptureHeader(
            topic=str(given["topic"]),
            partition_count=int(given["partition_count"]),
            captured_at_ms=int(given["captured_at_ms"]),
            version=str(given["version"]),
            live_id=None if live_id is None else str(live_id),
            ranges=_ranges(given["ranges"]),
            events_topic=str(given["events_topic"]),
            event_ranges=_ranges(given["event_ranges"]),
            from_ms=None if from_ms is None else int(from_ms),
            until_ms=None if until_ms is None else int(until_ms),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BadRow(f"its metadata {METADATA_KEY} cannot be read: {error!r}") from error


def _ranges(given: Mapping[str, list[int]]) -> dict[int, tuple[int, int]]:
    return {int(partition): (int(first), int(end)) for partition, (first, end) in given.items()}
