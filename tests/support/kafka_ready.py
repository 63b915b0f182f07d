"""Asking a broker who it is, from code that has no event loop."""

import asyncio
import socket
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
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
        return run(lambda: _cluster_id(bootstrap))
    return None


def run(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Like asyncio.run, also inside a running loop, which it holds up; leaves its thread's own
    loop as it was."""

    def alone() -> T:
        with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
            return runner.run(work())

    if asyncio._get_running_loop() is None:
        return alone()
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(alone).result()


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
