"""A replica behind a real socket, in the test's own loop."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

from dispatch.events_feed import EndReason
from dispatch.main import _server
from dispatch.replica import Replica
from tests.support.wait import until


class Here(str):
    """HOST:PORT of a server that is at hand too."""

    tasks: set[asyncio.Task[None]]


@contextlib.asynccontextmanager
async def serving(replica: Replica) -> AsyncIterator[Here]:
    """Ends as the process would at SIGTERM."""
    server = _server(replica)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        task = asyncio.create_task(server.serve([listener]))
        await until(lambda: server.started, what="the server")
        try:
            here = Here(f"127.0.0.1:{listener.getsockname()[1]}")
            here.tasks = server.server_state.tasks
            yield here
        finally:
            replica.stopping.set()
            replica.service.feed.end_all(EndReason.STOPPING)
            server.should_exit = True
            await task
