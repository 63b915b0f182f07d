"""Fixtures of all tests: brokers, whole systems on them, a line that says which were used."""

from collections.abc import Iterator

import pytest

from tests.support.kafka_source import KafkaSource, NoKafka, embedded_source, kafka_source
from tests.support.system import any_system, embedded_system, system

__all__ = ["any_system", "embedded_system", "system"]

_USED: pytest.StashKey[list[str]] = pytest.StashKey()


@pytest.fixture(scope="session")
def kafka(pytestconfig: pytest.Config) -> Iterator[KafkaSource]:
    """The best broker of this machine: see tests/support/kafka_source.py."""
    try:
        with kafka_source() as source:
            _note(pytestconfig, f"tests ran on {source.name}")
            yield source
    except NoKafka as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture(scope="session")
def kafka_bootstrap(kafka: KafkaSource) -> str:
    """HOST:PORT of that broker."""
    return kafka.bootstrap


@pytest.fixture(scope="session")
def embedded_bootstrap(pytestconfig: pytest.Config) -> Iterator[str]:
    """HOST:PORT of an embedded broker, also where Apache Kafka is at hand."""
    with embedded_source() as source:
        _note(pytestconfig, f"tests ran on {source.name}")
        yield source.bootstrap


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    for line in config.stash.get(_USED, []):
        terminalreporter.write_line(f"broker: {line}")


def _note(config: pytest.Config, line: str) -> None:
    config.stash.setdefault(_USED, []).append(line)
