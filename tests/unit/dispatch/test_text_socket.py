"""Token streams over a socket: order, joining, answers, errors, back pressure, the end."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from dispatch.limits import Limits
from dispatch.replica import Replica
from schemas.text_record import RecordKind
from tests.support.wait import until
from tests.unit.dispatch.serving import serving
from tests.unit.dispatch.world import World


@asynccontextmanager
async def socket_of(
    world: World, replica: Replica | None = None
) -> AsyncIterator[ClientConnection]:
    """A socket to live "a"."""
    await world.worker("w1")
    replica = replica or world.replica()
    async with serving(replica) as here, httpx.AsyncClient() as http:
        await http.post(f"http://{here}/v1/lives", json={"live_id": "a"})
        async with connect(f"ws://{here}/v1/lives/a/text") as socket:
            yield socket


async def ask(socket: ClientConnection, *messages: object) -> list[dict[str, Any]]:
    """Sends all, then reads an answer for each."""
    for message in messages:
        await socket.send(message if isinstance(message, str) else json.dumps(message))
    async with asyncio.timeout(5):
        return [json.loads(await socket.recv()) for _ in messages]


def spoken(world: World) -> str:
    return "".join(one.text for one in world.texts("a"))


async def test_each_message_is_answered_in_order(world: World) -> None:
    async with socket_of(world) as socket:
        answers = await ask(
            socket, {"text": "Hello, "}, {"text": "world."}, {"end_turn": True}, {"interrupt": True}
        )
        assert [one["ack"] for one in answers] == [1, 2, 3, 4]
        assert all(isinstance(one["offset"], int) for one in answers)
        assert spoken(world) == "Hello, world."
        kinds = [one.kind for one in world.texts("a")]
        assert kinds[-2:] == [RecordKind.END_TURN, RecordKind.INTERRUPT]


async def test_tokens_that_come_while_one_is_written_are_joined(world: World) -> None:
    world.broker.faults.latency_ms_min = world.broker.faults.latency_ms_max = 20
    async with socket_of(world) as socket:
        tokens = [f"t{number} " for number in range(200)]
        answers = await ask(socket, *({"text": token} for token in tokens))
        assert [one["ack"] for one in answers] == list(range(1, 201))
        assert spoken(world) == "".join(tokens)
        assert len(world.texts("a")) < 100
        offsets = [one["offset"] for one in answers]
        assert offsets == sorted(offsets)


async def test_white_space_alone_waits_for_its_word(world: World) -> None:
    async with socket_of(world) as socket:
        await socket.send('{"text": "one"}')
        await socket.recv()
        for message in ('{"text": " "}', '{"text": "\\n"}', '{"text": "two"}'):
            await socket.send(message)
        async with asyncio.timeout(5):
            answers = [json.loads(await socket.recv()) for _ in range(3)]
        assert [one["ack"] for one in answers] == [2, 3, 4]
        assert len({one["offset"] for one in answers}) == 1
        assert spoken(world) == "one \ntwo"
        answers = await ask(socket, {"text": "  "}, {"end_turn": True})
        assert (answers[0]["ack"], answers[0]["offset"]) == (5, None)
        assert isinstance(answers[1]["offset"], int)


async def test_numbered_text_is_never_joined(world: World) -> None:
    async with socket_of(world) as socket:
        await ask(socket, *({"text": f"t{number}", "seq": number} for number in range(5)))
        assert [one.seq for one in world.texts("a")] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("{", "malformed-request"),
        ("", "malformed-request"),
        (b"{}", "malformed-request"),
        ('"text"', "invalid-request"),
        ("{}", "invalid-request"),
        ('{"text": "a", "end_turn": true}', "invalid-request"),
        ('{"text": "a", "loud": 1}', "invalid-request"),
        ('{"text": 5}', "invalid-request"),
        ('{"end_turn": false}', "invalid-request"),
        ('{"interrupt": true, "seq": 1}', "invalid-request"),
        ('{"text": ""}', "bad-text"),
        ('{"text": "a\\u0000b"}', "bad-text"),
        ('{"text": "\\u001f"}', "bad-text"),
        ('{"text": "  ", "seq": 4}', "bad-text"),
        (json.dumps({"text": "x" * 16_385}), "too-large"),
        ('{"a":' * 5_000, "malformed-request"),
    ],
)
async def test_bad_messages_are_answered_and_the_socket_stays(
    world: World, message: str | bytes, kind: str
) -> None:
    async with socket_of(world) as socket:
        await socket.send(message)
        async with asyncio.timeout(5):
            answer = json.loads(await socket.recv())
        assert answer["error"] == 1
        assert answer["problem"]["type"] == f"urn:dhsched:problem:{kind}"
        assert (await ask(socket, {"text": "Still here."}))[0]["ack"] == 2
        assert spoken(world) == "Still here."


async def test_a_bad_token_does_not_spoil_its_neighbours(world: World) -> None:
    world.broker.faults.latency_ms_min = world.broker.faults.latency_ms_max = 20
    async with socket_of(world) as socket:
        answers = await ask(
            socket, {"text": "a"}, {"text": "b"}, {"text": "\x00"}, {"text": "c"}, {"text": "d"}
        )
        assert ["ack" in one for one in answers] == [True, True, False, True, True]
        assert spoken(world) == "abcd"


async def test_more_white_space_than_fits_does_not_stop_the_stream(world: World) -> None:
    async with socket_of(world) as socket:
        answers = await ask(
            socket, {"text": " " * 16_000}, {"text": " " * 16_000}, {"text": "x" * 16_000}
        )
        assert [one["ack"] for one in answers] == [1, 2, 3]
        assert answers[0]["offset"] is None
        assert spoken(world).strip() == "x" * 16_000


async def test_a_closed_live_ends_the_socket(world: World) -> None:
    replica = world.replica()
    async with socket_of(world, replica) as socket:
        await replica.service.lives.close("a", "api")
        (answer,) = await ask(socket, {"text": "Hi"})
        assert answer["problem"]["type"] == "urn:dhsched:problem:live-closed"
        with pytest.raises(ConnectionClosed):
            await socket.recv()
        assert socket.close_code == 4410


async def test_a_broker_that_is_away_is_an_answer(world: World) -> None:
    async with socket_of(world) as socket:
        world.broker.away = True
        (answer,) = await ask(socket, {"text": "Hi"})
        assert answer["problem"]["type"] == "urn:dhsched:problem:broker-away"
        world.broker.away = False
        (answer,) = await ask(socket, {"text": "Hi"})
        assert answer["ack"] == 2


async def test_what_was_sent_before_leaving_is_appended(world: World) -> None:
    world.broker.faults.latency_ms_min = world.broker.faults.latency_ms_max = 30
    async with socket_of(world) as socket:
        for number in range(20):
            await socket.send(json.dumps({"text": f"t{number} "}))
        await socket.close()
        wanted = "".join(f"t{number} " for number in range(20))
        await until(lambda: spoken(world) == wanted, what="all texts")


async def test_a_fast_client_is_slowed_down(world: World) -> None:
    """Nothing is dropped, and what waits here is bounded."""
    world.broker.faults.latency_ms_min = world.broker.faults.latency_ms_max = 5
    async with socket_of(world) as socket:
        big = "y" * 8_000

        async def send() -> None:
            for number in range(300):
                await socket.send(json.dumps({"text": big, "seq": number}))

        sending = asyncio.create_task(send())
        for number in range(300):
            async with asyncio.timeout(10):
                assert json.loads(await socket.recv())["ack"] == number + 1
        await sending
    assert [one.seq for one in world.texts("a")] == list(range(300))


async def test_the_handshake_is_refused_as_a_request_is(world: World) -> None:
    await world.worker("w1")
    replica = world.replica(limits=Limits(sockets_max=1))
    await replica.service.text.interrupt("a")
    async with serving(replica) as here, httpx.AsyncClient() as http:
        for live_id, status in (("nobody", 404), ("%FF", 422)):
            with pytest.raises(InvalidStatus) as raised:
                await connect(f"ws://{here}/v1/lives/{live_id}/text")
            assert raised.value.response.status_code == status
            body = json.loads(raised.value.response.body or b"")
            assert body["type"].startswith("urn:dhsched:problem:")
        await http.post(f"http://{here}/v1/lives", json={"live_id": "a"})
        async with connect(f"ws://{here}/v1/lives/a/text"):
            with pytest.raises(InvalidStatus) as raised:
                await connect(f"ws://{here}/v1/lives/a/text")
            assert raised.value.response.status_code == 503
        await until(lambda: replica.sockets == 0, what="the socket's end")
        await http.delete(f"http://{here}/v1/lives/a")
        with pytest.raises(InvalidStatus) as raised:
            await connect(f"ws://{here}/v1/lives/a/text")
        assert raised.value.response.status_code == 410


async def test_a_stopping_replica_sends_its_clients_on(world: World) -> None:
    replica = world.replica()
    async with socket_of(world, replica) as socket:
        replica.stopping.set()
        with pytest.raises(ConnectionClosed):
            async with asyncio.timeout(5):
                await socket.recv()
        assert socket.close_code == 1012
