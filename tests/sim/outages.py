"""What a plan does to the ways to the store and to the broker, and to the log itself.

One process is cut off, or all are: its requests fail, or hang until the way is free again. Some
cuts outlast the other faults, so that a worker is declared dead behind its own back and comes back
to find out. Retention deletes the log's beginning, below cursors or not.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from controller.incarnation import GROUP
from schemas.topics import TEXT_TOPIC
from tests.sim.broker import BrokerLink
from tests.sim.loop import SimProcess
from tests.sim.standins import SimDatabase

if TYPE_CHECKING:
    from tests.sim.world import Node, World

SESSION_TIMEOUT_MS = 150
"""A member that is cut off for longer falls out of its group."""
PAST_THE_LEASE_MS = 750


class Outages:
    """The part of a script that cuts ways and logs."""

    world: "World"

    # -- the broker

    def _cut_broker(self, at: int, seed: int) -> None:
        """One worker hears nothing of the broker; its consumer's session may end meanwhile."""
        node = self.world.nodes[at]
        if node is None:
            return
        for_ms = 30 + seed % 250
        if self._cut_link(node.process, node.transport.link, for_ms, seed) and (
            for_ms > SESSION_TIMEOUT_MS
        ):
            self._fall_out(node, for_ms)

    def _cut_broker_dispatch(self, at: int, seed: int) -> None:
        replica = self.world.replicas[at % len(self.world.replicas)]
        self._cut_link(replica.process, replica.transport.link, 30 + seed % 250, seed)

    def _broker_away(self, _: int, seed: int) -> None:
        """Nobody reaches it. It forgets nothing, and no session ends before it is back."""
        world = self.world
        world.recorder.windows["broker_away"] += 1
        for_ms = 30 + seed % 250
        world.broker_back_s = world.loop.now_s + for_ms / 1000
        for one in (*world.nodes, *world.twins, *world.replicas):
            if one is not None:
                self._cut_link(one.process, one.transport.link, for_ms, seed)

    def _restart_blind(self, at: int, seed: int) -> None:
        """A node starts again in the middle of it."""
        self._broker_away(at, seed)
        node = self.world.nodes[at]
        if node is not None:
            self.world.crash(node)
            self.world.recorder.windows["started_without_broker"] += 1
            self.world.start_worker(at)

    def _cut_link(self, process: SimProcess, link: BrokerLink, for_ms: int, seed: int) -> bool:
        """False when it is cut already."""
        loop = self.world.loop
        if link.away or link.hangs_until_s:
            return False
        if seed & 1:
            link.away = True
        else:
            link.hangs_until_s = loop.now_s + for_ms / 1000
        self.world.fault("broker_cut" if link.away else "broker_hung", process.name, f"{for_ms} ms")

        def back() -> None:
            link.free()
            self.world.fault("broker_back", process.name)

        loop.call_later(for_ms / 1000, back)
        return True

    def _fall_out(self, node: "Node", for_ms: int) -> None:
        """The group goes on without this member, which hears of it when it is back."""
        world = self.world
        if not node.transport.group_readers:
            return
        reader = node.transport.group_readers[-1]

        def expired() -> None:
            if not node.process.crashed:
                world.broker.expel(GROUP, reader)

        def back() -> None:
            if not node.process.crashed and not reader._closed:
                world.broker.readmit(GROUP, reader)

        world.loop.call_later(SESSION_TIMEOUT_MS / 1000, expired)
        world.loop.call_later(for_ms / 1000 + 0.005, back)

    # -- the store

    def _cut_store(self, at: int, seed: int) -> None:
        """One worker hears nothing of the store, sometimes for longer than its lease."""
        node = self.world.nodes[at]
        if node is not None:
            for_ms = PAST_THE_LEASE_MS + seed % 150 if seed % 4 == 0 else 30 + seed % 300
            self._cut_databases([(node.process, node.db)], for_ms)

    def _cut_store_dispatch(self, at: int, seed: int) -> None:
        replica = self.world.replicas[at % len(self.world.replicas)]
        self._cut_databases([(replica.process, replica.db)], 30 + seed % 300)

    def _store_away(self, _: int, seed: int) -> None:
        world = self.world
        world.recorder.windows["store_away"] += 1
        all_of_them = (*world.nodes, *world.twins, *world.replicas)
        found = [(one.process, one.db) for one in all_of_them if one is not None]
        self._cut_databases(found, 30 + seed % 150)

    def _cut_databases(self, ways: Sequence[tuple[SimProcess, SimDatabase]], for_ms: int) -> None:
        world = self.world
        for process, db in ways:
            if db.cut:
                continue
            db.cut_off()
            world.fault("store_cut", process.name, f"{for_ms} ms")
            world.loop.call_later(for_ms / 1000, self._reach(process, db))

    def _reach(self, process: SimProcess, db: SimDatabase) -> Callable[[], None]:
        def reach() -> None:
            db.reach()
            self.world.fault("store_back", process.name)

        return reach

    # -- the log

    def _truncate(self, _: int, seed: int) -> None:
        """Retention reaches some record, often the last one."""
        broker = self.world.broker
        partition = seed % self.world.plan.partitions
        log = broker.log(TEXT_TOPIC, partition)
        if log.start < log.end:
            some = log.start + 1 + (seed >> 5) % (log.end - log.start)
            broker.cut_log(TEXT_TOPIC, partition, log.end if seed & 2 else some)
