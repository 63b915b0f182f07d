"""What operators and other programs did to our topics and our group, asked of the broker."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

from aiokafka import errors as kafka_errors
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment

from stream.aiokafka_border import ask
from stream.aiokafka_topic_id import TopicIdRequest, topic_id_of
from stream.settings import KafkaSettings
from stream.topics import partition_counts
from stream.transport import BrokerAway, GroupMember, TopicShape

T = TypeVar("T")

_RETRY_S = 0.2


class AiokafkaInspector:
    """Asks on the transport's admin connection; remembers nothing.

    `settings` gives those that fit the cluster, once there was a connection. The embedded broker
    tells of a group neither who its members are nor, as a whole, what it committed; a group there
    belongs to one run.
    """

    def __init__(
        self,
        settings: Callable[[], KafkaSettings],
        admin: Callable[[], Awaitable[AIOKafkaAdminClient]],
    ) -> None:
        self._timeout_s = 2 * settings().request_timeout_ms / 1000
        self._settings = settings
        self._admin = admin

    async def topic_shape(self, topic: str) -> TopicShape | None:
        admin = await self._admin()
        counts = await self._ask("listing topics", partition_counts(admin))
        if topic not in counts:
            return None
        return TopicShape(counts[topic], await self._topic_id(admin, topic))

    async def _topic_id(self, admin: AIOKafkaAdminClient, topic: str) -> str:
        try:
            asked = cast(Any, admin)._send_request(TopicIdRequest(topic))
            return topic_id_of(await self._ask("asking for a topic's id", asked), topic)
        except NotImplementedError:
            return ""

    async def group_members(self, group: str, topic: str) -> tuple[GroupMember, ...]:
        admin = await self._admin()
        if self._settings().is_embedded:
            return ()
        found: list[Any] = await self._ask_coordinator(
            "describing the group", lambda: admin.describe_consumer_groups([group])
        )
        return tuple(
            GroupMember(str(client_id), str(host).lstrip("/"), _partitions(assignment, topic))
            for response in found
            for one in response.groups
            for _, client_id, host, _, assignment in one[5]
        )

    async def group_offsets(self, group: str, topic: str) -> dict[int, int]:
        admin = await self._admin()
        if self._settings().is_embedded:
            return {}
        found = await self._ask_coordinator(
            "asking for the group's offsets", lambda: admin.list_consumer_group_offsets(group)
        )
        return {
            tp.partition: kept.offset
            for tp, kept in found.items()
            if tp.topic == topic and kept.offset >= 0
        }

    async def _ask_coordinator(self, what: str, question: Callable[[], Awaitable[T]]) -> T:
        """A cluster that never had a group makes the topic of offsets at the first question."""
        deadline_s = asyncio.get_running_loop().time() + self._timeout_s
        while True:
            try:
                async with asyncio.timeout_at(deadline_s):
                    return await question()
            except TimeoutError as error:
                raise BrokerAway(f"{what}: no answer within {self._timeout_s:g} s") from error
            except kafka_errors.KafkaError as error:
                if not error.retriable or asyncio.get_running_loop().time() > deadline_s:
                    raise BrokerAway(f"{what}: {error!r}") from error
            await asyncio.sleep(_RETRY_S)

    async def _ask(self, what: str, question: Awaitable[T]) -> T:
        return await ask(what, self._timeout_s, question)


def _partitions(assignment: bytes | None, topic: str) -> frozenset[int]:
    """A member that is not a consumer, or joins just now, has none that could be read."""
    if not assignment:
        return frozenset()
    try:
        read = ConsumerProtocolMemberAssignment.decode(assignment)
    except (ValueError, kafka_errors.KafkaError):
        return frozenset()
    return frozenset(tp.partition for tp in read.partitions() if tp.topic == topic)
