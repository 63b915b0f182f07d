"""Lag without progress is seen, silence and slow progress are not taken for it."""

import asyncio
from collections.abc import Iterable

import pytest

from stream.settings import KafkaSettings
from stream.transport import BrokerAway
from stream.watchdog import Watchdog
from tests.support.wait import until

SETTINGS = KafkaSettings("127.0.0.1:1", stall_check_ms=1, stall_ms=40)


class Ends:
    """Log ends as a test sets them."""

    def __init__(self, ends: dict[int, int]) -> None:
        self.found = ends
        self.asked = 0
        self.away = False

    async def ends(self, topic: str, partitions: Iterable[int]) -> dict[int, int]:
        self.asked += 1
        await asyncio.sleep(0)
        if self.away:
            raise BrokerAway("gone")
        return {partition: self.found[partition] for partition in partitions}


def watchdog(ends: Ends) -> Watchdog:
    made = Watchdog(SETTINGS, ends)  # type: ignore[arg-type]
    made.start_over()
    return made


async def looked(made: Watchdog, positions: dict[int, int | None]) -> str | None:
    """One look after the check interval."""
    await asyncio.sleep(0.002)
    return made.look("t", positions)


async def test_a_position_that_stands_below_the_logs_end() -> None:
    ends = Ends({0: 10, 1: 4})
    made = watchdog(ends)

    async def stalled() -> str | None:
        return await looked(made, {0: 7, 1: 4})

    found = await until(stalled, timeout_s=5, what="the stall")
    assert "partition 0 has stood at 7" in str(found)
    assert "ends at 10" in str(found)
    await made.close()


async def test_a_reader_without_a_position_stalls_too() -> None:
    made = watchdog(Ends({0: 0}))

    async def stalled() -> str | None:
        return await looked(made, {0: None})

    assert "stood at None" in str(await until(stalled, timeout_s=5, what="the stall"))
    await made.close()


async def test_silence_and_slow_progress_are_no_stall() -> None:
    ends = Ends({0: 5, 1: 1_000_000})
    made = watchdog(ends)
    position = 0
    loop = asyncio.get_running_loop()
    until_s = loop.time() + 4 * SETTINGS.stall_ms / 1000
    while loop.time() < until_s or ends.asked <= 10:
        position += 1
        assert await looked(made, {0: 5, 1: position}) is None
    await made.close()


async def test_a_new_reader_has_all_its_time_again() -> None:
    made = watchdog(Ends({0: 10}))

    async def stalled() -> str | None:
        return await looked(made, {0: 7})

    await until(stalled, timeout_s=5, what="the stall")
    made.start_over()
    assert await looked(made, {0: 7}) is None
    await made.close()


async def test_nobody_to_ask_is_told_once() -> None:
    ends = Ends({0: 10})
    ends.away = True
    made = watchdog(ends)

    async def told() -> bool:
        try:
            await looked(made, {0: 7})
        except BrokerAway:
            return True
        return False

    await until(told, timeout_s=5, what="BrokerAway")
    ends.away = False
    assert await looked(made, {0: 7}) is None
    await made.close()


async def test_checks_do_not_pile_up() -> None:
    ends = Ends({0: 0})
    made = watchdog(ends)
    await asyncio.sleep(0.002)
    for _ in range(50):
        made.look("t", {0: 0})
    await asyncio.sleep(0)
    assert ends.asked == 1
    await made.close()


@pytest.mark.parametrize("partitions", [{}, {0: 3}])
async def test_no_lag_no_finding(partitions: dict[int, int | None]) -> None:
    made = watchdog(Ends({0: 3}))
    for _ in range(5):
        assert await looked(made, partitions) is None
    await made.close()
