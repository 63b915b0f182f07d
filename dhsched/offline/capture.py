"""The capture itself: from Kafka into a file, with a progress bar, and on again after a break."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from dhsched.command_line import USAGE_STATUS
from dhsched.offline.capture_file import (
    CaptureError,
    CaptureReader,
    CaptureWriter,
    check_codec,
    part_of,
    refuse_existing,
)
from dhsched.offline.entries import CapturedRecord, CaptureHeader, Entry
from dhsched.offline.offsets import OffsetChecker
from dhsched.offline.ranges import BadPoint, Point, parse_point
from dhsched.offline.topic_range import BadRange, Wanted
from dhsched.offline.topic_source import Place, TopicSource, open_source, reopen_source
from dhsched.output import CommandFailed, Output
from schemas.live_id import BadLiveId, check_live_id
from schemas.topics import EVENTS_TOPIC, TEXT_TOPIC
from stream.aiokafka_transport import AiokafkaTransport
from stream.settings import BadKafkaSettings
from stream.transport import BrokerAway, OffsetOutOfLog, Transport, UnknownTopic

PROGRESS_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class CaptureRequest:
    """What the command was asked for, as it was written."""

    kafka: str
    out: Path
    live_id: str | None = None
    all_lives: bool = False
    begin: str | None = None
    until: str | None = None
    codec: str = "deflate"
    resume: bool = False
    overwrite: bool = False
    topic: str = TEXT_TOPIC
    events_topic: str = EVENTS_TOPIC

    def wanted(self, now_ms: int) -> Wanted:
        """The range. Raises CommandFailed for wrong usage."""
        if (self.live_id is None) != self.all_lives:
            raise CommandFailed("name one live with --live, or all of them with --all", 2)
        if self.live_id is not None:
            try:
                check_live_id(self.live_id)
            except BadLiveId as error:
                raise CommandFailed(str(error), USAGE_STATUS) from error
        points: list[Point | None] = []
        for name, text in (("--from", self.begin), ("--until", self.until)):
            try:
                points.append(None if text is None else parse_point(text, now_ms))
            except BadPoint as error:
                raise CommandFailed(f"{name}: {error}", USAGE_STATUS) from error
        return Wanted(self.live_id, points[0], points[1], self.topic, self.events_topic)


@dataclass(slots=True)
class Tally:
    """What was captured so far, and where each partition goes on."""

    checker: OffsetChecker
    places: dict[tuple[str, int], Place] = field(default_factory=dict[tuple[str, int], Place])
    lives: set[bytes] = field(default_factory=set[bytes])
    records: int = 0
    events: int = 0

    def see(self, entry: Entry) -> None:
        """An entry that is in the file."""
        header = self.checker.header
        if isinstance(entry, CapturedRecord):
            self.records += 1
            if entry.key is not None:
                self.lives.add(entry.key)
            topic, spans = entry.topic, header.ranges
        else:
            self.events += 1
            topic, spans = header.events_topic, header.event_ranges
        span = spans.get(entry.partition)
        if span is None or entry.offset < span[0]:
            return  # Of the time before the range.
        self.checker.see(entry)
        place = self.places.setdefault((topic, entry.partition), Place(span[0], 0))
        place.position = entry.offset + 1
        place.stamp_ms = max(place.stamp_ms, entry.timestamp_ms)


@dataclass(frozen=True, slots=True)
class Captured:
    """A capture that is whole."""

    path: Path
    header: CaptureHeader
    tally: Tally
    source: TopicSource
    bytes: int

    def document(self) -> dict[str, object]:
        """For machines."""
        checker = self.tally.checker
        return {
            "file": str(self.path),
            "records": self.tally.records,
            "events": self.tally.events,
            "lives": len(self.tally.lives),
            "bytes": self.bytes,
            "ranges": {str(p): list(span) for p, span in sorted(self.header.ranges.items())},
            "missing_offsets": checker.missing,
            "findings": [str(finding) for finding in checker.findings],
            "lost": [
                {"topic": one.topic, "partition": one.partition, "first": one.first, "end": one.end}
                for one in self.source.lost
            ],
            "unreadable_events": self.source.unreadable_events,
        }


async def capture_to_file(request: CaptureRequest, output: Output) -> None:
    """The command. Raises CommandFailed."""
    captured = await capture(request, output)
    tally = captured.tally
    for finding in tally.checker.findings:
        output.note(f"[yellow]note:[/] {finding}")
    if captured.source.unreadable_events:
        output.note(f"[yellow]note:[/] {captured.source.unreadable_events} unreadable events")
    output.result(
        captured.document(),
        f"captured {tally.records} records of {len(tally.lives)} live(s) and {tally.events} events "
        f"to {captured.path} ({captured.bytes} bytes)",
    )
    if captured.source.lost:
        lost = captured.source.lost[0]
        raise CommandFailed(
            f"{lost.topic} partition {lost.partition}: offsets {lost.first} to {lost.end - 1} were "
            f"deleted before they could be read; the rest is in {captured.path}"
        )


async def capture(request: CaptureRequest, output: Output) -> Captured:
    """Capture what is asked for; the file has its final name then. Raises CommandFailed."""
    now_ms = time.time_ns() // 1_000_000
    if not request.kafka:
        raise CommandFailed("name the brokers with --kafka or DHSCHED_KAFKA", USAGE_STATUS)
    wanted = request.wanted(now_ms)
    try:
        check_codec(request.codec)
        refuse_existing(request.out, overwrite=request.overwrite)
        transport = AiokafkaTransport(request.kafka)
    except (CaptureError, BadKafkaSettings) as error:
        raise CommandFailed(str(error), USAGE_STATUS) from error
    try:
        return await capture_from(transport, request, wanted, now_ms, output)
    except BrokerAway as error:
        raise CommandFailed(
            f"no Kafka broker answers at {request.kafka}: {error}{_go_on(request.out)}"
        ) from error
    except (UnknownTopic, OffsetOutOfLog, CaptureError) as error:
        raise CommandFailed(str(error)) from error
    except BadRange as error:
        raise CommandFailed(str(error), USAGE_STATUS) from error
    finally:
        await transport.close()


async def capture_from(
    transport: Transport, request: CaptureRequest, wanted: Wanted, now_ms: int, output: Output
) -> Captured:
    """The same from an open transport, with its own and the file's errors."""
    part = part_of(request.out)
    if request.resume and part.exists() and part.stat().st_size:
        return await _go_on_with(transport, request, output)
    async with open_source(transport, wanted, now_ms) as source:
        if source.events is None:
            output.note(f"there is no topic {wanted.events_topic}: lives have default options")
        tally = Tally(OffsetChecker(source.header))
        with CaptureWriter(
            request.out, source.header, codec=request.codec, overwrite=request.overwrite
        ) as writer:
            return await _write(source, writer, tally, output)


