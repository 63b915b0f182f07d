"""Kafka and the store, opened and checked before a process serves. All raise StartFailed.

The store remembers which text topic it was first used with, and which group its workers form. A
process that finds anything else does not start: offsets of one topic mean nothing in another, and
what looks like a new store may be one that was wiped.
"""

from dataclasses import dataclass
from random import Random

from hosting.start import StartFailed
from ownership.kv import Database, StoreError
from ownership.meta import adopt_group, ensure_meta, get_meta
from ownership.model import MetaMismatch
from ownership.open import open_database
from schemas.ids import ulid
from schemas.store_values import Meta
from schemas.topics import TEXT_TOPIC
from stream.aiokafka_transport import AiokafkaTransport
from stream.settings import BadKafkaSettings, KafkaSettings
from stream.topics import default_topics
from stream.transport import BrokerAway, TopicRefused, TopicShape, Transport

CLIENT = "dhsched"


@dataclass(frozen=True, slots=True)
class Service:
    """What every process of one service agrees on."""

    partition_count: int
    topic_id: str
    service_id: str

    def client_id(self, role: str, name: str = "") -> str:
        """What this process calls itself at the broker, so that others can be told from ours."""
        return ".".join(part for part in (CLIENT, role, self.service_id, name) if part)


def make_transport(kafka: str, client_id: str) -> AiokafkaTransport:
    """A transport to the brokers HOST:PORT,...; nothing is connected yet."""
    try:
        return AiokafkaTransport(KafkaSettings(kafka, client_id=client_id))
    except BadKafkaSettings as error:
        raise StartFailed(f"kafka: {error}") from error


async def open_store(url: str, rng: Random) -> Database:
    """The store at the URL, open."""
    try:
        return await open_database(url, Random(rng.getrandbits(64)))
    except StoreError as error:
        raise StartFailed(f"store: {error}") from error


async def join_service(
    transport: AiokafkaTransport,
    db: Database,
    *,
    kafka: str,
    store: str,
    wall_ms: int,
    rng: Random,
    text_partitions: int = 12,
) -> Service:
    """Make the topics of a new service, or check those of one that exists."""
    known = await _meta(db, store)
    if known is not None:
        await _refuse_a_missing_topic(transport, kafka, store)
    await ensure_topics(transport, kafka, text_partitions)
    shape = await _shape(transport, kafka)
    drawn = ulid(wall_ms, rng.randbytes(10))
    found = Meta(shape.partitions, shape.topic_id, service_id=drawn)
    try:
        outcome = await ensure_meta(db, found)
    except StoreError as error:
        raise _store_away(store, error) from error
    if isinstance(outcome, MetaMismatch):
        raise StartFailed(_mismatch(outcome, shape, store, kafka))
    meta = await _meta(db, store)
    if meta is None:
        raise StartFailed(f"the store at {store} forgot at once what was written to it")
    return Service(shape.partitions, meta.topic_id, meta.service_id)


def _mismatch(known: MetaMismatch, shape: TopicShape, store: str, kafka: str) -> str:
    if known.partition_count != shape.partitions:
        return (
            f"the store at {store} was made for a {TEXT_TOPIC} of {known.partition_count} "
            f"partitions (store schema {known.schema_version}), and the broker's has "
            f"{shape.partitions}. Lives would lose their text: use the topic the store was made "
            "for, or another store."
        )
    return (
        f"the store at {store} was made for the {TEXT_TOPIC} with id {known.topic_id} (store "
        f"schema {known.schema_version}), and that of the broker at {kafka} has id "
        f"{shape.topic_id}: the topic was deleted and made again, or this is another cluster. "
        "Offsets that the store knows mean nothing there: use the broker of this store, or a new "
        "store."
    )


async def ensure_topics(transport: Transport, kafka: str, text_partitions: int = 12) -> None:
    """Make the topics that are missing."""
    try:
        await transport.ensure_topics(default_topics(text_partitions=text_partitions))
    except BrokerAway as error:
        raise _broker_away(kafka, error) from error
    except TopicRefused as error:
        raise StartFailed(f"the broker at {kafka} refused a topic: {error}") from error


async def join_group(
    transport: AiokafkaTransport, db: Database, group: str, *, kafka: str, store: str
) -> None:
    """Refuse another group than the store's workers form, and a new store for a group that was at
    work already: both would dead-letter, or speak again, what others have finished."""
    meta = await _meta(db, store)
    if meta is not None and not meta.group:
        try:
            committed = await transport.inspector().group_offsets(group, TEXT_TOPIC)
        except BrokerAway as error:
            raise _broker_away(kafka, error) from error
        # Read after the question: whoever commits has written the group into the store before.
        meta = await _meta(db, store)
        if any(committed.values()) and meta is not None and not meta.group:
            raise StartFailed(
                f"the consumer group {group} has committed offsets in {TEXT_TOPIC} at {kafka}, and "
                f"the store at {store} is new: it was wiped, or another service uses this group. "
                "Restore the store, or name another --group; to begin anew with this one, delete "
                f"it first (kafka-consumer-groups --delete --group {group})."
            )
    try:
        adopted = await adopt_group(db, group)
    except StoreError as error:
        raise _store_away(store, error) from error
    if adopted != group:
        raise StartFailed(
            f"the workers of the store at {store} form the consumer group {adopted}, and this one "
            f"was started with --group {group}: two groups would both look after every partition."
        )


async def _refuse_a_missing_topic(transport: AiokafkaTransport, kafka: str, store: str) -> None:
    try:
        shape = await transport.inspector().topic_shape(TEXT_TOPIC)
    except BrokerAway as error:
        raise _broker_away(kafka, error) from error
    if shape is None:
        raise StartFailed(
            f"the broker at {kafka} has no topic {TEXT_TOPIC}, and the store at {store} was used "
            "with one: it was deleted, or this is another cluster. Use the broker of this store, "
            "or a new store."
        )


async def _shape(transport: AiokafkaTransport, kafka: str) -> TopicShape:
    try:
        count = await transport.partition_count(TEXT_TOPIC)
        shape = await transport.inspector().topic_shape(TEXT_TOPIC)
    except BrokerAway as error:
        raise _broker_away(kafka, error) from error
    return TopicShape(count, "" if shape is None else shape.topic_id)


async def _meta(db: Database, store: str) -> Meta | None:
    try:
        return await get_meta(db)
    except StoreError as error:
        raise _store_away(store, error) from error


def _broker_away(kafka: str, error: BrokerAway) -> StartFailed:
    return StartFailed(f"no Kafka broker answers at {kafka} ({error})")


def _store_away(store: str, error: StoreError) -> StartFailed:
    return StartFailed(f"the store at {store} does not answer: {error}")
