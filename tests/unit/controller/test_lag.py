"""The lag of partitions in custody: from the watermark to the log's end."""

import asyncio
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

from controller.lag import marks_of, watch_lag
from stream.transport import BrokerAway
from tests.support.wait import until


def worker(custody: dict[int, int] | None, stale: dict[int, int] | None = None) -> Any:
    incarnation = None
    if custody is not None:
        kept = SimpleNamespace(books=dict.fromkeys(custody), marks={**(stale or {}), **custody})
        incarnation = SimpleNamespace(consumer=SimpleNamespace(custody=kept))
    return SimpleNamespace(incarnation=incarnation, lag={})


def test_only_partitions_in_custody_have_a_lag_here() -> None:
    assert marks_of(worker({1: 5}, stale={2: 9})) == {1: 5}
    assert marks_of(worker(None)) == {}


async def test_the_lag_follows_the_log_and_outlives_a_broker() -> None:
    ends = {1: 12, 2: 3}
    away = False

    async def log_ends(partitions: Iterable[int]) -> dict[int, int]:
        if away:
            raise BrokerAway("gone")
        return {partition: ends[partition] for partition in partitions}

    one = worker({1: 5, 2: 4})
    watching = asyncio.create_task(watch_lag(one, log_ends, look_s=0.001))
    try:
        await until(lambda: one.lag == {1: 7, 2: 0})
        away, ends[1] = True, 100
        await asyncio.sleep(0.02)
        assert one.lag == {1: 7, 2: 0}
        away = False
        await until(lambda: one.lag == {1: 95, 2: 0})
        one.incarnation = None
        await until(lambda: one.lag == {})
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
