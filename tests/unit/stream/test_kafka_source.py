"""Which broker the tests take, and that less than Apache Kafka is never taken unasked."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from stream.embedded import EmbeddedBrokerFailed
from stream.settings import EMBEDDED_CLUSTER_ID
from tests.support import kafka_source
from tests.support.apache_kafka import KafkaUnavailable
from tests.support.kafka_source import KafkaSource, NoKafka

EMBEDDED = KafkaSource("embedded:1", "embedded", apache=False)
CONTAINER = KafkaSource("container:1", "container", apache=True)


class FakeProcess:
    bootstrap = "process:1"

    def __enter__(self) -> "FakeProcess":
        return self

    def __exit__(self, *_: object) -> None:
        pass


@contextmanager
def giving(source: KafkaSource) -> Iterator[KafkaSource]:
    yield source


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A machine with nothing but the embedded broker."""

    def missing(*_: Any) -> Any:
        raise KafkaUnavailable("not here")

    monkeypatch.delenv("KAFKA_BOOTSTRAP_SERVERS", raising=False)
    monkeypatch.delenv("DHSCHED_REQUIRE_KAFKA", raising=False)
    monkeypatch.setattr(kafka_source, "ApacheKafka", missing)
    monkeypatch.setattr(kafka_source, "_container", missing)
    monkeypatch.setattr(kafka_source, "embedded_source", lambda: giving(EMBEDDED))
    return monkeypatch


def taken() -> str:
    with kafka_source.kafka_source() as source:
        return source.bootstrap


def test_the_order(machine: pytest.MonkeyPatch) -> None:
    assert taken() == "embedded:1"
    machine.setattr(kafka_source, "_container", lambda: giving(CONTAINER))
    assert taken() == "container:1"
    machine.setattr(kafka_source, "ApacheKafka", FakeProcess)
    assert taken() == "process:1"
    machine.setenv("KAFKA_BOOTSTRAP_SERVERS", "named:1")
    machine.setattr(kafka_source, "cluster_id", lambda _: "a-cluster")
    assert taken() == "named:1"


def test_less_than_apache_kafka_is_an_error_when_it_is_required(
    machine: pytest.MonkeyPatch,
) -> None:
    machine.setenv("DHSCHED_REQUIRE_KAFKA", "1")
    with pytest.raises(NoKafka, match=r"no process: not here; no container: not here"):
        taken()
    machine.setattr(kafka_source, "_container", lambda: giving(CONTAINER))
    assert taken() == "container:1"
    machine.setenv("KAFKA_BOOTSTRAP_SERVERS", "named:1")
    machine.setattr(kafka_source, "cluster_id", lambda _: EMBEDDED_CLUSTER_ID)
    with pytest.raises(NoKafka, match="not Apache Kafka"):
        taken()


def test_a_named_cluster_that_does_not_answer_is_not_replaced(machine: pytest.MonkeyPatch) -> None:
    machine.setenv("KAFKA_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    with pytest.raises(NoKafka, match="nobody answers"):
        taken()


def test_nothing_at_all(machine: pytest.MonkeyPatch) -> None:
    @contextmanager
    def none() -> Iterator[KafkaSource]:
        raise EmbeddedBrokerFailed("no binary")
        yield

    machine.setattr(kafka_source, "embedded_source", none)
    with pytest.raises(NoKafka, match="no binary"):
        taken()
