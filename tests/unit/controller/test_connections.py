"""Opening a worker's connections while the broker comes and goes."""

import pytest

from controller.incarnation import GROUP, Connections
from schemas.topics import TEXT_TOPIC
from stream.memory import MemoryProducer, MemoryRangeReader, MemoryTransport
from stream.memory_broker import MemoryBroker
from stream.transport import BrokerAway, TopicSpec

STEPS = ("range_reader", "producer", "partition_count")


class GoesAway(MemoryTransport):
    """Reaches the broker until it is asked for `what`."""

    def __init__(self, broker: MemoryBroker, what: str) -> None:
        super().__init__(broker)
        self.what = what

    def _ask(self, what: str) -> None:
        if what == self.what:
            raise BrokerAway("it went away")

    async def range_reader(self, topic: str) -> MemoryRangeReader:
        self._ask("range_reader")
        return await super().range_reader(topic)

    async def producer(self) -> MemoryProducer:
        self._ask("producer")
        return await super().producer()

    async def partition_count(self, topic: str) -> int:
        self._ask("partition_count")
        return await super().partition_count(topic)


@pytest.mark.parametrize("what", STEPS)
async def test_a_reader_does_not_stay_in_its_group_when_the_rest_cannot_be_opened(
    what: str,
) -> None:
    broker = MemoryBroker()
    broker.make_topic(TopicSpec(TEXT_TOPIC, 2))
    transport = GoesAway(broker, what)
    with pytest.raises(BrokerAway):
        await Connections.open(transport, GROUP)
    assert broker.groups[GROUP].members == []
    transport.what = ""
    connections = await Connections.open(transport, GROUP)
    assert broker.groups[GROUP].shares == {connections.group: frozenset({0, 1})}
    await connections.close()
    assert broker.groups[GROUP].members == []
