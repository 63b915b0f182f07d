"""Whatever a client sends, the answer is an answer: never a 500, always the right form."""

import asyncio
import json
from typing import Any
from urllib.parse import quote_from_bytes

import hypothesis.strategies as st
from hypothesis import HealthCheck, given, settings

from tests.unit.dispatch.world import World

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(codec=None), max_size=30),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=6,
)
known_keys = st.sampled_from(
    ["live_id", "options", "text", "end_turn", "seq", "to", "draining", "look", "speed", "seed"]
)
bodies = st.one_of(
    st.binary(max_size=60),
    json_values.map(lambda value: json.dumps(value).encode()),
    st.dictionaries(known_keys, json_values, max_size=3).map(lambda d: json.dumps(d).encode()),
    st.fixed_dictionaries({"options": st.dictionaries(known_keys, json_values)}).map(
        lambda d: json.dumps(d).encode()
    ),
    st.fixed_dictionaries({"text": st.text(max_size=40)}).map(lambda d: json.dumps(d).encode()),
)
segments = st.one_of(
    st.just("a"),
    st.binary(min_size=1, max_size=140).map(lambda raw: quote_from_bytes(raw, safe="")),
    st.text("abc%/.~", min_size=1, max_size=8),
)
routes = st.sampled_from(
    [
        ("POST", "/v1/lives"),
        ("GET", "/v1/lives?after={}"),
        ("GET", "/v1/lives?limit={}"),
        ("GET", "/v1/lives/{}"),
        ("DELETE", "/v1/lives/{}"),
        ("POST", "/v1/lives/{}/text"),
        ("POST", "/v1/lives/{}/interrupt"),
        ("POST", "/v1/lives/{}/keepalive"),
        ("POST", "/v1/lives/{}/move"),
        ("POST", "/v1/lives/{}/whep"),
        ("DELETE", "/v1/lives/a/whep/{}"),
        ("GET", "/v1/lives/{}/stream.mp4"),
        ("POST", "/v1/workers/{}/drain"),
        ("GET", "/static/{}"),
        ("GET", "/watch/{}"),
        ("PATCH", "/v1/lives/{}"),
        ("GET", "/{}"),
    ]
)
content_types = st.sampled_from(
    ["application/json", "application/sdp", "text/plain", "application/x+json; a=b", ";;"]
)


@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(route=routes, segment=segments, body=bodies, content_type=content_types)
def test_no_request_is_a_500(
    route: tuple[str, str], segment: str, body: bytes, content_type: str
) -> None:
    async def ask() -> None:
        async with World() as world:
            await world.worker("w1", 2)
            http = world.http(world.replica())
            await http.post("/v1/lives", json={"live_id": "a"})
            method, path = route
            headers = {"Content-Type": content_type, "Idempotency-Key": segment[:20]}
            answer = await http.request(method, path.format(segment), content=body, headers=headers)
            assert answer.status_code != 500, answer.text
            if answer.status_code >= 400:
                assert answer.headers["content-type"] == "application/problem+json"
                document: dict[str, Any] = answer.json()
                assert document["status"] == answer.status_code

    asyncio.run(ask())
