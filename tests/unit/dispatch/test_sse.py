"""Event streams over a socket: form, resume, heartbeats, slow readers, the end."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from dispatch.sse import sse
from schemas.events import EventKind
from tests.support.wait import until
from tests.unit.dispatch.serving import serving
from tests.unit.dispatch.test_events_feed import write
from tests.unit.dispatch.test_http import problem
from tests.unit.dispatch.world import World

Block = dict[str, str]


async def blocks(answer: httpx.Response) -> AsyncIterator[Block]:
    """The blocks of a stream: fields by name, comments under ''."""
    block: Block = {}
    async for line in answer.aiter_lines():
        if line == "":
            yield block
            block = {}
            continue
        name, _, value = line.partition(":")
        block[name] = value.removeprefix(" ")


async def next_event(stream: AsyncIterator[Block]) -> tuple[str, dict[str, Any]]:
    async for block in stream:
        if "data" in block:
            return block.get("id", ""), json.loads(block["data"])
    raise AssertionError("the stream ended")


def test_the_form_of_a_message() -> None:
    assert sse("{}", event_id="1:2", name="notice") == b"id: 1:2\nevent: notice\ndata: {}\n\n"
    assert sse("{}") == b"data: {}\n\n"


async def test_a_stream_and_its_resume_on_another_replica(world: World) -> None:
    await world.worker("w1")
    one, two = world.replica(), world.replica()
    for replica in (one, two):
        world.run_feed(replica.service)
    async with serving(one) as here, serving(two) as there, httpx.AsyncClient() as http:
        await http.post(f"http://{here}/v1/lives", json={"live_id": "a"})
        await until(lambda: len(world.events("a")) == 2, what="the events of the creation")
        async with http.stream("GET", f"http://{here}/v1/lives/a/events") as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            assert answer.headers["cache-control"] == "no-store"
            stream = blocks(answer)
            first = await anext(stream)
            assert first["retry"] == "2000"
            await write(world, "a", 1)
            event_id, event = await next_event(stream)
            assert event["kind"] == "speak_started"
            assert event["event_id"] == "a-1"
            assert event["data"] == {}
            partition, _, offset = event_id.partition(":")
            assert (partition, int(offset)) == (first["id"].partition(":")[0], 2)
        await write(world, "a", 2)
        resumed = {"Last-Event-ID": event_id}
        url = f"http://{there}/v1/lives/a/events"
        async with http.stream("GET", url, headers=resumed) as answer:
            assert (await next_event(blocks(answer)))[1]["event_id"] == "a-2"
        query = {"last_event_id": first["id"]}
        async with http.stream("GET", url, params=query) as answer:
            assert (await next_event(blocks(answer)))[1]["event_id"] == "a-1"
        async with http.stream("GET", url, params={"last_event_id": "0:-1"}) as answer:
            _, opened = await next_event(blocks(answer))
            assert opened["kind"] == EventKind.STATE_UPDATED
        await until(lambda: two.service.feed.streams == 0, what="the streams' end")


async def test_all_lives_and_heartbeats(world: World) -> None:
    replica = world.replica(heartbeat_s=0.05)
    world.run_feed(replica.service)
    async with (
        serving(replica) as here,
        httpx.AsyncClient() as http,
        http.stream("GET", f"http://{here}/v1/events") as answer,
    ):
        stream = blocks(answer)
        assert (await anext(stream))["id"].count(",") == 5
        assert await anext(stream) == {"": "heartbeat"}
        await write(world, "a", 1)
        await write(world, "b", 1)
        heard = {(await next_event(stream))[1]["live_id"] for _ in range(2)}
        assert heard == {"a", "b"}


async def test_a_stopping_replica_says_so(world: World) -> None:
    replica = world.replica()
    world.run_feed(replica.service)
    heard: list[Block] = []
    connected = asyncio.Event()

    async def listen(here: str) -> None:
        async with (
            httpx.AsyncClient() as http,
            http.stream("GET", f"http://{here}/v1/events") as answer,
        ):
            async for block in blocks(answer):
                heard.append(block)
                connected.set()

    async with serving(replica) as here:
        listening = asyncio.create_task(listen(here))
        await connected.wait()
    await listening
    assert heard[-1]["event"] == "notice"
    last = json.loads(heard[-1]["data"])
    assert last["notice"] == "stopping"
    assert last["last_event_id"] == heard[-1]["id"]


async def test_a_reader_that_blocks_is_cut(world: World) -> None:
    """It reads nothing: the socket fills, the queue fills, and the stream is let go of."""
    replica = world.replica(stream_write_s=0.2)
    feed = replica.service.feed
    world.run_feed(replica.service)
    async with serving(replica) as here:
        host, _, port = here.partition(":")
        reader, writer = await asyncio.open_connection(host, int(port), limit=1_024)
        writer.write(b"GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n")
        await until(lambda: feed.streams == 1, what="the stream")

        async def flood() -> bool:
            for number in range(200):
                await write(world, "a" * 120, number)
            return feed.streams == 0

        await until(flood, timeout_s=120, what="the cut")
        await until(lambda: not here.tasks, what="the end of the answer")
        writer.close()
        await writer.wait_closed()
        del reader


async def test_refusals(world: World) -> None:
    await world.worker("w1")
    replica = world.replica()
    world.run_feed(replica.service)
    http = world.http(replica)
    await http.post("/v1/lives", json={"live_id": "a"})
    for path in ("/v1/lives/a/events", "/v1/events"):
        for bad in ("x", "99:1", "1", "0:1,0:1", "-1:4"):
            answer = await http.get(path, headers={"Last-Event-ID": bad})
            problem(answer, 422, "bad-event-id")
    replica.service.feed._streams_max = 0
    problem(await http.get("/v1/events"), 503, "too-many-streams")


async def test_without_the_topic_there_is_no_stream(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dispatch.routes_events.FEED_WAIT_S", 0.05)
    replica = world.replica()  # its feed does not run
    problem(await world.http(replica).get("/v1/events"), 503, "broker-away")
