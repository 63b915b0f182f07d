"""A bare aiokafka consumer that decodes the records with fastavro and commits its offsets.

    python -m tests.bench.bare_peer --kafka HOST:PORT

Nothing else: no validation, no keys, no state. It commits after every `getmany`. Speaks as
`worker_peer` does; of `{"until": {...}}` it takes `{"records": N}`: how many since it began.
"""

import argparse
import asyncio
import io
import time
from typing import Any, cast

import fastavro
from aiokafka import AIOKafkaConsumer

from schemas.registry import versions
from schemas.topics import TEXT_TOPIC
from tests.bench.talking import STOPPED_MS_MAX, Inbox, tell

SINGLE_OBJECT_HEADER_BYTES = 10


async def serve(kafka: str) -> None:
    """Until the input ends."""
    schema = cast(Any, versions("text_record")[-1].parsed)
    consumer = AIOKafkaConsumer(
        TEXT_TOPIC,
        bootstrap_servers=kafka,
        group_id="bench-bare",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        fetch_max_wait_ms=250,
        session_timeout_ms=STOPPED_MS_MAX,
        max_poll_interval_ms=STOPPED_MS_MAX + 60_000,
    )
    await consumer.start()
    inbox = await Inbox.open()
    tell({"ready": True})
    done = wanted = 0
    while not inbox.ended:
        found = await consumer.getmany(timeout_ms=20)
        for batch in found.values():
            for record in batch:
                body = io.BytesIO(record.value[SINGLE_OBJECT_HEADER_BYTES:])
                fastavro.schemaless_reader(body, schema, None)
            done += len(batch)
        if found:
            await consumer.commit()
        order = inbox.take()
        wanted = order["until"]["records"] if order is not None else wanted
        if wanted and done >= wanted:
            wanted = 0
            tell({"at_s": time.monotonic(), "cpu_s": time.process_time()})
    await consumer.stop()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kafka", required=True)
    asyncio.run(serve(parser.parse_args().kafka))


if __name__ == "__main__":
    main()