async def _go_on_with(transport: Transport, request: CaptureRequest, output: Output) -> Captured:
    with CaptureReader(part_of(request.out)) as reader:
        header = reader.header
    if header.live_id != request.live_id or header.topic != request.topic:
        what = "all lives" if header.live_id is None else f"live {header.live_id}"
        raise CaptureError(f"{part_of(request.out)} is a capture of {what} from {header.topic}")
    tally = Tally(OffsetChecker(header))
    with CaptureWriter.resume(request.out, tally.see, overwrite=request.overwrite) as writer:
        output.note(f"goes on behind {writer.entries} entries; the range is the one it began with")
        if not tally.places:
            # Nothing of the range yet, and perhaps not all of what stands before it.
            writer.start_over()
            tally = Tally(OffsetChecker(header))
        async with reopen_source(transport, header) as source:
            return await _write(source, writer, tally, output)


async def _write(
    source: TopicSource, writer: CaptureWriter, tally: Tally, output: Output
) -> Captured:
    try:
        async with _progress(source, output):
            async for entry in source.entries(tally.places):
                writer.write(entry)
                tally.see(entry)
    except (asyncio.CancelledError, BrokerAway):
        writer.flush()
        output.note(f"{writer.part} holds {writer.entries} entries{_go_on(writer.path)}")
        raise
    tally.checker.finish()
    live_id = source.header.live_id
    if live_id is not None and not tally.records:
        writer.discard()
        raise CaptureError(
            f"{source.header.topic} holds no record of live {live_id!r} in this range"
        )
    writer.commit()
    return Captured(writer.path, source.header, tally, source, writer.path.stat().st_size)


@asynccontextmanager
async def _progress(source: TopicSource, output: Output) -> AsyncGenerator[None]:
    """A bar that follows the source while the block runs."""
    columns = (TextColumn("capturing"), BarColumn(), MofNCompleteColumn(), TextColumn("offsets"))
    with Progress(
        *columns, TimeElapsedColumn(), console=output.errors, disable=output.as_json
    ) as bar:
        task = bar.add_task("capturing", total=source.total)

        async def follow() -> None:
            while True:
                bar.update(task, completed=source.done)
                await asyncio.sleep(PROGRESS_S)

        following = asyncio.create_task(follow())
        try:
            yield
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            bar.update(task, completed=source.done)


def _go_on(path: Path) -> str:
    return "; go on with --resume" if part_of(path).exists() else ""
