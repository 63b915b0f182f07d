"""What the store was first used with, so that it is never used with another topic by mistake."""

from dataclasses import replace

from ownership import keys
from ownership.kv import Database, StoreCorrupt, Transaction
from ownership.model import MetaMismatch, MetaOk
from ownership.values import read_meta
from schemas.store_values import Meta


async def ensure_meta(db: Database, meta: Meta) -> MetaOk | MetaMismatch:
    """Record the topic at the first use, compare with it at every later one.

    An empty topic id, on either side, is not compared (some brokers give none), and what the store
    did not know yet is filled in. `service_id` is drawn by the caller for a first use.
    """

    def body(tr: Transaction) -> MetaOk | MetaMismatch:
        known = read_meta(tr.get(keys.META))
        if known is None:
            tr.set(keys.META, meta.encode())
            return MetaOk()
        same_topic = not known.topic_id or not meta.topic_id or known.topic_id == meta.topic_id
        same = same_topic and (known.partition_count, known.schema_version) == (
            meta.partition_count,
            meta.schema_version,
        )
        if not same:
            return MetaMismatch(known.partition_count, known.topic_id, known.schema_version)
        filled = replace(
            known,
            topic_id=known.topic_id or meta.topic_id,
            service_id=known.service_id or meta.service_id,
        )
        if filled != known:
            tr.set(keys.META, filled.encode())
        return MetaOk()

    return await db.run(body)


async def adopt_group(db: Database, group: str) -> str:
    """Record the workers' consumer group unless there is one; returns the recorded one.

    Raises StoreCorrupt when the store was not used before: `ensure_meta` comes first.
    """

    def body(tr: Transaction) -> str:
        known = read_meta(tr.get(keys.META))
        if known is None:
            raise StoreCorrupt("the store holds no record of the text topic")
        if not known.group:
            tr.set(keys.META, replace(known, group=group).encode())
        return known.group or group

    return await db.run(body)


async def get_meta(db: Database) -> Meta | None:
    """What was recorded, None before the first use."""
    return await db.read(lambda tr: read_meta(tr.get(keys.META)))
