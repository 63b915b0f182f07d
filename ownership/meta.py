"""What the store was first used with, so that it is never used with another topic by mistake."""

from ownership import keys
from ownership.kv import Database, Transaction
from ownership.model import MetaMismatch, MetaOk
from ownership.values import read_meta
from schemas.store_values import Meta


async def ensure_meta(db: Database, meta: Meta) -> MetaOk | MetaMismatch:
    """Record the topic at the first use, compare with it at every later one.

    An empty topic id, on either side, is not compared (some brokers give none).
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
        if same:
            return MetaOk()
        return MetaMismatch(known.partition_count, known.topic_id, known.schema_version)

    return await db.run(body)


async def get_meta(db: Database) -> Meta | None:
    """What was recorded, None before the first use."""
    return await db.read(lambda tr: read_meta(tr.get(keys.META)))
