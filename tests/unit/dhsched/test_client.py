"""What the client makes of answers, refusals and silence."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from dhsched.client import DispatchClient
from dhsched.output import CommandFailed

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def answering(status: str, body: str, kind: str = "application/json") -> Answer:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
        writer.write((head + "Connection: close\r\n\r\n" + body).encode())
        await writer.drain()
        writer.close()

    return answer


async def ask(answer: Answer) -> object:
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, DispatchClient(f"http://127.0.0.1:{port}") as client:
        return await client.get("/v1/lives")


async def test_a_document_is_returned() -> None:
    assert await ask(answering("200 OK", '{"lives": []}')) == {"lives": []}


async def test_a_problem_is_told_with_title_and_detail() -> None:
    body = '{"title": "Live closed", "detail": "Create it again."}'
    with pytest.raises(CommandFailed, match=r"Live closed: Create it again\. \(HTTP 410\)"):
        await ask(answering("410 Gone", body, "application/problem+json"))


async def test_an_answer_that_is_no_document_is_told_as_it_is() -> None:
    with pytest.raises(CommandFailed, match="bad gateway \\(HTTP 502\\)"):
        await ask(answering("502 Bad Gateway", "bad gateway", "text/plain"))


async def test_silence_names_the_address() -> None:
    async with DispatchClient("http://127.0.0.1:1") as client:
        assert not await client.is_ready()
        with pytest.raises(CommandFailed, match=r"127\.0\.0\.1:1"):
            await client.get("/v1/lives")
