"""A store, a broker and any number of replicas in one event loop, with clocks that tests turn."""

import logging
from collections.abc import AsyncIterator, Iterator

import pytest
import structlog

from tests.unit.dispatch.world import World


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with World() as made:
        yield made


@pytest.fixture(autouse=True)
def own_logs() -> Iterator[None]:
    """Logs as in production; restored, because the configuration is the process's."""
    root = logging.getLogger()
    kept = root.handlers[:], root.level, structlog.get_config()
    yield
    root.handlers[:], root.level = kept[0], kept[1]
    structlog.configure(**kept[2])
