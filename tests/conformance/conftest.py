"""The brokers that the transport's conformance suite runs over."""

from collections.abc import AsyncIterator

import pytest

from tests.support.kafka_source import KafkaSource
from tests.support.transports import KafkaWorld, MemoryWorld, World


@pytest.fixture(
    params=["memory", pytest.param("embedded", marks=pytest.mark.kafka),
            pytest.param("apache", marks=pytest.mark.kafka)]
)  # fmt: skip
async def world(request: pytest.FixtureRequest, broker_of_kind: str) -> AsyncIterator[World]:
    """A broker and its transports, closed at the end."""
    made: World
    if request.param == "memory":
        made = MemoryWorld()
    else:
        # The embedded broker lets a group wait for half a session before its first generation.
        session_ms = 2_000 if request.param == "embedded" else 6_000
        made = KafkaWorld(request.param, broker_of_kind, session_ms)
    yield made
    await made.close()


@pytest.fixture
def broker_of_kind(request: pytest.FixtureRequest) -> str:
    """Taken outside the event loop: brokers are started and waited for in their own."""
    kind = request.node.callspec.params["world"]
    if kind == "embedded":
        return request.getfixturevalue("embedded_bootstrap")
    if kind == "apache":
        source: KafkaSource = request.getfixturevalue("kafka")
        if not source.apache:
            pytest.skip(f"Apache Kafka is not here, only {source.name}")
        return source.bootstrap
    return ""
