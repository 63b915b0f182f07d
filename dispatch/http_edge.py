"""What happens to every request before a route sees it, and to every answer after.

- Path segments reach the routes still percent-encoded, so that a live id may contain any character,
  a slash too.
- A body is read here, up to a size and within a time, and cut off beyond; routes get it whole.
- Requests are counted; an exception that nobody expected becomes a 500 that tells nothing.
"""

import asyncio
import time

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dispatch.metrics import Metrics
from dispatch.problem_responses import problem_response, unexpected
from dispatch.problems import Problem, ProblemKind

ENCODED_PREFIXES = (b"/v1/", b"/watch/")
UNROUTED = "(no route)"


class ClientGone(Exception):
    """The client hung up before its body was complete: nobody is there to be answered."""


class EdgeMiddleware:
    """Pure ASGI, so that streams pass through untouched."""

    def __init__(
        self, app: ASGIApp, *, metrics: Metrics, body_bytes_max: int, body_wait_s: float
    ) -> None:
        self._app = app
        self._metrics = metrics
        self._body_bytes_max = body_bytes_max
        self._body_wait_s = body_wait_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        raw_path: bytes | None = scope.get("raw_path")
        if raw_path is not None and raw_path.startswith(ENCODED_PREFIXES):
            scope["path"] = raw_path.decode("ascii", "replace")
        if scope["type"] == "websocket":
            await self._app(scope, receive, send)
        else:
            await self._http(scope, receive, send)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        began_s = time.perf_counter()
        status: int | None = None
        is_stream = False

        async def watched_send(message: Message) -> None:
            nonlocal status, is_stream
            if message["type"] == "http.response.start":
                status = int(message["status"])
                kind = Headers(raw=message.get("headers", ())).get("content-type", "")
                is_stream = kind.startswith("text/event-stream")
            await send(message)

        try:
            body = await self._body(scope, receive)
            await self._app(scope, _replay(body, receive), watched_send)
        except ClientGone:
            status = 499
        except Problem as problem:
            self._metrics.problems.labels(problem.kind.value).inc()
            await problem_response(problem, scope["path"])(scope, receive, watched_send)
        except Exception as error:
            problem = unexpected(error, scope["path"])
            self._metrics.problems.labels(problem.kind.value).inc()
            if status is not None:
                raise  # half an answer is out: the server cuts the connection
            await problem_response(problem, scope["path"])(scope, receive, watched_send)
        finally:
            self._count(scope, status, is_stream, time.perf_counter() - began_s)

    def _count(self, scope: Scope, status: int | None, is_stream: bool, took_s: float) -> None:
        route = getattr(scope.get("route"), "path", None) or UNROUTED
        method = scope["method"] if route != UNROUTED else "any"
        self._metrics.requests.labels(route, method, str(status or 0)).inc()
        if not is_stream:
            self._metrics.request_s.labels(route, method).observe(took_s)

    async def _body(self, scope: Scope, receive: Receive) -> bytes | None:
        """None when the request has no body."""
        headers = Headers(scope=scope)
        length = headers.get("content-length", "0")
        if length == "0" and "transfer-encoding" not in headers:
            return None
        if length.isascii() and length.isdigit() and int(length) > self._body_bytes_max:
            raise self._too_large()
        pieces: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self._body_wait_s):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ClientGone
                    piece: bytes = message.get("body", b"")
                    size += len(piece)
                    if size > self._body_bytes_max:
                        raise self._too_large()
                    pieces.append(piece)
                    if not message.get("more_body", False):
                        return b"".join(pieces)
        except TimeoutError:
            raise Problem(
                ProblemKind.TOO_SLOW,
                f"The body was not complete after {self._body_wait_s:g} s.",
                headers={"Connection": "close"},
            ) from None

    def _too_large(self) -> Problem:
        return Problem(
            ProblemKind.TOO_LARGE,
            f"A body has at most {self._body_bytes_max} bytes here.",
            {"bytes_max": self._body_bytes_max},
            headers={"Connection": "close"},
        )


def _replay(body: bytes | None, receive: Receive) -> Receive:
    """What was read, once, and then whatever comes (the client's disconnect)."""
    if body is None:
        return receive
    is_read = False

    async def replay() -> Message:
        nonlocal is_read
        if is_read:
            return await receive()
        is_read = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay
