"""A start that fails says what to change, and a port that is taken is said before anything else."""

import asyncio
import contextlib
import socket
from collections.abc import Callable, Coroutine, Generator, Sequence
from typing import Any

import uvicorn


class StartFailed(Exception):
    """The process cannot start; the message says what to change."""


class RoleEnded(Exception):
    """The process must not go on; the message says why and what to do."""


async def serve_beside(
    server: "QuietServer",
    listener: socket.socket,
    works: Sequence[Coroutine[Any, Any, None]],
    *,
    server_ended: Callable[[], None],
    stopping: Callable[[], None] = lambda: None,
) -> None:
    """The server, and the works of the role that it speaks for: the end of one is the end of all.

    The first work to end, or to break, ends the server in good order and then the other works;
    `stopping` is called before. When the server ends first, `server_ended` tells the works to.
    Raises what the first work raised.
    """
    running = [asyncio.ensure_future(work) for work in works]
    serving = asyncio.ensure_future(server.serve([listener]))
    try:
        await asyncio.wait([serving, *running], return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            server_ended()
        await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
    finally:
        # A server that was cancelled would leave its sockets registered with the loop.
        stopping()
        server.should_exit = True
        first = [work for work in running if work.done()]
        # Requests that are under way still need the works.
        await asyncio.gather(serving, return_exceptions=True)
        for work in running:
            work.cancel()
        await asyncio.gather(*running, return_exceptions=True)
    for work in first:
        work.result()
    serving.result()


class QuietServer(uvicorn.Server):
    """Leaves signals to us: uvicorn would raise them again once it is done."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


@contextlib.contextmanager
def listen(host: str, port: int, backlog: int) -> Generator[socket.socket]:
    """A listening socket, closed at the end. Raises StartFailed."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol named: asyncio switches Nagle's algorithm off only for sockets that say TCP,
    # and with it on, an answer of two writes waits 40 ms for the client's delayed acknowledgement.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(backlog)
    except OSError as error:
        listener.close()
        raise StartFailed(
            f"cannot listen on {host}:{port}: {error.strerror or error}. "
            "Choose another --port, or end what uses it."
        ) from error
    with listener:
        yield listener
