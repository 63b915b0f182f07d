"""Which offsets a capture is about, asked of the topics before the first record is read."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Final

from dhsched.offline.entries import CaptureHeader
from dhsched.offline.ranges import AfterBegin, AtOffset, AtOffsets, AtTime, Point
from schemas.partition import partition_of
from schemas.topics import EVENTS_TOPIC, TEXT_TOPIC
from stream.transport import RangeReader, Transport

# How long after the range's end its last records may still be spoken, and events tell of it.
SPOKEN_AFTER_MS: Final = 10 * 60_000
_READ_MS: Final = 2_000


class BadRange(Exception):
    """The caller's fault: the topic has no such range."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """`live_id` None: all lives. Without `begin` and `end`: all there is."""

    live_id: str | None = None
    begin: Point | None = None
    end: Point | None = None
    topic: str = TEXT_TOPIC
    events_topic: str = EVENTS_TOPIC


async def fix_range(
    transport: Transport, reader: RangeReader, wanted: Wanted, now_ms: int
) -> CaptureHeader:
    """The text topic's part. Raises BadRange, UnknownTopic, BrokerAway."""
    count = await transport.partition_count(wanted.topic)
    live_id = wanted.live_id
    partitions = list(range(count))
    if live_id is not None:
        partitions = [partition_of(live_id.encode(), count)]
    logs = {partition: await reader.log_range(partition) for partition in partitions}
    firsts = await _at(reader, wanted.begin, logs, {p: log[0] for p, log in logs.items()})
    from_ms = None if wanted.begin is None else await _time_of(reader, wanted.begin, firsts, logs)
    end = wanted.end
    if isinstance(end, AfterBegin):
        if from_ms is None:
            from_ms = await _time_of(reader, AtOffset(0), firsts, logs)
        if from_ms is None:
            raise BadRange("there is no record for the end of the range to be counted from")
        end = AtTime(from_ms + end.ms)
    ends = await _at(reader, end, logs, {p: log[1] for p, log in logs.items()})
    until_ms = None if end is None else await _time_of(reader, end, ends, logs)
    for partition in partitions:
        if ends[partition] < firsts[partition]:
            raise BadRange(
                f"the range ends before it begins: in partition {partition} it would be "
                f"[{firsts[partition]}, {ends[partition]})"
            )
    return CaptureHeader(
        topic=wanted.topic,
        partition_count=count,
        captured_at_ms=now_ms,
        version=version("dhsched"),
        live_id=live_id,
        ranges={p: (firsts[p], ends[p]) for p in partitions},
        events_topic=wanted.events_topic,
        from_ms=None if wanted.begin is None else from_ms,
        until_ms=until_ms,
    )


async def _at(
    reader: RangeReader,
    point: Point | None,
    logs: Mapping[int, tuple[int, int]],
    otherwise: Mapping[int, int],
) -> dict[int, int]:
    """The offset of a point in every partition."""
    match point:
        case None:
            return dict(otherwise)
        case AtTime(ms):
            return {p: await reader.offset_at(p, ms) for p in logs}
        case AfterBegin():
            raise BadRange("only the end of a range can be counted from its beginning (+5m)")
        case AtOffset(offset):
            if len(logs) != 1:
                raise BadRange(
                    f"offset {offset} of which of the {len(logs)} partitions? Name one live, or "
                    "offsets by partition (0:1200,3:80)"
                )
            given: Mapping[int, int] = dict.fromkeys(logs, offset)
        case AtOffsets(by_partition):
            given = by_partition
    for partition, offset in given.items():
        if partition not in logs:
            raise BadRange(f"partition {partition} is not read; read are {sorted(logs)}")
        log_start, log_end = logs[partition]
        if not log_start <= offset <= log_end:
            raise BadRange(
                f"offset {offset} of partition {partition} is outside the log "
                f"[{log_start}, {log_end})"
            )
    return {**otherwise, **given}


async def _time_of(
    reader: RangeReader,
    point: Point,
    offsets: Mapping[int, int],
    logs: Mapping[int, tuple[int, int]],
) -> int | None:
    """Unix milliseconds of a point; None when there is nothing at or behind it."""
    if isinstance(point, AtTime):
        return point.ms
    times: list[int] = []
    for partition, offset in offsets.items():
        if offset < logs[partition][1]:
            found = await reader.read(partition, offset, records_max=1, timeout_ms=_READ_MS)
            times += [record.timestamp for record in found]
    return min(times, default=None)


async def fix_events(
    reader: RangeReader, count: int, header: CaptureHeader
) -> dict[int, tuple[int, int]]:
    """The offsets of the events that may belong to it. Raises BrokerAway."""
    live_id = header.live_id
    partitions = list(range(count))
    if live_id is not None:
        partitions = [partition_of(live_id.encode(), count)]
    spans: dict[int, tuple[int, int]] = {}
    for partition in partitions:
        first, end = await reader.log_range(partition)
        if header.until_ms is not None:
            late_ms = header.until_ms + SPOKEN_AFTER_MS
            end = min(end, await reader.offset_at(partition, late_ms))
        if header.from_ms is not None:
            first = min(end, await reader.offset_at(partition, header.from_ms))
        spans[partition] = (first, end)
    return spans
