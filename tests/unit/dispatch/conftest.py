"""A store, a broker and any number of replicas in one event loop, with clocks that tests turn."""

from collections.abc import AsyncIterator

import pytest

from tests.unit.dispatch.world import World


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with World() as made:
        yield made
