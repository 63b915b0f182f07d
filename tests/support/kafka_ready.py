"""Asking a broker who it is, from code that has no event loop."""

import asyncio
import socket
from collections.abc import Coroutine
from typing import Any, TypeVar

from aiokafka import errors as kafka_errors
from aiokafka.admin import AIOKafkaAdminClient

T = TypeVar("T")


def cluster_id(bootstrap: str) -> str | None:
    """The answer to a metadata request; None while nobody answers."""
    for server in bootstrap.split(","):
        host, _, port = server.strip().rpartition(":")
        try:
            # aiokafka would log every refused connection as an error.
            socket.create_connection((host, int(port)), timeout=2).close()
        except (OSError, ValueError):
            continue
        return run(_cluster_id(bootstrap))
    return None


def run(work: Coroutine[Any, Any, T]) -> T:
    """Like asyncio.run, and leaves the thread's own event loop as it was."""
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        return runner.run(work)


async def _cluster_id(bootstrap: str) -> str | None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap, request_timeout_ms=3_000)
    try:
        await admin.start()
        found = await admin.describe_cluster()
    except kafka_errors.KafkaError:
        return None
    finally:
        await admin.close()
    return str(found["cluster_id"]) if found["brokers"] else None
