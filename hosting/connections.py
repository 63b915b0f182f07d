"""Kafka and the store, opened and checked before a process serves. All raise StartFailed."""

from random import Random

from hosting.start import StartFailed
from ownership.kv import Database, StoreError
from ownership.meta import ensure_meta
from ownership.model import MetaMismatch
from ownership.open import open_database
from schemas.store_values import Meta
from schemas.topics import TEXT_TOPIC
from stream.aiokafka_transport import AiokafkaTransport
from stream.settings import BadKafkaSettings, KafkaSettings
from stream.topics import default_topics
from stream.transport import BrokerAway, TopicRefused, Transport


def make_transport(kafka: str, client_id: str) -> Transport:
    """A transport to the brokers HOST:PORT,...; nothing is connected yet."""
    try:
        return AiokafkaTransport(KafkaSettings(kafka, client_id=client_id))
    except BadKafkaSettings as error:
        raise StartFailed(f"kafka: {error}") from error


async def ensure_topics(transport: Transport, kafka: str, text_partitions: int = 12) -> int:
    """Make the topics that are missing; returns the text topic's partition count."""
    try:
        await transport.ensure_topics(default_topics(text_partitions=text_partitions))
        return await transport.partition_count(TEXT_TOPIC)
    except BrokerAway as error:
        raise StartFailed(f"no Kafka broker answers at {kafka} ({error})") from error
    except TopicRefused as error:
        raise StartFailed(f"the broker at {kafka} refused a topic: {error}") from error


async def open_store(url: str, rng: Random) -> Database:
    """The store at the URL, open."""
    try:
        return await open_database(url, Random(rng.getrandbits(64)))
    except StoreError as error:
        raise StartFailed(f"store: {error}") from error


async def check_meta(db: Database, store: str, partition_count: int) -> None:
    """Refuse a store that was first used with a text topic of another shape."""
    try:
        outcome = await ensure_meta(db, Meta(partition_count))
    except StoreError as error:
        raise StartFailed(f"the store at {store} does not answer: {error}") from error
    if isinstance(outcome, MetaMismatch):
        raise StartFailed(
            f"the store at {store} was made for a {TEXT_TOPIC} of "
            f"{outcome.partition_count} partitions (store schema {outcome.schema_version}), and "
            f"the broker's has {partition_count}. Lives would lose their text: use the topic the "
            "store was made for, or another store."
        )
