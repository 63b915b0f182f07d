"""The topics this system needs, and making them where they are missing.

A topic that is there with another number of partitions is reported, never changed: adding
partitions would give every key another partition, and lives would lose their text.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, cast

from aiokafka import errors as kafka_errors
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from schemas.topics import (
    DEAD_LETTER_PARTITIONS,
    DEAD_LETTER_TOPIC,
    EVENTS_PARTITIONS,
    EVENTS_TOPIC,
    TEXT_PARTITIONS,
    TEXT_TOPIC,
)
from stream.transport import BrokerAway, TopicFound, TopicRefused, TopicSpec

REPLICAS_WANTED = 3
_POLL_S = 0.05


def default_topics(
    *, text_partitions: int = TEXT_PARTITIONS, events_partitions: int = EVENTS_PARTITIONS
) -> tuple[TopicSpec, ...]:
    """The three topics: text, events and dead letters."""
    return (
        TopicSpec(TEXT_TOPIC, text_partitions),
        TopicSpec(EVENTS_TOPIC, events_partitions),
        TopicSpec(DEAD_LETTER_TOPIC, DEAD_LETTER_PARTITIONS),
    )


async def partition_counts(admin: AIOKafkaAdminClient) -> dict[str, int]:
    """Every topic's number of partitions, 0 while one of them has no leader.

    All topics are listed: asking for one by name makes some brokers create it.
    """
    found: list[dict[str, Any]] = await admin.describe_topics(None)
    return {
        topic["topic"]: len(topic["partitions"])
        if topic["partitions"] and all(p["leader"] >= 0 for p in topic["partitions"])
        else 0
        for topic in found
        if topic["error_code"] == 0
    }


async def make_topics(
    admin: AIOKafkaAdminClient, specs: Sequence[TopicSpec], timeout_s: float
) -> tuple[TopicFound, ...]:
    """Raises BrokerAway, TopicRefused, KafkaError. Two processes may do this at the same time."""
    before = await partition_counts(admin)
    missing = [spec for spec in specs if spec.name not in before]
    if missing:
        brokers = len((await admin.describe_cluster())["brokers"])
        response: Any = await admin.create_topics([_new_topic(spec, brokers) for spec in missing])
        for name, code, *message in response.topic_errors:
            error = cast("type[kafka_errors.KafkaError]", kafka_errors.for_code(code))
            if error in (kafka_errors.NoError, kafka_errors.TopicAlreadyExistsError):
                continue
            if error.retriable:
                raise BrokerAway(f"creating {name}: {error.__name__}")
            raise TopicRefused(f"creating {name}: {error.__name__} {' '.join(map(str, message))}")
    counts = before
    made = {spec.name for spec in missing}
    loop = asyncio.get_running_loop()
    until_s = loop.time() + timeout_s
    while any(not counts.get(spec.name) for spec in specs):
        if loop.time() > until_s:
            raise BrokerAway("the topics were created and have no leaders yet")
        await asyncio.sleep(_POLL_S)
        counts = await partition_counts(admin)
    return tuple(
        TopicFound(spec.name, counts[spec.name], spec.partitions, spec.name in made)
        for spec in specs
    )


def _new_topic(spec: TopicSpec, brokers: int) -> NewTopic:
    replicas = min(REPLICAS_WANTED, brokers)
    configs = {
        "min.insync.replicas": "2" if replicas >= REPLICAS_WANTED else "1",
        "unclean.leader.election.enable": "false",
    }
    if spec.retention_ms is not None:
        configs["retention.ms"] = str(spec.retention_ms)
    return NewTopic(spec.name, spec.partitions, replicas, topic_configs=configs)
