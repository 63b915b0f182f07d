"""Carries out a plan's actions: what clients and operators do, and what goes wrong."""

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

from controller.incarnation import GROUP
from dispatch.lives import NoCapacity, Opening
from dispatch.publish import TooBusy
from dispatch.text_input import EndTurnNotSent, Turn
from ownership.generations import commit_generation
from ownership.kv import CommitUnknown, StoreAway
from ownership.lives import get_live
from ownership.model import CommitGeneration, Generation
from ownership.workers import list_workers
from schemas.options import LiveOptions
from schemas.store_values import WorkerState
from schemas.text_record import RecordKind
from schemas.topics import TEXT_TOPIC
from stream.transport import BrokerAway, SendRefused, SendUnknown
from tests.sim import history as h
from tests.sim import spies
from tests.sim.outages import Outages
from tests.sim.recorder import process_name
from tests.sim.standins import WatchFaults
from tests.sim.texts import LONG_ENDING, mark_value, text_value

if TYPE_CHECKING:
    from tests.sim.world import Node, Replica, World

import asyncio

OPTIONS = LiveOptions()
TRIES = 40
PUSH_TRIES = 4


class Script(Outages):
    """`act` is called by a timer for each action of the plan."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.rng = Random(world.plan.seed ^ 0xAC7)

    def act(self, what: str, args: tuple[Any, ...]) -> None:
        getattr(self, f"_{what}")(*args)

    # -- clients

    def _replica(self) -> "Replica":
        return self.rng.choice(self.world.replicas)

    def _client(self, make: Callable[["Replica"], Any]) -> None:
        """A request of a client, served by one of the replicas."""
        replica = self._replica()
        replica.process.spawn(_served(make, replica))

    def _create(self, live_id: str) -> None:
        async def create(replica: "Replica") -> None:
            for _ in range(TRIES):
                try:
                    outcome = await replica.service.lives.create(Opening(OPTIONS, live_id))
                except (StoreAway, CommitUnknown):
                    outcome = None
                if outcome is not None and not isinstance(outcome, NoCapacity):
                    return
                await asyncio.sleep(0.03)

        self._client(create)

    def _burst(self, live_id: str, records: int, seed: int) -> None:
        world = self.world
        partition, key = world.partition(live_id), live_id.encode()
        for value in world.authors[live_id].burst(records, Random(seed)):
            world.broker.append(TEXT_TOPIC, partition, key, value)

    def _push(self, live_id: str, seed: int) -> None:
        """A client that repeats what certainly was not written, and what it numbered."""
        author = self.world.authors[live_id]
        text, seq = author.next_text(" said. "), None
        if author.numbers and seed % 2:
            author.seq = seq = author.seq + 1
        turn = Turn(text, end_turn=seed % 3 == 0, seq=seq)

        async def push(replica: "Replica") -> None:
            for _ in range(PUSH_TRIES):
                try:
                    await replica.service.text.push(live_id, turn)
                except (BrokerAway, SendRefused, StoreAway, TooBusy):
                    pass
                except SendUnknown:
                    if seq is None:
                        return
                    self.world.recorder.windows["push_repeated"] += 1
                except EndTurnNotSent:
                    return
                else:
                    return
                await asyncio.sleep(0.03)

        self._client(push)

    def _interrupt(self, live_id: str) -> None:
        async def interrupt(replica: "Replica") -> None:
            await replica.service.text.interrupt(live_id)

        self._client(interrupt)

    def _close(self, live_id: str) -> None:
        async def close(replica: "Replica") -> None:
            await replica.service.lives.close(live_id, "asked")

        self._client(close)

    def _close_record(self, live_id: str) -> None:
        world = self.world
        value = mark_value(RecordKind.CLOSE)
        world.broker.append(TEXT_TOPIC, world.partition(live_id), live_id.encode(), value)

    def _foreign(self, _: int, seed: int) -> None:
        """Records with bad keys, and of lives that nobody ever created."""
        world = self.world
        for key in (None, b"\xff", b"nobody"):
            partition = seed % world.plan.partitions if key != b"nobody" else None
            at = world.partition("nobody") if partition is None else partition
            world.broker.append(TEXT_TOPIC, at, key, text_value("lost. ", None))

    def _flood(self, _: int, seed: int) -> None:
        """More lives than there is room for, all at once, from both replicas."""
        for replica in self.world.replicas:

            async def create(replica: "Replica", live_id: str) -> None:
                await replica.service.lives.create(Opening(OPTIONS, live_id))
                await asyncio.sleep(0.12)
                await replica.service.lives.close(live_id, "flood")

            replica.process.spawn(_served(create, replica, f"x{replica.process.name}"))

    # -- moves

    def _move(self, live_id: str, _: int) -> None:
        async def move(replica: "Replica") -> None:
            await replica.service.mover.request_move(live_id, None)

        self._client(move)

    def _advance(self, live_id: str, seed: int) -> None:
        self._client(lambda replica: advance(replica, live_id, seed, self.world))

    def _there_and_back(self, live_id: str, seed: int) -> None:
        """To another worker and back, while the first one is stopped, or deaf.

        Text comes right after, so that the first generation has something to try.
        """
        world = self.world
        owner = world.recorder.owner.get(live_id)
        node = None if owner is None else self._node_of(owner[0])
        if owner is None or node is None:
            return
        if seed % 3:
            self._deafen(node, 150)
        else:
            node.process.steps_to_pause = -1
            world.pause(node.process, self.rng.randrange(20, 90))

        async def both(replica: "Replica") -> None:
            await advance(replica, live_id, seed, world)
            if seed % 2:
                await asyncio.sleep(self.rng.random() * 0.02)
            await advance(replica, live_id, seed, world, to=owner[0])
            if world.active:
                self._burst(live_id, 2, seed)

        self._client(both)

    def _deafen(self, node: "Node", for_ms: int) -> None:
        """It hears no watch for a while; it still looks by itself now and then."""
        before = node.db.watch_faults
        node.db.watch_faults = WatchFaults(lost=1.0)
        self.world.fault("deaf", node.process.name)

        def hears() -> None:
            node.db.watch_faults = before if self.world.active else None

        self.world.loop.call_later(for_ms / 1000, hears)

    def _node_of(self, worker_id: str) -> "Node | None":
        for node in (*self.world.nodes, *self.world.twins):
            if node is not None and not node.process.crashed:
                incarnation = node.worker.incarnation
                if incarnation is not None and incarnation.worker_id == worker_id:
                    return node
        return None

    # -- what goes wrong

    def _pause(self, at: int, seed: int) -> None:
        """Somewhere within its next callbacks, so at any await."""
        world = self.world
        node = world.nodes[at]
        if node is None:
            return
        process = node.process
        process.steps_to_pause = seed % 120
        process.on_pause = lambda one: world.pause(one, 5 + seed % world.plan.pause_ms_max)

    def _pause_dispatch(self, at: int, seed: int) -> None:
        world = self.world
        process = world.replicas[at % len(world.replicas)].process
        process.steps_to_pause = seed % 60
        process.on_pause = lambda one: world.pause(one, 5 + seed % world.plan.pause_ms_max)

    def _crash(self, at: int, _: int) -> None:
        node = self.world.nodes[at]
        if node is not None:
            self.world.crash(node)

    def _crash_speaking(self, at: int, seed: int) -> None:
        """In the middle of a sentence that is longer than a checkpoint interval."""
        world = self.world
        node = world.nodes[at]
        incarnation = None if node is None else node.worker.incarnation
        if node is None or incarnation is None:
            return
        for live_id, owner in sorted(world.recorder.owner.items()):
            if owner[0] == incarnation.worker_id and live_id in world.authors:
                value = text_value(world.authors[live_id].next_text(LONG_ENDING), None)
                world.broker.append(TEXT_TOPIC, world.partition(live_id), live_id.encode(), value)
                world.loop.call_later((200 + seed % 160) / 1000, world.crash, node)
                return

    def _restart(self, at: int, seed: int) -> None:
        """A crash, and a new start of the same node soon."""
        world = self.world
        node = world.nodes[at]
        if node is not None:
            world.crash(node)
        world.loop.call_later(0.005 + seed % 100 / 1000, self._start, at)

    def _start(self, at: int) -> None:
        if self.world.nodes[at] is None:
            self.world.fault("restart", f"n{at}")
            self.world.start_worker(at)

    def _twin(self, at: int, seed: int) -> None:
        """The node starts again while its earlier process only stands still, and then goes on."""
        world = self.world
        node = world.nodes[at]
        if node is None:
            return
        node.process.steps_to_pause = -1
        world.pause(node.process, 60 + seed % 200)
        world.twins.append(node)
        world.nodes[at] = None
        world.fault("twin", node.process.name)
        world.start_worker(at)
        # In the end the supervisor kills the older one.
        world.loop.call_later(0.3 + seed % 400 / 1000, world.crash, node)

    def _drain(self, at: int, seed: int) -> None:
        world = self.world
        node = world.nodes[at]
        incarnation = None if node is None else node.worker.incarnation
        if incarnation is None:
            return
        worker_id = incarnation.worker_id

        async def drain(replica: "Replica") -> None:
            await replica.service.lives.drain(worker_id, draining=True)
            await asyncio.sleep(0.05 + seed % 200 / 1000)
            await replica.service.lives.drain(worker_id, draining=False)

        world.fault("drain", node.process.name if node else "")
        self._client(drain)

    def _twin_recovery(self, at: int, _: int) -> None:
        """A worker dies, and both replicas see it dead in the same instant."""
        world = self.world
        node = world.nodes[at]
        incarnation = None if node is None else node.worker.incarnation
        if node is None or incarnation is None:
            return
        worker_id = incarnation.worker_id
        world.crash(node)
        for replica in world.replicas:
            replica.process.spawn(_served(recover, replica, worker_id))

    def _rebalance(self, at: int, seed: int) -> None:
        if GROUP in self.world.broker.groups:
            self.world.fault("rebalance", "")
            self.world.broker.rebalance(GROUP)

    def _rewind(self, at: int, seed: int) -> None:
        broker = self.world.broker
        if GROUP in broker.groups:
            self.world.fault("rewind", "")
            self.world.recorder.windows["rewind"] += 1
            broker.rewind(GROUP, seed % self.world.plan.partitions, 0)
            broker.rebalance(GROUP)

    def _expel(self, at: int, seed: int) -> None:
        """A member falls out of the group without knowing it, and comes back later."""
        world = self.world
        node = world.nodes[at]
        if node is None or not node.transport.group_readers:
            return
        reader = node.transport.group_readers[-1]
        world.fault("expel", node.process.name)
        world.recorder.windows["zombie_custody"] += bool(reader.assignment.partitions)
        world.broker.expel(GROUP, reader)

        def back() -> None:
            if not node.process.crashed and not reader._closed:
                world.broker.readmit(GROUP, reader)

        world.loop.call_later(0.05 + seed % 200 / 1000, back)

    def _lose_stage(self, at: int, _: int) -> None:
        world = self.world
        node = world.nodes[at]
        if node is None or node.process.paused or not node.runtime.places:
            return
        world.fault("lose_stage", node.process.name)
        node.process.call_soon(node.runtime.lose_stage)


async def _served(request: Callable[..., Any], *args: Any) -> None:
    """What a client's request may end with is no failure of the replica; anything else is one."""
    try:
        await request(*args)
    except* (StoreAway, CommitUnknown, BrokerAway, SendRefused, SendUnknown):
        pass
    except* Exception as group:
        rec = spies.RECORDER
        assert rec is not None
        rec.note(h.Broke.by(group, process_name(), rec.now_ms))


