"""A TCP proxy in front of the broker for one process, so that its network can be cut.

The broker advertises the proxy's own port on the listener behind it, so every connection of the
process goes through here, whatever the client does.
"""

import asyncio
import contextlib
from enum import StrEnum

_CHUNK = 65_536


class Cut(StrEnum):
    """BLACK: bytes are held back on both ways, as by a network that lost its route; what was sent
    arrives when it is back. CLOSED: connections are reset and new ones refused."""

    OPEN = "open"
    BLACK = "black"
    CLOSED = "closed"


class Proxy:
    """Listens from `start` to `close`; `port` is what the broker has to advertise."""

    def __init__(self) -> None:
        self.port = 0
        self.upstream = 0
        self.cut = Cut.OPEN
        self._gate = asyncio.Event()
        self._gate.set()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()

    async def start(self) -> None:
        """Chooses its own port; `upstream` is set before the first client comes."""
        self._server = await asyncio.start_server(self._begin, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    def set(self, cut: Cut) -> None:
        self.cut = cut
        if cut is Cut.BLACK:
            self._gate.clear()
        else:
            self._gate.set()
        if cut is Cut.CLOSED:
            self.reset()

    def reset(self) -> None:
        """Every connection breaks."""
        for writer in tuple(self._writers):
            writer.transport.abort()

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        self.reset()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._client(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        upstream: asyncio.StreamWriter | None = None
        try:
            await self._gate.wait()
            if self.cut is Cut.CLOSED:
                return
            back, upstream = await asyncio.open_connection("127.0.0.1", self.upstream)
            self._writers.add(upstream)
            ways = [
                asyncio.ensure_future(self._pump(reader, upstream)),
                asyncio.ensure_future(self._pump(back, writer)),
            ]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
        except OSError:
            pass  # the broker is away, and so is the connection
        finally:
            for one in (writer, upstream):
                if one is not None:
                    self._writers.discard(one)
                    one.transport.abort()
                    with contextlib.suppress(OSError):
                        await one.wait_closed()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(_CHUNK):
                await self._gate.wait()
                writer.write(data)
                await writer.drain()
