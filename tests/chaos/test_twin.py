"""Who has to give way to a twin: a worker that had its node's name when it was stopped."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ownership.kv import Database
from ownership.open import open_database
from ownership.workers import mark_dead, node_holder, register_worker
from schemas.store_values import WorkerState, WorkerValue
from tests.chaos import faults
from tests.chaos.cluster import Cluster
from tests.chaos.gather import Journal
from tests.chaos.nemesis import Nemesis
from tests.chaos.plan import Planned
from tests.support.wait import until

NODE = "n0"
URL = "http://127.0.0.1:1"
TWIN = Planned(0.0, "twin", 0, 0.01, 7)
REPLACED = ["stop", "give_up", "start_slot", "serves", "resume", "end_at_once"]


@dataclass
class Told:
    """A cluster that only writes down what it is told. `gives_way`: the old one's process ends."""

    gives_way: bool = True
    calls: list[str] = field(default_factory=list)
    surprises: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.diary = SimpleNamespace(now_ms=0, note=lambda _: None)
        old = SimpleNamespace(name="n0.1", alive=True, port=1, url=URL, process=self)
        other = SimpleNamespace(name="n1.1", alive=True, port=2)
        self.slots = [
            SimpleNamespace(role="worker", node=node, busy=False, running=one)
            for node, one in ((NODE, old), ("n1", other))
        ]

    async def wait(self) -> None:
        if not self.gives_way:
            await asyncio.Event().wait()

    def stop(self, _: Any) -> None:
        self.calls.append("stop")

    def resume(self, _: Any) -> None:
        self.calls.append("resume")

    def give_up(self, slot: Any) -> None:
        self.calls.append("give_up")
        slot.running = None

    async def start_slot(self, _: Any) -> None:
        self.calls.append("start_slot")

    async def serves(self, _: Any) -> None:
        self.calls.append("serves")

    async def end_at_once(self, _: Any) -> None:
        self.calls.append("end_at_once")


@pytest.fixture
async def db(tmp_path: Path) -> AsyncIterator[Database]:
    async with await open_database(f"lmdb://{tmp_path}/store?sync=off") as opened:
        yield opened


class Store(Journal):
    """`at_stop` happens while it is found out whether the stopped process holds the lock."""

    at_stop: Callable[[], Awaitable[None]] | None = None

    async def writable(self, within_s: float) -> bool:
        if self.at_stop is not None:
            await self.at_stop()
        return await super().writable(within_s)


def nemesis(store: Journal, told: Told) -> Nemesis:
    return Nemesis(cast(Cluster, told), cast(Any, None), store, (), 1.0, Random(1))


async def register(db: Database, worker_id: str) -> None:
    value = WorkerValue(
        worker_id=worker_id,
        node=NODE,
        capacity=4,
        url=URL,
        state=WorkerState.READY,
        started_at_ms=0,
    )
    await register_worker(db, value)


async def die(db: Database) -> None:
    """As by a dispatcher, once the lease is over."""
    holder = await node_holder(db, NODE)
    assert holder is not None
    await mark_dead(db, holder[0].worker_id, holder[1])


async def test_a_registered_worker_gives_way_to_its_twin(db: Database) -> None:
    told = Told()
    await register(db, "n0-1")
    assert await nemesis(Journal(db), told)._one(TWIN)
    assert told.calls == REPLACED
    assert not told.surprises


async def test_one_that_does_not_give_way_is_a_surprise(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faults, "GIVES_WAY_S", 0.05)
    told = Told(gives_way=False)
    await register(db, "n0-1")
    assert await nemesis(Journal(db), told)._one(TWIN)
    assert told.surprises == ["n0.1 does not give way to its twin"]


async def test_one_that_is_about_to_register_anew_is_left_alone_until_it_has(db: Database) -> None:
    """It would come after its twin, which would give way, and rightly."""
    told = Told()
    await register(db, "n0-1")
    await die(db)
    fault = asyncio.create_task(nemesis(Journal(db), told)._one(TWIN))
    await asyncio.sleep(0.3)
    assert told.calls == []
    await register(db, "n0-2")
    await until(fault.done, what="the fault")
    assert fault.result()
    assert told.calls == REPLACED


@pytest.mark.parametrize("at_stop", [False, True])
async def test_one_that_has_no_name_to_lose_is_passed_over(
    db: Database, monkeypatch: pytest.MonkeyPatch, at_stop: bool
) -> None:
    """Dead before the fault looks, or from just before it stands still."""
    monkeypatch.setattr(faults, "PICK_S", 0.1)
    told, store = Told(), Store(db)
    await register(db, "n0-1")
    if at_stop:
        store.at_stop = lambda: die(db)
    else:
        await die(db)
    made = nemesis(store, told)
    assert not await made._one(TWIN)
    assert told.calls == (["stop", "resume"] if at_stop else [])
    assert made.done == {"passed_over": 1}
    assert not any(slot.busy for slot in told.slots)
