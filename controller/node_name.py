"""One node name, one worker.

A worker that starts on a node supersedes the one before: that is how a restart takes its place at
once. Two that run at the same time under one name would supersede each other for ever, and their
lives with them. So a start is refused while the name's worker is beating, and a worker that finds
itself superseded by one that lives gives way and ends.
"""

import asyncio

from hosting.start import StartFailed
from ownership.kv import Database, StoreError
from ownership.workers import node_holder

STILL_BEATS = 3
LOOK_AGAIN_S = 0.1


class NodeTaken(Exception):
    """Another worker has this one's name."""


async def refuse_taken_node(db: Database, node: str, beat_ms: int) -> None:
    """Returns at once when nobody has the name, and after some beats' time when its worker is
    still. Raises StartFailed when that beats.
    """
    loop = asyncio.get_running_loop()
    try:
        first = await node_holder(db, node)
        until_s = loop.time() + STILL_BEATS * beat_ms / 1000
        while first is not None and loop.time() < until_s:
            await asyncio.sleep(LOOK_AGAIN_S)
            now = await node_holder(db, node)
            if now is None:
                return
            if now[0].worker_id != first[0].worker_id or now[1] != first[1]:
                raise StartFailed(
                    f"a worker runs under the node name {node} already: {now[0].worker_id} at "
                    f"{now[0].url}. Give each worker a --node of its own, or end that one first."
                )
    except StoreError as error:
        raise StartFailed(f"the store does not answer: {error}") from error


async def give_way(db: Database, node: str, worker_id: str) -> None:
    """Raises NodeTaken when the incarnation `worker_id` was superseded by one that lives."""
    holder = await node_holder(db, node)
    if holder is not None and holder[0].worker_id != worker_id:
        raise NodeTaken(
            f"{worker_id} was superseded: {holder[0].worker_id} at {holder[0].url} runs under the "
            f"same node name {node}. Give each worker a --node of its own."
        )