async def advance(
    replica: "Replica", live_id: str, seed: int, world: "World", *, to: str | None = None
) -> None:
    """Give the live to another worker without asking the source, which is alive."""
    db, service = replica.db, replica.service
    view = await get_live(db, live_id)
    if view is None or not view.open or view.generation is None:
        return
    source = view.generation
    views = await list_workers(db)
    able = [
        one.value.worker_id
        for one in views
        if one.value.state is WorkerState.READY
        and one.value.worker_id != source.worker_id
        and one.free_slots > 0
    ]
    target = to if to in able else (able[seed % len(able)] if able and to is None else None)
    if target is None:
        return
    await spies.spied_commit_generation(
        db,
        CommitGeneration(
            live_id,
            source,
            target,
            service.mint.new(),
            world.clock.wall_ms(),
            service.mint.slot_draw(),
        ),
    )


async def recover(replica: "Replica", worker_id: str) -> None:
    """What a replica does when the lease of a worker is over, at once."""
    service = replica.service
    await service.fleet.refresh()
    view = service.fleet.get(worker_id)
    if view is not None:
        from ownership.workers import mark_dead

        await mark_dead(replica.db, worker_id, view.beat)
        await service.recovery._empty(worker_id)


__all__ = ["Generation", "Script", "commit_generation"]
