"""Whether a replica can serve: the store and the broker answer, the topics are as recorded."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from dispatch.service import DispatchService
from hosting.vigil import Fault
from ownership.kv import StoreError
from ownership.meta import get_meta
from schemas.topics import EVENTS_TOPIC, TEXT_TOPIC
from stream.transport import BrokerAway, RangeReader, Transport, UnknownTopic

ANSWER_S = 3.0
OK = "ok"


@dataclass(frozen=True, slots=True)
class Readiness:
    """What answers: "ok", or what is wrong."""

    store: str
    broker: str

    @property
    def ready(self) -> bool:
        return self.store == OK and self.broker == OK


class ReadinessProbe:
    """Asks the store and the broker, not what is remembered of them."""

    def __init__(
        self, service: DispatchService, faults: Callable[[], Mapping[Fault, str]] = dict
    ) -> None:
        self._service = service
        self._faults = faults
        self._broker = _BrokerProbe(service.transport, service.partition_count)

    async def look(self) -> Readiness:
        """Asks both at the same time; never raises for their faults."""
        store, broker = await asyncio.gather(self._store(), self._broker.look())
        return Readiness(store, self._faults().get(Fault.TOPIC_MISSING, broker))

    async def _store(self) -> str:
        try:
            async with asyncio.timeout(ANSWER_S):
                meta = await get_meta(self._service.db)
        except (TimeoutError, StoreError):
            return "the store does not answer"
        if meta is None:
            return "the store holds no record of the text topic"
        if meta.partition_count != self._service.partition_count:
            return f"the store was made for {meta.partition_count} partitions of {TEXT_TOPIC}"
        return OK

    async def close(self) -> None:
        """Lets go of the readers."""
        await self._broker.close()


class _BrokerProbe:
    """Asks for the end of the last partition that must be there."""

    def __init__(self, transport: Transport, text_partitions: int) -> None:
        self._transport = transport
        self._text_partitions = text_partitions
        self._readers: dict[str, RangeReader] = {}
        self._asking = asyncio.Lock()

    async def look(self) -> str:
        try:
            async with asyncio.timeout(ANSWER_S), self._asking:
                count = await self._transport.partition_count(TEXT_TOPIC)
                if count != self._text_partitions:
                    wanted = self._text_partitions
                    return f"{TEXT_TOPIC} has {count} partitions, the store was made for {wanted}"
                await self._end(TEXT_TOPIC, count - 1)
                await self._end(EVENTS_TOPIC, 0)
        except (TimeoutError, BrokerAway):
            return "the broker does not answer"
        except UnknownTopic as error:
            return f"a topic is missing: {error}"
        return OK

    async def _end(self, topic: str, partition: int) -> None:
        reader = self._readers.get(topic)
        if reader is None:
            reader = self._readers[topic] = await self._transport.range_reader(topic)
        await reader.log_range(partition)

    async def close(self) -> None:
        for reader in self._readers.values():
            await reader.close()
        self._readers.clear()
