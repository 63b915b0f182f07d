"""Every route and every refusal, through the application, without a socket."""

import json
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from dispatch.limits import Limits
from hosting.logs import configure_logs
from ownership.memory import Faults, MemoryDatabase
from ownership.model import Generation
from ownership.retry import Retry
from schemas.text_record import RecordKind
from tests.unit.dispatch.world import World

ODD_IDS = ["a b", "x/y", "ünï", "100%", "?q#f", "'\"<>", "a%2Fb", "~.-_", "日本", "{live_id}"]


def problem(answer: httpx.Response, status: int, kind: str) -> dict[str, Any]:
    """The problem document, its form checked."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    document: dict[str, Any] = answer.json()
    assert document["type"] == f"urn:dhsched:problem:{kind}"
    assert document["status"] == status
    assert document["title"]
    assert len(document["detail"]) > 10
    assert document["instance"].startswith("/")
    if status in (429, 503):
        assert int(answer.headers["retry-after"]) == document["retry_after_s"] > 0
    return document


async def ready(world: World, capacity: int = 8, **settings: Any) -> httpx.AsyncClient:
    await world.worker("w1", capacity)
    return world.http(world.replica(**settings))


async def test_create_look_list_close(world: World) -> None:
    http = await ready(world)
    created = await http.post("/v1/lives", json={"options": {"speed": 1.25, "seed": 5}})
    assert created.status_code == 201
    live = created.json()
    assert live["state"] == "open"
    assert live["generation"] == {"worker_id": "w1", "epoch": 1}
    assert created.headers["location"] == f"/v1/lives/{live['live_id']}"
    seen = (await http.get(created.headers["location"])).json()
    assert seen["live_id"] == live["live_id"]
    assert (seen["options"]["speed"], seen["options"]["seed"]) == (1.25, 5)
    assert (seen["claimed"], seen["next_offset"]) == (False, 0)
    await world.claim(live["live_id"], Generation("w1", 1))
    assert (await http.get(created.headers["location"])).json()["claimed"] is True
    listed = (await http.get("/v1/lives")).json()
    assert [one["live_id"] for one in listed["lives"]] == [live["live_id"]]
    assert listed["next"] is None
    closed = await http.delete(created.headers["location"])
    assert closed.status_code == 200
    assert closed.json()["generation"] == {"worker_id": "w1", "epoch": 1}
    world.clock.pass_ms(1)
    problem(await http.delete(created.headers["location"]), 410, "live-closed")
    after = (await http.get(created.headers["location"])).json()
    assert (after["state"], after["close_reason"]) == ("closed", "api")


async def test_create_without_a_body(world: World) -> None:
    http = await ready(world)
    assert (await http.post("/v1/lives")).status_code == 201


@pytest.mark.parametrize("live_id", ODD_IDS)
async def test_any_live_id_can_be_asked_for(world: World, live_id: str) -> None:
    http = await ready(world)
    created = await http.post("/v1/lives", json={"live_id": live_id})
    assert created.status_code == 201
    path = created.headers["location"]
    assert path == f"/v1/lives/{quote(live_id, safe='')}"
    assert (await http.get(path)).json()["live_id"] == live_id
    pushed = await http.post(f"{path}/text", json={"text": "Hi"})
    assert pushed.status_code == 202
    assert world.texts(live_id)[0].text == "Hi"
    assert (await http.delete(path)).status_code == 200


async def test_pages(world: World) -> None:
    http = await ready(world)
    for name in "cab":
        await http.post("/v1/lives", json={"live_id": name})
    first = (await http.get("/v1/lives", params={"limit": 2})).json()
    assert [one["live_id"] for one in first["lives"]] == ["a", "b"]
    rest = (await http.get("/v1/lives", params={"limit": 2, "after": first["next"]})).json()
    assert ([one["live_id"] for one in rest["lives"]], rest["next"]) == (["c"], None)
    problem(await http.get("/v1/lives", params={"limit": 0}), 422, "invalid-request")
    problem(await http.get("/v1/lives", params={"after": "x" * 200}), 422, "bad-live-id")


async def test_over_capacity(world: World) -> None:
    http = await ready(world, 1)
    await http.post("/v1/lives")
    document = problem(await http.post("/v1/lives"), 429, "no-capacity")
    counts = document["counts"]
    assert (counts["capacity"], counts["held"], counts["free"]) == (1, 1, 0)


async def test_idempotency(world: World) -> None:
    http = await ready(world)
    other = world.http(world.replica())
    key = {"Idempotency-Key": "order-1"}
    body = {"options": {"speed": 1.5}}
    first = await http.post("/v1/lives", json=body, headers=key)
    again = await other.post("/v1/lives", json=body, headers=key)
    assert again.status_code == 201
    assert again.json() == first.json()
    assert again.headers["idempotency-replayed"] == "true"
    mismatch = await other.post("/v1/lives", json={}, headers=key)
    problem(mismatch, 422, "idempotency-mismatch")
    for bad in ("", "x" * 256, "caf\xe9"):
        headers = [(b"Idempotency-Key", bad.encode("latin-1"))]
        problem(await http.post("/v1/lives", json=body, headers=headers), 422, "invalid-request")


async def test_a_taken_name(world: World) -> None:
    http = await ready(world)
    await http.post("/v1/lives", json={"live_id": "a"})
    problem(await http.post("/v1/lives", json={"live_id": "a"}), 409, "live-exists")


@pytest.mark.parametrize(
    ("body", "status", "kind"),
    [
        ({"live_id": ""}, 422, "bad-live-id"),
        ({"live_id": "x" * 129}, 422, "bad-live-id"),
        ({"live_id": "é" * 65}, 422, "bad-live-id"),
        ({"live_id": "a\nb"}, 422, "bad-live-id"),
        ({"live_id": 7}, 422, "invalid-request"),
        ({"lifeid": "a"}, 422, "invalid-request"),
        ({"options": {"colour": "red"}}, 422, "invalid-request"),
        ({"options": {"speed": 99}}, 422, "bad-options"),
        ({"options": {"speed": "1"}}, 422, "invalid-request"),
        ({"options": {"width_px": 255}}, 422, "bad-options"),
        ({"options": {"look": "../etc"}}, 422, "bad-options"),
        ({"options": {"look": "nobody"}}, 422, "bad-options"),
        ({"options": {"voice": "nobody"}}, 422, "bad-options"),
        ({"options": {"idle_timeout_ms": 0}}, 422, "bad-options"),
        ({"options": None}, 422, "invalid-request"),
        ([], 422, "invalid-request"),
        ("a", 422, "invalid-request"),
    ],
)
async def test_bodies_that_create_nothing(
    world: World, body: object, status: int, kind: str
) -> None:
    http = await ready(world)
    problem(await http.post("/v1/lives", json=body), status, kind)


@pytest.mark.parametrize(
    ("content", "status", "kind"),
    [
        (b"{", 400, "malformed-request"),
        (b'{"text": "\xff\xfe"}', 400, "malformed-request"),
        (b"[" * 100_000, 400, "malformed-request"),
        (b'{"text": "Hi", "seq": ' + b"9" * 5_000 + b"}", 400, "malformed-request"),
        (b'{"text": "Hi", "seq": 1e400}', 422, "invalid-request"),
        (b'{"text": "Hi", "seq": NaN}', 422, "invalid-request"),
        (b'{"text": "Hi", "seq": true}', 422, "invalid-request"),
        (b'{"text": "Hi", "seq": -1}', 422, "invalid-request"),
        (b'{"text": "Hi", "seq": 9223372036854775808}', 422, "invalid-request"),
        (b'{"text": "\\ud800"}', 422, "bad-text"),
        (b'{"\\ud800": 1, "text": "a"}', 422, "invalid-request"),
        (b'{"text": 5}', 422, "invalid-request"),
        (b'{"text": "Hi", "loud": true}', 422, "invalid-request"),
        (b"{}", 422, "invalid-request"),
        (b'{"end_turn": true, "seq": 4}', 422, "invalid-request"),
        (b'{"text": ""}', 422, "bad-text"),
        (b'{"text": "  \\n "}', 422, "bad-text"),
        (b'{"text": "a\\u0000b"}', 422, "bad-text"),
        (b'{"text": "a\\u0007b"}', 422, "bad-text"),
        (json.dumps({"text": "x" * 16_385}).encode(), 413, "too-large"),
        (json.dumps({"text": "x" * 140_000}).encode(), 413, "too-large"),
        (b"", 422, "invalid-request"),
    ],
)
async def test_text_bodies_that_are_refused(
    world: World, content: bytes, status: int, kind: str
) -> None:
    http = await ready(world)
    await http.post("/v1/lives", json={"live_id": "a"})
    headers = {"Content-Type": "application/json"}
    answer = await http.post("/v1/lives/a/text", content=content, headers=headers)
    problem(answer, status, kind)
    assert world.texts() == []


async def test_the_longest_text_is_taken_however_it_is_written(world: World) -> None:
    http = await ready(world)
    await http.post("/v1/lives", json={"live_id": "a"})
    escaped = b'{"text": "' + b"\\u0041" * 16_384 + b'"}'
    headers = {"Content-Type": "application/json"}
    answer = await http.post("/v1/lives/a/text", content=escaped, headers=headers)
    assert answer.status_code == 202
    assert len(world.texts("a")[0].text) == 16_384


async def test_another_media_type_is_refused(world: World) -> None:
    http = await ready(world)
    await http.post("/v1/lives", json={"live_id": "a"})
    for headers in ({"Content-Type": "text/plain"}, {}):
        answer = await http.post("/v1/lives/a/text", content=b'{"text": "Hi"}', headers=headers)
        problem(answer, 415, "unsupported-media-type")


async def test_a_body_without_a_length_is_cut(world: World) -> None:
    http = await ready(world)
    sent = 0

    async def endless() -> Any:
        nonlocal sent
        while True:
            sent += 65_536
            yield b"x" * 65_536

    answer = await http.post("/v1/lives/a/text", content=endless())
    problem(answer, 413, "too-large")
    assert sent < 400_000


async def test_a_body_that_never_comes_is_not_waited_for(world: World) -> None:
    replica = world.replica(body_wait_s=0.05)
    app = world.http(replica)._transport.app  # type: ignore[attr-defined]
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        if not sent_piece:
            sent_piece.append(1)
            return {"type": "http.request", "body": b"{", "more_body": True}
        import asyncio

        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    sent_piece: list[int] = []
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/v1/lives",
        "raw_path": b"/v1/lives",
        "query_string": b"",
        "headers": [(b"content-length", b"10")],
        "client": ("test", 1),
        "server": ("test", 80),
        "scheme": "http",
        "http_version": "1.1",
    }
    await app(scope, receive, send)
    assert sent[0]["status"] == 408


async def test_push_interrupt_keepalive(world: World) -> None:
    http = await ready(world)
    await http.post("/v1/lives", json={"live_id": "a"})
    pushed = await http.post("/v1/lives/a/text", json={"text": "Hi", "end_turn": True, "seq": 1})
    assert pushed.status_code == 202
    place = pushed.json()
    assert place["end_turn_offset"] == place["offset"] + 1
    assert world.texts("a")[0].event_id == place["event_id"]
    only_end = await http.post("/v1/lives/a/text", json={"end_turn": True})
    assert only_end.json()["offset"] == only_end.json()["end_turn_offset"]
    assert (await http.post("/v1/lives/a/interrupt")).status_code == 202
    assert [one.kind for one in world.texts("a")] == [
        RecordKind.TEXT,
        RecordKind.END_TURN,
        RecordKind.END_TURN,
        RecordKind.INTERRUPT,
    ]
    kept = await http.post("/v1/lives/a/keepalive")
    assert kept.json() == {"live_id": "a", "idle_timeout_ms": 600_000}


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/v1/lives/{}", None),
        ("DELETE", "/v1/lives/{}", None),
        ("POST", "/v1/lives/{}/text", {"text": "Hi"}),
        ("POST", "/v1/lives/{}/interrupt", None),
        ("POST", "/v1/lives/{}/keepalive", None),
        ("POST", "/v1/lives/{}/move", {}),
        ("GET", "/v1/lives/{}/events", None),
        ("GET", "/v1/lives/{}/stream.mp4", None),
    ],
)
async def test_lives_that_are_not_there(world: World, method: str, path: str, body: object) -> None:
    http = await ready(world)
    send = {"json": body} if body is not None else {}
    problem(await http.request(method, path.format("nobody"), **send), 404, "unknown-live")
    problem(await http.request(method, path.format("%FF"), **send), 422, "bad-live-id")
    problem(await http.request(method, path.format("a%00b"), **send), 422, "bad-live-id")
    problem(await http.request(method, path.format("x" * 129), **send), 422, "bad-live-id")
    if method == "GET" and not path.endswith("mp4"):
        return
    await http.post("/v1/lives", json={"live_id": "gone"})
    await http.delete("/v1/lives/gone")
    world.clock.pass_ms(1)
    document = problem(await http.request(method, path.format("gone"), **send), 410, "live-closed")
    assert document["close_reason"] == "api"


async def test_moves(world: World) -> None:
    http = await ready(world, 2)
    await http.post("/v1/lives", json={"live_id": "a"})
    problem(await http.post("/v1/lives/a/move"), 429, "no-capacity")
    problem(await http.post("/v1/lives/a/move", json={"to": "w9"}), 404, "unknown-worker")
    odd = {"content": b'{"to": "\\ud800"}', "headers": {"Content-Type": "application/json"}}
    problem(await http.post("/v1/lives/a/move", **odd), 422, "invalid-request")  # type: ignore[arg-type]
    problem(await http.post("/v1/lives/a/move", json={"to": "w1"}), 409, "move-refused")
    problem(await http.post("/v1/lives/a/move", json={"too": "w1"}), 422, "invalid-request")
    await world.worker("w2")
    moved = await http.post("/v1/lives/a/move", json={"to": "w2"})
    assert moved.status_code == 202
    assert moved.json()["source"] == {"worker_id": "w1", "epoch": 1}
    assert (moved.json()["live_id"], moved.json()["target"]) == ("a", "w2")


async def test_workers_and_drain(world: World) -> None:
    http = await ready(world, 2)
    await http.post("/v1/lives")
    await world.worker("old/1", node="n")
    (view, _) = (await http.get("/v1/workers")).json()["workers"][::-1]
    assert {key: view[key] for key in ("worker_id", "state", "capacity", "held", "free")} == {
        "worker_id": "w1",
        "state": "ready",
        "capacity": 2,
        "held": 1,
        "free": 1,
    }
    drained = await http.post("/v1/workers/w1/drain")
    assert drained.json() == {"worker_id": "w1", "state": "draining"}
    assert (await http.post("/v1/workers/old%2F1/drain")).status_code == 200
    problem(await http.post("/v1/lives"), 429, "no-capacity")
    undone = await http.post("/v1/workers/w1/drain", json={"draining": False})
    assert undone.json()["state"] == "ready"
    assert (await http.post("/v1/lives")).status_code == 201
    for unknown in ("w9", "%FF%00", "x" * 2_000):
        answer = await http.post(f"/v1/workers/{unknown}/drain")
        problem(answer, 404, "unknown-worker")
    await world.worker("new", node="n")
    problem(await http.post("/v1/workers/old%2F1/drain"), 409, "move-refused")


async def test_no_route_and_wrong_methods(world: World) -> None:
    http = await ready(world)
    problem(await http.get("/v2/lives"), 404, "not-found")
    problem(await http.get("/v1/lives/a/b/c"), 404, "not-found")
    answer = await http.put("/v1/lives", json={})
    problem(answer, 405, "method-not-allowed")
    assert "POST" in answer.headers["allow"]


async def test_store_and_broker_away(world: World) -> None:
    world.retry = Retry(attempts_max=3)
    await world.worker("w1")
    replica = world.replica()
    http = world.http(replica)
    await http.post("/v1/lives", json={"live_id": "a"})
    world.broker.away = True
    problem(await http.post("/v1/lives/a/text", json={"text": "Hi"}), 503, "broker-away")
    world.broker.away = False
    world.broker.faults.send_refused = 1.0
    problem(await http.post("/v1/lives/a/text", json={"text": "Hi"}), 503, "broker-away")
    world.broker.faults.send_refused = 0.0
    world.broker.faults.send_unknown_lost = 1.0
    document = problem(
        await http.post("/v1/lives/a/text", json={"text": "Hi"}), 503, "outcome-unknown"
    )
    assert "`seq`" in document["detail"]
    db = replica.service.db
    assert isinstance(db, MemoryDatabase)
    db.faults = Faults(away=1.0)
    for answer in (
        await http.post("/v1/lives"),
        await http.get("/v1/lives"),
        await http.get("/v1/workers"),
        await http.post("/v1/lives/a/text", json={"text": "Hi"}),
        await http.delete("/v1/lives/a"),
    ):
        problem(answer, 503, "store-away")
    db.faults = Faults(unknown_dropped=1.0)
    document = problem(await http.delete("/v1/lives/a"), 503, "store-away")
    assert "not known" in document["detail"]


async def test_too_many_sends_at_once(world: World) -> None:
    await world.worker("w1")
    replica = world.replica(limits=Limits(sends_in_flight_max=1))
    http = world.http(replica)
    await http.post("/v1/lives", json={"live_id": "a"})
    replica.service.publisher._in_flight = 1
    problem(await http.post("/v1/lives/a/text", json={"text": "Hi"}), 503, "broker-away")


async def test_the_unexpected_tells_nothing_and_is_logged(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    configure_logs("json", "info")
    replica = world.replica()
    http = world.http(replica)

    async def broken(_: str) -> None:
        raise ZeroDivisionError("secret internals")

    replica.service.lives.get = broken  # type: ignore[assignment, method-assign]
    answer = await http.get("/v1/lives/a")
    problem(answer, 500, "internal")
    assert "secret" not in answer.text
    assert "secret internals" in capsys.readouterr().err


async def test_health_and_readiness(world: World) -> None:
    replica = world.replica()
    http = world.http(replica)
    assert (await http.get("/healthz")).json() == {"status": "alive"}
    assert (await http.get("/readyz")).json() == {"status": "ready"}
    world.broker.away = True
    document = problem(await http.get("/readyz"), 503, "not-ready")
    assert (document["store"], document["broker"]) == ("ok", "the broker does not answer")
    assert (await http.get("/healthz")).status_code == 200
    world.broker.away = False
    db = replica.service.db
    assert isinstance(db, MemoryDatabase)
    db.faults = Faults(away=1.0)
    assert problem(await http.get("/readyz"), 503, "not-ready")["broker"] == "ok"
    db.faults = None
    replica.stopping.set()
    assert (await http.get("/readyz")).status_code == 503


async def test_readiness_needs_the_recorded_partitions(world: World) -> None:
    replica = world.replica()
    replica.probe._broker._text_partitions = 99
    answer = await world.http(replica).get("/readyz")
    assert "12 partitions" in answer.json()["broker"]
    world.broker._topics.clear()
    answer = await world.http(world.replica()).get("/readyz")
    assert "missing" in answer.json()["broker"]


async def test_metrics(world: World) -> None:
    http = await ready(world)
    await http.post("/v1/lives", json={"live_id": "a"})
    await http.get("/v1/lives/nobody")
    await http.get("/nowhere")
    await http.get("/v1/workers")
    text = (await http.get("/metrics")).text
    requests = "dhsched_dispatch_requests_total"
    for line in (
        requests + '{method="POST",route="/v1/lives",status="201"} 1.0',
        requests + '{method="GET",route="/v1/lives/{live_id}",status="404"} 1.0',
        requests + '{method="any",route="(no route)",status="404"} 1.0',
        'dhsched_dispatch_problems_total{type="unknown-live"} 1.0',
        'dhsched_slots{state="held"} 1.0',
        'dhsched_slots{state="free"} 7.0',
        'dhsched_workers{state="ready"} 1.0',
        'dhsched_lives{state="owned"} 1.0',
        'dhsched_dispatch_request_seconds_count{method="POST",route="/v1/lives"} 1.0',
    ):
        assert line in text, text


async def test_description(world: World) -> None:
    http = await ready(world)
    document = (await http.get("/openapi.json")).json()
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            assert operation["summary"], path
            assert operation["description"], path
            for status, answer in operation["responses"].items():
                if int(status) >= 400:
                    assert "application/problem+json" in answer["content"], (path, method, status)
    assert "Problem" in document["components"]["schemas"]
    assert "HTTPValidationError" not in json.dumps(document)
    page = await http.get("/docs")
    assert page.status_code == 200
    assert "default-src 'none'" in page.headers["content-security-policy"]
    for part in (*document["paths"], "Idempotency-Key", "no-capacity", "WebSocket", "idle_timeout"):
        assert part in page.text
    assert "<script" not in page.text
    assert "http:" not in page.text
