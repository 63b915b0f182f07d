"""What the store was first used with, so that it is never used with another topic by mistake."""

from ownership.kv import Database
from ownership.model import MetaMismatch, MetaOk
from schemas.store_values import Meta


async def ensure_meta(db: Database, meta: Meta) -> MetaOk | MetaMismatch:
    """Record the topic at the first use, compare with it at every later one."""
    raise NotImplementedError
