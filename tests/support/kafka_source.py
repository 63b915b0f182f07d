"""Where tests get their Kafka from: the best that this machine has.

In this order: the cluster that KAFKA_BOOTSTRAP_SERVERS names, Apache Kafka as a process (Java and
Maven), Apache Kafka in a container (Docker), the embedded broker. DHSCHED_REQUIRE_KAFKA=1 makes
everything but Apache Kafka an error, so that a test run cannot pass on less without being asked.
"""

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from stream.embedded import EmbeddedBroker, EmbeddedBrokerFailed
from stream.settings import EMBEDDED_CLUSTER_ID
from tests.support.apache_kafka import ApacheKafka, KafkaUnavailable, free_port
from tests.support.demands import demanded
from tests.support.kafka_ready import cluster_id
from tests.support.kafka_tools import tools

IMAGE = "apache/kafka:4.1.1"
_CONTAINER_TIMEOUT_S = 90.0


@dataclass(frozen=True, slots=True)
class KafkaSource:
    """`name` is for people, `apache` says whether it is Apache Kafka."""

    bootstrap: str
    name: str
    apache: bool


class NoKafka(Exception):
    """There is no broker of the wanted kind; the message says what was tried."""


def required() -> bool:
    return demanded("KAFKA")


@contextmanager
def own_broker(*, with_tools: bool = False) -> Iterator[ApacheKafka]:
    """Apache Kafka of a module's own, to stop it, empty it or count in it; with `with_tools`
    beside Kafka's commands. The tests are skipped where it cannot be run and nobody insists.
    """
    try:
        if with_tools:
            tools()
        made = ApacheKafka()
    except KafkaUnavailable as error:
        if required():
            raise
        pytest.skip(f"no Apache Kafka of this module's own: {error}")
    with made:
        yield made


@contextmanager
def kafka_source() -> Iterator[KafkaSource]:
    """A broker for the time of the block. Raises NoKafka."""
    named = os.environ.get("KAFKA_BOOTSTRAP_SERVERS", "").strip()
    if named:
        yield _named(named)
        return
    passed_over: list[str] = []
    try:
        broker = ApacheKafka()
    except KafkaUnavailable as error:
        passed_over.append(f"no process: {error}")
    else:
        with broker:
            yield KafkaSource(broker.bootstrap, "Apache Kafka as a process (Java)", apache=True)
        return
    try:
        container = _container()
    except KafkaUnavailable as error:
        passed_over.append(f"no container: {error}")
    else:
        with container as source:
            yield source
        return
    if required():
        raise NoKafka("DHSCHED_REQUIRE_KAFKA is set: " + "; ".join(passed_over))
    try:
        with embedded_source() as source:
            yield source
    except EmbeddedBrokerFailed as error:
        raise NoKafka("; ".join([*passed_over, str(error)])) from error


@contextmanager
def embedded_source() -> Iterator[KafkaSource]:
    """The embedded broker. Raises EmbeddedBrokerFailed."""
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        broker = runner.run(EmbeddedBroker.start())
        try:
            yield KafkaSource(broker.bootstrap, "the embedded broker (Tansu)", apache=False)
        finally:
            runner.run(broker.close())


def _named(bootstrap: str) -> KafkaSource:
    found = cluster_id(bootstrap)
    if found is None:
        raise NoKafka(f"KAFKA_BOOTSTRAP_SERVERS={bootstrap}: nobody answers there")
    apache = found != EMBEDDED_CLUSTER_ID
    if required() and not apache:
        raise NoKafka(f"DHSCHED_REQUIRE_KAFKA is set and {bootstrap} is not Apache Kafka")
    return KafkaSource(bootstrap, f"the cluster at {bootstrap}", apache)


def _container() -> "_Container":
    """Raises KafkaUnavailable when no Docker engine answers."""
    try:
        import docker
        from docker.errors import DockerException
    except ImportError as error:
        raise KafkaUnavailable(f"{error}") from error
    try:
        client = docker.from_env(timeout=5)
        try:
            client.ping()
        finally:
            client.close()
    except DockerException as error:
        raise KafkaUnavailable("no Docker engine answers") from error
    return _Container()


class _Container:
    """The pinned image; the advertised port must be the mapped one, so it is chosen before."""

    def __enter__(self) -> KafkaSource:
        from testcontainers.core.container import DockerContainer

        port = free_port()
        bootstrap = f"127.0.0.1:{port}"
        settings = {
            "KAFKA_NODE_ID": "1",
            "KAFKA_PROCESS_ROLES": "broker,controller",
            "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9093",
            "KAFKA_LISTENERS": "PLAINTEXT://:9092,CONTROLLER://:9093",
            "KAFKA_ADVERTISED_LISTENERS": f"PLAINTEXT://{bootstrap}",
            "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
            "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
            "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
            "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
            "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
            "KAFKA_GROUP_MIN_SESSION_TIMEOUT_MS": "1000",
            "KAFKA_AUTO_CREATE_TOPICS_ENABLE": "false",
            "KAFKA_HEAP_OPTS": "-Xmx512m",
        }
        self._container = DockerContainer(IMAGE).with_bind_ports(9092, port)
        for name, value in settings.items():
            self._container.with_env(name, value)
        self._container.start()
        until_s = time.monotonic() + _CONTAINER_TIMEOUT_S
        while cluster_id(bootstrap) is None:
            if time.monotonic() > until_s:
                self._container.stop()
                raise NoKafka(f"{IMAGE} does not answer on {bootstrap}")
            time.sleep(0.2)
        return KafkaSource(bootstrap, f"Apache Kafka in a container ({IMAGE})", apache=True)

    def __exit__(self, *_: object) -> None:
        self._container.stop()
