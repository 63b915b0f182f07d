"""What each fault does to the cluster, and undoes.

A fault finds its slot when it begins: the first from its `where` on that runs and has no other
fault at work. So a schedule says the same whatever the system did before.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

from ownership import keys
from ownership.kv import StoreAway
from tests.chaos.clients import Front
from tests.chaos.cluster import LEASE_MS, Cluster, Running, Slot
from tests.chaos.gather import Journal
from tests.chaos.levers import Lever, StoreMode
from tests.chaos.plan import Planned
from tests.chaos.proxy import Cut
from tests.sim import history as h

TERMINATE_S = 90.0
STOPS_ITSELF_S = 4.0
GIVES_WAY_S = 60.0
LOCK_S = 1.0
"""A commit takes a hundredth of it."""

WORKING_MIN = 1
"""So many workers are left without a fault at any time, unless the schedule cuts them all."""

PICK_S = 10.0
"""How long a fault waits for a slot that it may have."""

_HOUR_MS = 3_600_000

Fault = Callable[[Planned], Awaitable[bool]]
"""Returns when it is undone: whether it found something to break."""


class Faults:
    """`kinds` are all there are, by the name that a plan gives them: the methods `_do_...`."""

    def __init__(self, cluster: Cluster, front: Front, journal: Journal, rng: Random) -> None:
        self._cluster = cluster
        self._front = front
        self._journal = journal
        self._rng = rng
        self._broker = asyncio.Lock()
        self.kinds: dict[str, Fault] = {
            name.removeprefix("_do_"): getattr(self, name)
            for name in dir(self)
            if name.startswith("_do_")
        }

    def note(self, kind: str, process: str, detail: str = "") -> None:
        """Into the history."""
        diary = self._cluster.diary
        diary.note(h.Fault(diary.now_ms, kind, process, detail))

    async def catch_up(self) -> None:
        """The journal, as far as the store answers: a process that was stopped may hold LMDB's
        lock."""
        with contextlib.suppress(StoreAway):
            await self._journal.catch_up()

    # -- where

    def _pick(self, role: str, where: int) -> Slot | None:
        """A running slot without a fault, marked busy; None when too few would be left."""
        slots = [slot for slot in self._cluster.slots if slot.role == role and slot.node != "x"]
        free = [
            slot
            for slot in slots
            if not slot.busy and slot.running is not None and slot.running.port is not None
        ]
        if len(free) <= WORKING_MIN:
            return None
        slot = free[where % len(free)]
        slot.busy = True
        return slot

    async def _with(
        self, role: str, planned: Planned, work: Callable[[Slot, Running], Awaitable[Any]]
    ) -> bool:
        """Whether it found something to break; `work` says False when its slot was not it."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + PICK_S
        while (slot := self._pick(role, planned.where)) is None:
            if loop.time() > until_s:
                return False
            await asyncio.sleep(0.2)
        if slot.running is None:
            slot.busy = False
            return False
        try:
            return await work(slot, slot.running) is not False
        finally:
            slot.busy = False

    # -- processes

    async def _restart(self, slot: Slot, after_s: float) -> None:
        await asyncio.sleep(after_s)
        if slot.running is None:
            await self._cluster.start_slot(slot)
        await self._cluster.serves(slot)
        self.note("restart", slot.node)

    async def _do_kill(self, planned: Planned) -> bool:
        async def work(slot: Slot, running: Running) -> None:
            self.note("crash", running.name, "alone" if planned.alone else "")
            await self._cluster.kill(slot)
            await self._restart(slot, planned.for_s)

        return await self._with("worker", planned, work)

    async def _do_dispatch_kill(self, planned: Planned) -> bool:
        async def work(slot: Slot, running: Running) -> None:
            await self._cluster.kill(slot)
            await self._restart(slot, planned.for_s)

        return await self._with("dispatch", planned, work)

    async def _do_dispatch_kill_in_recovery(self, planned: Planned) -> bool:
        """The dispatcher that commits the first generation past a dead worker dies at once."""

        async def work(slot: Slot, running: Running) -> None:
            seen = len(self._journal.entries)
            self.note("crash", running.name)
            await self._cluster.kill(slot)
            by = await self._recoverer(seen, (LEASE_MS / 1000) + 6.0)
            dispatcher = next(
                (
                    one
                    for one in self._cluster.dispatchers
                    if one.running is not None and one.running.name == by and not one.busy
                ),
                None,
            )
            if dispatcher is not None:
                dispatcher.busy = True
                self.note("dispatch_killed_in_recovery", by)
                await self._cluster.kill(dispatcher)
                try:
                    await self._restart(dispatcher, planned.for_s)
                finally:
                    dispatcher.busy = False
            await self._restart(slot, 0.0)

        return await self._with("worker", planned, work)

    async def _recoverer(self, seen: int, timeout_s: float) -> str:
        """The dispatcher that commits a generation next; "" when none does in time."""
        names = {one.running.name for one in self._cluster.dispatchers if one.running is not None}
        until_s = asyncio.get_running_loop().time() + timeout_s
        while asyncio.get_running_loop().time() < until_s:
            await self.catch_up()
            for process, _, changes in self._journal.entries[seen:]:
                if process in names and any(key.startswith(keys.GEN) for key, _ in changes):
                    return process
            seen = len(self._journal.entries)
            await asyncio.sleep(0.02)
        return ""

    async def _pause(self, running: Running, for_s: float) -> None:
        self._cluster.stop(running)
        try:
            await asyncio.sleep(for_s)
        finally:
            self._cluster.resume(running)

    async def _do_pause_long(self, planned: Planned) -> bool:
        return await self._with("worker", planned, lambda _, one: self._pause(one, planned.for_s))

    _do_pause_short = _do_pause_long

    async def _do_twin(self, planned: Planned) -> bool:
        """A worker hangs and is replaced on its node; then it goes on, and has to give way."""

        async def work(slot: Slot, old: Running) -> bool:
            if not await self._stop_while_registered(slot, old):
                return False
            self.note("twin", old.name)
            try:
                await asyncio.sleep(planned.for_s)
                self._cluster.give_up(slot)
                await self._restart(slot, 0.0)
                self._cluster.resume(old)
                async with asyncio.timeout(GIVES_WAY_S):
                    await old.process.wait()
            except TimeoutError:
                self._cluster.surprises.append(f"{old.name} does not give way to its twin")
            finally:
                await self._cluster.end_at_once(old)
            return True

        return await self._with("worker", planned, work)

    async def _stop_while_registered(self, slot: Slot, running: Running) -> bool:
        """Stop it while its node's name is its own; False when that does not come in time.

        One that found itself dead and waits for the broker has nothing to lose any more: it
        registers when it goes on, and if that is after its twin, it is the twin that gives way.
        """
        loop = asyncio.get_running_loop()
        until_s = loop.time() + PICK_S
        while running.alive and loop.time() < until_s:
            if await self._journal.holder_url(slot.node) == running.url:
                await self._stop_between_writes(running)
                # Whatever it found out until it stood still, the store knew before.
                if await self._journal.holder_url(slot.node) == running.url:
                    return True
                self._cluster.resume(running)
            await asyncio.sleep(0.2)
        return False

    async def _stop_between_writes(self, running: Running) -> None:
        """Stop it where it does not hold LMDB's one write lock: with it nobody could replace it."""
        self._cluster.stop(running)
        while not await self._journal.writable(LOCK_S):
            self._cluster.resume(running)
            await asyncio.sleep(self._rng.uniform(0.02, 0.2))
            self._cluster.stop(running)

    async def _do_dispatch_pause(self, planned: Planned) -> bool:
        return await self._with("dispatch", planned, lambda _, one: self._pause(one, planned.for_s))

    async def _do_pause_after_release(self, planned: Planned) -> bool:
        """It stops itself between the commit and the ring; longer than its lease, mostly."""

        async def work(_: Slot, running: Running) -> None:
            running.levers.set(Lever.STOP_AFTER_RELEASE, 1)
            until_s = asyncio.get_running_loop().time() + STOPS_ITSELF_S
            while running.alive and running.state != "T":
                if asyncio.get_running_loop().time() > until_s:
                    running.levers.set(Lever.STOP_AFTER_RELEASE, 0)
                    break
                await asyncio.sleep(0.02)
            else:
                await asyncio.sleep(planned.for_s)
            self._cluster.resume(running)

        return await self._with("worker", planned, work)

    async def _do_lose_stage(self, planned: Planned) -> bool:
        async def work(_: Slot, running: Running) -> None:
            running.levers.set(Lever.LOSE_STAGE, running.levers.get(Lever.LOSE_STAGE) + 1)

        return await self._with("worker", planned, work)

    async def _do_clock_step(self, planned: Planned) -> bool:
        """Forwards or back by up to a day; it stays so in this slot."""

        async def work(slot: Slot, running: Running) -> None:
            slot.wall_offset_ms = (planned.draw % 49 - 24) * _HOUR_MS
            running.levers.set(Lever.WALL_OFFSET_MS, slot.wall_offset_ms)
            self.note("clock_step", running.name, f"{slot.wall_offset_ms} ms")

        return await self._with("worker" if planned.draw % 3 else "dispatch", planned, work)

    # -- network and store

    async def _cut(self, slot: Slot, cut: Cut, for_s: float) -> None:
        self._cluster.cut(slot, cut)
        try:
            await asyncio.sleep(for_s)
        finally:
            self._cluster.cut(slot, Cut.OPEN)

    async def _do_kafka_black(self, planned: Planned) -> bool:
        return await self._with(
            "worker", planned, lambda slot, _: self._cut(slot, Cut.BLACK, planned.for_s)
        )

    async def _do_kafka_closed(self, planned: Planned) -> bool:
        role = "worker" if planned.draw % 4 else "dispatch"
        return await self._with(
            role, planned, lambda slot, _: self._cut(slot, Cut.CLOSED, planned.for_s)
        )

    async def _do_kafka_reset(self, planned: Planned) -> bool:
        async def work(slot: Slot, running: Running) -> None:
            self.note("kafka_reset", running.name)
            slot.proxy.reset()

        return await self._with("worker" if planned.draw % 4 else "dispatch", planned, work)

    async def _mode(self, running: Running, mode: StoreMode, for_s: float) -> None:
        self._cluster.store_mode(running, mode)
        try:
            await asyncio.sleep(for_s)
        finally:
            self._cluster.store_mode(running, StoreMode.OK)

    async def _do_store_away(self, planned: Planned) -> bool:
        return await self._with(
            "worker", planned, lambda _, one: self._mode(one, StoreMode.AWAY, planned.for_s)
        )

    async def _do_store_unsure(self, planned: Planned) -> bool:
        role = "worker" if planned.draw % 3 else "dispatch"
        return await self._with(
            role, planned, lambda _, one: self._mode(one, StoreMode.UNSURE, planned.for_s)
        )

    async def _do_dispatch_away(self, planned: Planned) -> bool:
        return await self._with(
            "dispatch", planned, lambda _, one: self._mode(one, StoreMode.AWAY, planned.for_s)
        )

    async def _do_cut_off(self, planned: Planned) -> bool:
        """From Kafka and from the store at once."""

        async def work(slot: Slot, running: Running) -> None:
            await asyncio.gather(
                self._cut(slot, Cut.BLACK, planned.for_s),
                self._mode(running, StoreMode.AWAY, planned.for_s),
            )

        return await self._with("worker", planned, work)

    async def _do_broker(self, planned: Planned) -> bool:
        async with self._broker:
            await self._cluster.stop_broker(kill=planned.draw % 2 == 0)
            try:
                await asyncio.sleep(planned.for_s)
            finally:
                await self._cluster.start_broker()
        return True

    # -- what operators do

    async def _do_storm(self, planned: Planned) -> bool:
        """A worker joins and leaves, three times: the group balances itself each time."""
        slot = next((one for one in self._cluster.workers if one.node == "x"), None)
        if slot is None or slot.busy:
            return False
        slot.busy = True
        try:
            for turn in range(3):
                self.note("join", slot.node, "alone" if planned.alone else "")
                await self._cluster.start_slot(slot)
                await self._cluster.serves(slot)
                await asyncio.sleep(planned.for_s + 2.0)
                self.note("rebalance", slot.node)
                if (planned.draw >> turn) % 2:
                    await self._cluster.kill(slot)
                else:
                    await self._end(slot)
        finally:
            slot.busy = False
        return True

    async def _end(self, slot: Slot) -> None:
        """By SIGTERM: it gives its lives away and leaves with status 0."""
        running = slot.running
        status = await self._cluster.terminate(slot, TERMINATE_S)
        if running is None:
            return
        self.note("left" if status == 0 else "left_badly", running.name, str(status))
        if status is None:
            self._cluster.surprises.append(f"{running.name} did not leave in {TERMINATE_S:g} s")
        elif status:
            self._cluster.surprises.append(f"{running.name} left with status {status}")

    async def _do_terminate(self, planned: Planned) -> bool:
        async def work(slot: Slot, _: Running) -> None:
            self.note("drain", slot.node)
            await self._end(slot)
            await self._restart(slot, planned.for_s)

        return await self._with("worker", planned, work)

    async def _do_drain(self, planned: Planned) -> bool:
        async def work(slot: Slot, running: Running) -> None:
            status, found = await self._front.call("GET", "/v1/workers", tries_s=10)
            if status != 200:
                return
            mine = [
                one["worker_id"]
                for one in found["workers"]
                if one["state"] == "ready" and one["worker_id"].startswith(f"{slot.node}-")
            ]
            for worker_id in mine:
                path = f"/v1/workers/{worker_id}/drain"
                self.note("drain", running.name)
                await self._front.call("POST", path, tries_s=10)
                await asyncio.sleep(planned.for_s)
                await self._front.call("POST", path, json={"draining": False}, tries_s=30)

        return await self._with("worker", planned, work)

    async def _do_rolling(self, planned: Planned) -> bool:
        """Every worker once, one after the other, as by an operator who rolls out a version."""
        for slot in self._cluster.workers:
            if slot.node == "x" or slot.busy or slot.running is None:
                continue
            slot.busy = True
            try:
                self.note("drain", slot.node)
                await self._end(slot)
                await self._restart(slot, planned.for_s)
            finally:
                slot.busy = False
        return True
