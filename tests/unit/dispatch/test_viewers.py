"""Viewers are handed to the owner of the moment, and told to come again while there is none."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from dispatch.activity import Stamps, Watched, read_stamps
from dispatch.viewer_page import FOLDER, load_assets
from ownership.generations import commit_generation
from ownership.model import CommitGeneration, Generation
from tests.unit.dispatch.test_http import problem
from tests.unit.dispatch.world import World

OFFER = "v=0\r\no=- 1 1 IN IP4 0.0.0.0\r\n"
SDP = {"Content-Type": "application/sdp"}


@dataclass
class Owners:
    """Workers as an HTTP client sees them: an answer per host, and what was asked."""

    answers: dict[str, Callable[[httpx.Request], httpx.Response]] = field(default_factory=dict)
    asked: list[httpx.Request] = field(default_factory=list)

    def transport(self) -> httpx.MockTransport:
        def answer(request: httpx.Request) -> httpx.Response:
            self.asked.append(request)
            found = self.answers.get(request.url.host)
            if found is None:
                raise httpx.ConnectError("nobody listens there", request=request)
            return found(request)

        return httpx.MockTransport(answer)


def accept(request: httpx.Request) -> httpx.Response:
    if request.method == "DELETE":
        return httpx.Response(200)
    headers = {"Location": f"{request.url.raw_path.decode()}/res-1"}
    return httpx.Response(201, content="v=0 answer", headers=headers)


def refuse(status: int, kind: str = "x") -> Callable[[httpx.Request], httpx.Response]:
    return lambda request: httpx.Response(status, json={"type": f"urn:dhsched:problem:{kind}"})


async def live_on(world: World, http: httpx.AsyncClient, live_id: str = "a") -> None:
    await world.worker("w1")
    await http.post("/v1/lives", json={"live_id": live_id})
    await world.claim(live_id, Generation("w1", 1))


async def test_an_offer_is_handed_to_the_owner_and_back(world: World) -> None:
    owners = Owners({"w1.test": accept})
    http = world.http(world.replica(owners=owners.transport()))
    await live_on(world, http, "a/b ü")
    answer = await http.post("/v1/lives/a%2Fb%20%C3%BC/whep", content=OFFER, headers=SDP)
    assert answer.status_code == 201
    assert answer.text == "v=0 answer"
    assert answer.headers["content-type"].startswith("application/sdp")
    location = answer.headers["location"]
    assert location == "/v1/lives/a%2Fb%20%C3%BC/whep/w1~res-1"
    asked = owners.asked[0]
    assert asked.url.raw_path == b"/whep/a%2Fb%20%C3%BC"
    assert asked.headers["dhsched-epoch"] == "1"
    assert asked.content == OFFER.encode()
    left = await http.delete(location)
    assert left.status_code == 204
    assert owners.asked[1].url.raw_path == b"/whep/a%2Fb%20%C3%BC/res-1"


async def test_an_owner_that_moved_meanwhile_is_found_again(world: World) -> None:
    """The first owner answers that it is not the owner any more: the second is asked."""
    owners = Owners()
    http = world.http(world.replica(owners=owners.transport()))
    await live_on(world, http)
    await world.worker("w2")

    def moved(request: httpx.Request) -> httpx.Response:
        return httpx.Response(409)

    owners.answers = {"w1.test": moved, "w2.test": accept}
    first = True
    proxy_owner = http._transport.app.state.replica.whep  # type: ignore[attr-defined]
    offer_to = proxy_owner._offer_to

    async def move_after_first(*given: object) -> object:
        nonlocal first
        try:
            return await offer_to(*given)
        finally:
            if first:
                first = False
                expected = Generation("w1", 1)
                request = CommitGeneration("a", expected, "w2", "c", world.clock.wall_ms())
                await commit_generation(world.db, request)
                await world.claim("a", Generation("w2", 2))

    proxy_owner._offer_to = move_after_first
    answer = await http.post("/v1/lives/a/whep", content=OFFER, headers=SDP)
    assert answer.status_code == 201
    assert answer.headers["location"].endswith("/w2~res-1")
    assert [one.url.host for one in owners.asked] == ["w1.test", "w2.test"]
    assert (
        'dhsched_dispatch_retries_total{kind="owner_silent"} 1.0'
        in (await http.get("/metrics")).text
    )


async def test_an_owner_that_does_not_answer_is_tried_twice(world: World) -> None:
    owners = Owners()
    http = world.http(world.replica(owners=owners.transport()))
    await live_on(world, http)
    answer = await http.post("/v1/lives/a/whep", content=OFFER, headers=SDP)
    problem(answer, 503, "owner-not-ready")
    assert len(owners.asked) == 2


@pytest.mark.parametrize("path", ["whep", "stream.mp4"])
async def test_an_owner_that_has_not_claimed_yet(world: World, path: str) -> None:
    owners = Owners({"w1.test": accept})
    http = world.http(world.replica(owners=owners.transport()))
    await world.worker("w1")
    await http.post("/v1/lives", json={"live_id": "a"})
    method, more = ("GET", {}) if path == "stream.mp4" else ("POST", {"content": OFFER})
    answer = await http.request(method, f"/v1/lives/a/{path}", headers=SDP, **more)  # type: ignore[arg-type]
    problem(answer, 503, "owner-not-ready")
    assert owners.asked == []


@pytest.mark.parametrize(
    ("status", "said", "answer", "kind"),
    [
        (400, "malformed", 422, "bad-sdp"),
        (406, "not-acceptable", 422, "bad-sdp"),
        (503, "too-many-viewers", 503, "too-many-streams"),
        (503, "not-ready", 503, "owner-not-ready"),
        (500, "internal", 503, "owner-not-ready"),
        (409, "not-owner", 503, "owner-not-ready"),
        (201, "no location", 503, "owner-not-ready"),
    ],
)
async def test_refusals_of_the_owner(
    world: World, status: int, said: str, answer: int, kind: str
) -> None:
    owners = Owners({"w1.test": refuse(status, said)})
    http = world.http(world.replica(owners=owners.transport()))
    await live_on(world, http)
    got = await http.post("/v1/lives/a/whep", content=OFFER, headers=SDP)
    problem(got, answer, kind)


async def test_offers_that_are_none(world: World) -> None:
    owners = Owners({"w1.test": accept})
    http = world.http(world.replica(owners=owners.transport()))
    await live_on(world, http)
    for content, headers, status, kind in (
        (OFFER, {"Content-Type": "text/plain"}, 415, "unsupported-media-type"),
        (OFFER, {}, 415, "unsupported-media-type"),
        ("", SDP, 422, "bad-sdp"),
        ("hello", SDP, 422, "bad-sdp"),
        (b"v=0\xff", SDP, 422, "bad-sdp"),
        ("v=0" + "x" * 65_536, SDP, 413, "too-large"),
    ):
        answer = await http.post("/v1/lives/a/whep", content=content, headers=headers)
        problem(answer, status, kind)
    problem(
        await http.post("/v1/lives/nobody/whep", content=OFFER, headers=SDP), 404, "unknown-live"
    )
    await http.delete("/v1/lives/a")
    problem(await http.post("/v1/lives/a/whep", content=OFFER, headers=SDP), 410, "live-closed")
    assert owners.asked == []


async def test_leaving(world: World) -> None:
    owners = Owners({"w1.test": refuse(404)})
    http = world.http(world.replica(owners=owners.transport()))
    await live_on(world, http)
    for resource in ("res-1", "w1~", "~res", "w1~..%2F..%2Fmetrics", "w1~res-1"):
        answer = await http.delete(f"/v1/lives/a/whep/{resource}")
        problem(answer, 404, "unknown-viewer")
    assert [one.url.path for one in owners.asked] == ["/whep/a/res-1"]
    # A worker that is gone took its connections along.
    assert (await http.delete("/v1/lives/a/whep/w9~res-1")).status_code == 204
    owners.answers = {}
    problem(await http.delete("/v1/lives/a/whep/w1~res-1"), 503, "owner-not-ready")


async def test_the_mp4_stream_is_at_the_owner(world: World) -> None:
    http = world.http(world.replica())
    await live_on(world, http, "a/b")
    answer = await http.get("/v1/lives/a%2Fb/stream.mp4")
    assert answer.status_code == 307
    assert answer.headers["location"] == "http://w1.test/lives/a%2Fb/stream.mp4"


async def test_watching_counts_as_use(world: World) -> None:
    owners = Owners({"w1.test": accept})
    replica = world.replica(owners=owners.transport())
    http = world.http(replica)
    await live_on(world, http)
    await http.post("/v1/lives/a/whep", content=OFFER, headers=SDP)
    await replica.service.activity.flush()
    stamps = await world.db.read(lambda tr: read_stamps(tr, "a"))
    now_ms = world.clock.wall_ms()
    assert stamps == Stamps(now_ms, Watched(now_ms, 1))


async def test_the_page_and_its_assets(world: World) -> None:
    http = world.http(world.replica())
    for path in ("/", "/watch/a", "/watch/a%2Fb"):
        page = await http.get(path)
        assert page.status_code == 200, path
        assert page.headers["content-type"].startswith("text/html")
        assert page.headers["cache-control"] == "no-cache"
        assert "default-src 'self'" in page.headers["content-security-policy"]
        assert page.headers["x-content-type-options"] == "nosniff"
    known = {"If-None-Match": page.headers["etag"]}
    assert (await http.get("/", headers=known)).status_code == 304
    for name in load_assets():
        asset = await http.get(f"/static/{name}")
        assert asset.status_code == 200
        assert "max-age" in asset.headers["cache-control"]
    problem(await http.get("/static/nothing.js"), 404, "not-found")
    problem(await http.get("/static/../settings.py"), 404, "not-found")


def test_what_the_page_asks_for_is_there() -> None:
    assets = load_assets()
    assert "index.html" in assets
    for name, asset in assets.items():
        assert asset.media_type.split("/")[0] in ("text", "image", "application"), name
    page = (FOLDER / "index.html").read_text()
    for part in page.split("/static/")[1:]:
        assert part.split('"')[0] in assets


def test_hidden_files_are_not_served(tmp_path: Path) -> None:
    (tmp_path / ".secret").write_text("x")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "config").write_text("x")
    (tmp_path / "a.js").write_text("x")
    assert list(load_assets(tmp_path)) == ["a.js"]
