"""What stands in for Kafka in a run: one broker, and each process's own way to it.

`MemoryBroker` and its transport are production's test double and keep Kafka's contract. Here every
process gets a `BrokerLink`: the way to the broker can be cut (requests fail), hang (they are served
when the way is free again), and sends can end without an answer, for this process or for all.
"""

import asyncio
import contextvars
from collections.abc import Callable, Iterable
from typing import Any

from schemas.topics import DEAD_LETTER_TOPIC, EVENTS_TOPIC, TEXT_TOPIC
from stream import memory_broker
from stream.memory import MemoryBroker, MemoryProducer, MemoryTransport
from stream.transport import Headers, Sent
from tests.sim import shortcuts
from tests.sim.loop import WAKERS
from tests.sim.recorder import Recorder

WAKERS.add(memory_broker._wake)

_NETWORK = contextvars.Context()
"""What is on its way belongs to no process: it arrives also when its sender stands still."""

_SHARED = (
    "append",
    "changed",
    "faults",
    "groups",
    "happens",
    "join",
    "leave",
    "log",
    "make_topic",
    "partition_count",
    "random",
)


class SimBroker(MemoryBroker):
    """Writes down what lies in the text and dead-letter topics, and what retention deletes."""

    def __init__(self, recorder: Recorder, *, seed: int) -> None:
        super().__init__(seed=seed)
        self.recorder = recorder

    def happens(self, chance: float) -> bool:
        happens = super().happens(chance)
        if happens:
            self.recorder.windows["fetched_again"] += 1
        return happens

    def append(
        self,
        topic: str,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
    ) -> int:
        offset = super().append(topic, partition, key, value, headers)
        if topic == TEXT_TOPIC:
            self.recorder.produced(partition, offset, key, value)
        elif topic == DEAD_LETTER_TOPIC:
            self.recorder.letter(value)
        return offset

    def cut_log(self, topic: str, partition: int, log_start: int) -> None:
        super().cut_log(topic, partition, log_start)
        self.recorder.truncated(partition, log_start)


class BrokerLink:
    """The broker as one process reaches it: what `stream.memory` asks of a `MemoryBroker`.

    `away`: requests fail after a while. `hangs_until_s`: they are served only then.
    """

    def __init__(self, broker: SimBroker) -> None:
        for name in _SHARED:
            setattr(self, name, getattr(broker, name))
        self.broker = broker
        self.away = False
        self.hangs_until_s = 0.0

    def free(self) -> None:
        """The way to the broker is free again."""
        self.away, self.hangs_until_s = False, 0.0

    def latency_s(self) -> float:
        """See `MemoryBroker.latency_s`; a request that hangs takes until it does not."""
        base_s = self.broker.latency_s()
        if not self.hangs_until_s:
            return base_s
        return max(0.0, self.hangs_until_s - asyncio.get_running_loop().time()) + base_s

    def draw(self, chances: Iterable[tuple[str, float]]) -> str:
        """See `MemoryBroker.draw`: what becomes of a send."""
        fate = self.broker.draw(chances)
        if fate:
            self.broker.recorder.windows[f"send_unknown_{fate}"] += 1
        return fate

    def later(self, delay_s: float, action: Callable[[], None]) -> None:
        """See `MemoryBroker.later`."""
        loop = asyncio.get_running_loop()
        if delay_s <= 0:
            loop.call_soon(action, context=_NETWORK)
        else:
            loop.call_later(delay_s, action, context=_NETWORK)


class SimProducer(MemoryProducer):
    """Events are a report and no part of the protocol: they leave at once and are gone, except in
    runs that do everything in full."""

    async def send(
        self,
        topic: str,
        *,
        key: bytes | None,
        value: bytes,
        headers: Headers = (),
        partition: int | None = None,
    ) -> Sent:
        if topic == EVENTS_TOPIC and not shortcuts.full:
            return Sent(0, 0)
        return await super().send(topic, key=key, value=value, partition=partition)


class SimTransport(MemoryTransport):
    """One process's. `link` is its way to the broker."""

    def __init__(self, broker: SimBroker) -> None:
        self.link = BrokerLink(broker)
        link: Any = self.link
        super().__init__(link)

    async def producer(self) -> MemoryProducer:
        await super().producer()
        link: Any = self.link
        return SimProducer(link)
