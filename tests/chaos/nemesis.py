"""Carries out a schedule of faults, one task for each, and counts what they broke.

A fault that finds nothing to break is counted as passed over.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable
from random import Random

from tests.chaos.clients import Front
from tests.chaos.cluster import LEASE_MS, Cluster
from tests.chaos.faults import Faults
from tests.chaos.gather import Journal
from tests.chaos.plan import Planned

CALM_S = 4.0
"""What a fault that is alone waits before it begins, so that the last one's traces are gone."""

AT_ONCE = 3
"""So many faults at most are at work, or wait for something to break."""


class Nemesis:
    """`lives` are those that are moved about."""

    def __init__(
        self,
        cluster: Cluster,
        front: Front,
        journal: Journal,
        plan: Iterable[Planned],
        move_every_s: float,
        rng: Random,
    ) -> None:
        self.cluster = cluster
        self.lives: list[str] = []
        self.done: Counter[str] = Counter()
        self._front = front
        self._plan = plan
        self._move_every_s = move_every_s
        self._rng = rng
        self._at_work = 0
        self._places = asyncio.Semaphore(AT_ONCE)
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._faults = Faults(cluster, front, journal, rng)

    async def run(self, length_s: float) -> None:
        """The whole schedule, with moves all along; then no fault is left."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + length_s
        moving = asyncio.create_task(self._move_about())
        reading = asyncio.create_task(self._read_journal())
        faults: list[asyncio.Task[None]] = []
        try:
            for planned in self._plan:
                await asyncio.sleep(planned.after_s)
                if loop.time() > end_s:
                    break
                if planned.alone:
                    await self._calm()
                    await self._one(planned)
                    await asyncio.sleep(LEASE_MS / 1000 + CALM_S)
                    continue
                await self._places.acquire()
                faults.append(asyncio.create_task(self._in_place(planned, end_s)))
            await asyncio.sleep(max(0.0, end_s - loop.time()))
            await asyncio.gather(*faults)
        finally:
            for task in (moving, reading, *faults):
                task.cancel()
            await asyncio.gather(moving, reading, *faults, return_exceptions=True)
            await self.cluster.heal()
        self._faults.note("faults_end", "")

    async def _in_place(self, planned: Planned, end_s: float) -> None:
        """Until it found something to break, or the time is over."""
        loop = asyncio.get_running_loop()
        try:
            while not await self._one(planned) and loop.time() < end_s:
                pass
        finally:
            self._places.release()

    async def _calm(self) -> None:
        await self._quiet.wait()
        await asyncio.sleep(CALM_S)

    async def _one(self, planned: Planned) -> bool:
        """Whether it found something to break."""
        self._at_work += 1
        self._quiet.clear()
        try:
            struck = await self._faults.kinds[planned.kind](planned)
            self.done[planned.kind if struck else "passed_over"] += 1
            return struck
        except AssertionError as error:
            # The run goes on, so that its history is judged; it is a bad one all the same.
            self.cluster.surprises.append(f"{planned} failed: {error}")
            return True
        finally:
            self._at_work -= 1
            if not self._at_work:
                self._quiet.set()

    async def _move_about(self) -> None:
        """Planned moves, one after the other."""
        while True:
            await asyncio.sleep(self._move_every_s * self._rng.uniform(0.5, 1.5))
            live_id = self._rng.choice(self.lives)
            # Where nobody else has room it is refused, and that is that.
            await self._front.call("POST", f"/v1/lives/{live_id}/move", tries_s=5, again={503})

    async def _read_journal(self) -> None:
        while True:
            await self._faults.catch_up()
            await asyncio.sleep(0.5)
