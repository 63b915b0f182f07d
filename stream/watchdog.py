"""Sees that a reader has stopped moving although there is something to read.

aiokafka's consumers have stalled without a word after a blocked event loop or a broker's restart;
nothing but the log's end, asked elsewhere, tells that from silence.
"""

import asyncio
from collections.abc import Mapping

from stream.log_ranges import LogRanges
from stream.settings import KafkaSettings
from stream.transport import BrokerAway


class Watchdog:
    """Checks beside the reading, at most every `stall_check_ms`; its findings wait to be taken."""

    def __init__(self, settings: KafkaSettings, ranges: LogRanges) -> None:
        self._check_s = settings.stall_check_ms / 1000
        self._stall_s = settings.stall_ms / 1000
        self._ranges = ranges
        self._still: dict[int, tuple[int | None, float]] = {}
        self._checked_at_s = 0.0
        self._check: asyncio.Task[None] | None = None
        self._stalled: str | None = None
        self._away: BrokerAway | None = None

    def start_over(self) -> None:
        """The reader was made anew: it has all its time again."""
        self._still.clear()
        self._stalled = None
        self._checked_at_s = asyncio.get_running_loop().time()

    def look(self, topic: str, positions: Mapping[int, int | None]) -> str | None:
        """Says what stalled, or None. Starts the next check when it is due.

        `positions` are the next offsets, None where the reader has none yet. Raises BrokerAway
        when the last check found nobody to ask.
        """
        loop = asyncio.get_running_loop()
        away, self._away = self._away, None
        if away is not None:
            raise away
        if self._check is None and loop.time() - self._checked_at_s >= self._check_s:
            self._checked_at_s = loop.time()
            self._check = loop.create_task(self._compare(topic, dict(positions)))
            self._check.add_done_callback(self._done)
        stalled, self._stalled = self._stalled, None
        return stalled

    async def close(self) -> None:
        if self._check is not None:
            self._check.cancel()
            await asyncio.gather(self._check, return_exceptions=True)

    async def _compare(self, topic: str, positions: dict[int, int | None]) -> None:
        try:
            ends = await self._ranges.ends(topic, positions) if positions else {}
        except BrokerAway as error:
            self._away = error
            return
        now_s = asyncio.get_running_loop().time()
        self._still = {p: found for p, found in self._still.items() if p in positions}
        for partition, position in positions.items():
            if position is not None and position >= ends[partition]:
                self._still.pop(partition, None)
                continue
            before = self._still.get(partition)
            if before is None or before[0] != position:
                self._still[partition] = (position, now_s)
            elif now_s - before[1] >= self._stall_s:
                self._stalled = (
                    f"partition {partition} has stood at {position} for {now_s - before[1]:.1f} s, "
                    f"its log ends at {ends[partition]}"
                )

    def _done(self, check: "asyncio.Task[None]") -> None:
        self._check = None
        if not check.cancelled():
            error = check.exception()
            if error is not None:
                self._away = BrokerAway(f"asking for the logs' ends: {error!r}")
