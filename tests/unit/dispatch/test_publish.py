"""The producer of a replica: events are a report that never takes a replica down."""

import asyncio

import pytest

from dispatch.publish import Publisher
from schemas.events import EventKind
from schemas.store_values import Generation
from schemas.topics import EVENTS_TOPIC
from stream.memory import MemoryTransport
from stream.memory_broker import MemoryBroker, MemoryFaults
from stream.transport import TopicSpec
from tests.support.wait import until
from tests.unit.dispatch.world import HandClock


@pytest.mark.parametrize(
    "faults",
    [
        MemoryFaults(send_unknown_lost=1.0),
        MemoryFaults(send_unknown_applied=1.0),
        MemoryFaults(send_refused=1.0),
    ],
    ids=["lost", "applied", "refused"],
)
async def test_an_event_without_an_acknowledgement_is_dropped_and_counted(
    faults: MemoryFaults,
) -> None:
    broker = MemoryBroker(faults=faults)
    broker.make_topic(TopicSpec(EVENTS_TOPIC, 1))
    publisher = Publisher(MemoryTransport(broker), HandClock(), lambda: "id")
    running = asyncio.create_task(publisher.run())
    owner = Generation("w", 1)
    try:
        publisher.report(EventKind.GENERATION_COMMITTED, "live", owner, {})
        await until(lambda: publisher.events_dropped == 1 or running.done())
        assert not running.done()
        broker.faults = MemoryFaults()
        publisher.report(EventKind.GENERATION_COMMITTED, "live", owner, {})
        applied = int(faults.send_unknown_applied)
        await until(lambda: len(broker.records(EVENTS_TOPIC, 0)) == 1 + applied or running.done())
        assert not running.done()
        assert publisher.events_dropped == 1
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await publisher.close()
