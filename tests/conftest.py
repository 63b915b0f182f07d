"""Fixtures of all tests: brokers, whole systems on them, a line that says which were used."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support.core import NotCompiled, core_kind
from tests.support.kafka_source import KafkaSource, NoKafka, embedded_source, kafka_source
from tests.support.system import any_system, embedded_system, system

__all__ = ["any_system", "embedded_system", "system"]

APART = tuple(Path(__file__).parent / name for name in ("sim", "chaos", "compiled"))
_USED: pytest.StashKey[list[str]] = pytest.StashKey()

# No test is about speed, and the machine may be busy with other work.
settings.register_profile(
    "any-speed", settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
)
settings.load_profile("any-speed")


def pytest_sessionstart(session: pytest.Session) -> None:
    """With `DHSCHED_REQUIRE_COMPILED=1` nothing runs from the source of what can be compiled."""
    try:
        _note(session.config, f"core: {core_kind()}")
    except NotCompiled as error:
        pytest.exit(str(error), returncode=pytest.ExitCode.USAGE_ERROR)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """The simulator's tests run in a process of their own: they put observers and shortcuts into
    production code as soon as they are imported. So do those with real processes under faults,
    which take their time, and those of the compiled core, which need it. Name such a folder alone
    to run its tests.
    """
    if collection_path not in APART:
        return None
    asked = [Path(argument.split("::")[0]).resolve() for argument in config.args]
    apart = all(collection_path in (path, *path.parents) for path in asked)
    return not apart or None


def pytest_collection_finish() -> None:
    """torch computes on one thread here, as it does in a stage: on few cores several threads wait
    for each other more than they compute.
    """
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(1)


@pytest.fixture(scope="session")
def kafka(pytestconfig: pytest.Config) -> Iterator[KafkaSource]:
    """The best broker of this machine: see tests/support/kafka_source.py."""
    try:
        with kafka_source() as source:
            _note(pytestconfig, f"broker: tests ran on {source.name}")
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
        _note(pytestconfig, f"broker: tests ran on {source.name}")
        yield source.bootstrap


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    for line in config.stash.get(_USED, []):
        terminalreporter.write_line(line)


def _note(config: pytest.Config, line: str) -> None:
    config.stash.setdefault(_USED, []).append(line)
