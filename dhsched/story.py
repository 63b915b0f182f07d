"""`dhsched story LIVE`: the ownership timeline of one live, read from the events topic."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any, Final

from dhsched.output import CommandFailed, Output
from schemas.events import LiveEvent
from schemas.partition import partition_of
from schemas.topics import EVENTS_TOPIC
from stream.aiokafka_transport import AiokafkaTransport
from stream.transport import BrokerAway, RangeReader

RECORDS_MAX: Final = 500
READ_MS: Final = 2000
SILENCE_MAX: Final = 5


async def tell_story(live: str, kafka: str, output: Output) -> None:
    """Print every event of the live in the order they were written. None at all is an error."""
    if not kafka:
        raise CommandFailed("name the brokers with --kafka or DHSCHED_KAFKA", 2)
    transport = AiokafkaTransport(kafka)
    rows: list[dict[str, Any]] = []
    try:
        partitions = await transport.partition_count(EVENTS_TOPIC)
        reader = await transport.range_reader(EVENTS_TOPIC)
        try:
            partition = partition_of(live.encode(), partitions)
            rows = [_row(event) async for event in _events(reader, partition, live)]
        finally:
            await reader.close()
    except BrokerAway as error:
        raise CommandFailed(f"no Kafka broker answers at {kafka}: {error}") from error
    finally:
        await transport.close()
    if not rows:
        raise CommandFailed(f"the events topic holds nothing of a live {live!r}")
    output.table("story", ("time", "kind", "worker", "epoch", "offset", "what"), rows, "")


async def _events(reader: RangeReader, partition: int, live: str) -> AsyncIterator[LiveEvent]:
    """Raises CommandFailed when the log cannot be read to its end: half a story misleads."""
    offset, end = await reader.log_range(partition)
    silent = 0
    while offset < end:
        records = await reader.read(partition, offset, records_max=RECORDS_MAX, timeout_ms=READ_MS)
        silent = 0 if records else silent + 1
        if silent == SILENCE_MAX:
            raise CommandFailed(
                f"partition {partition} of {EVENTS_TOPIC} ends at {end}, but nothing came from "
                f"{offset} on in {silent * READ_MS / 1000:.0f} s; look at the broker and try again"
            )
        for record in records:
            offset = record.offset + 1
            if record.key == live.encode() and record.value is not None:
                yield LiveEvent.decode(record.value)


def _row(event: LiveEvent) -> dict[str, Any]:
    at = datetime.fromtimestamp(event.at_ms / 1000, UTC)
    return {
        "time": at.isoformat(timespec="milliseconds"),
        "worker": event.worker_id,
        "what": " ".join(f"{name}={value}" for name, value in event.data.items()),
        **{name: value for name, value in event.as_dict().items() if name != "data"},
        "data": dict(event.data),
    }
