"""A start that fails says what to change, and a port that is taken is said before anything else."""

import contextlib
import socket
from collections.abc import Generator

import uvicorn


class StartFailed(Exception):
    """The process cannot start; the message says what to change."""


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
