"""What is found wrong around a process, and what is not."""

import pytest

from hosting.connections import Service
from hosting.vigil import Fault, Surroundings, SurroundingsChanged, Vigil, faults_of, foreigners
from ownership.memory import Faults, MemoryDatabase
from ownership.meta import adopt_group, ensure_meta, get_meta
from ownership.model import MetaMismatch, MetaOk
from schemas.store_values import Meta
from stream.transport import BrokerAway, GroupMember, TopicShape

SERVICE = Service(12, "topic", "service")


def member(client_id: str) -> GroupMember:
    return GroupMember(client_id, "host", frozenset({1}))


GOOD = Surroundings("service", (12, "topic"), (member("dhsched.worker.service.node-1"),))


@pytest.mark.parametrize(
    ("seen", "faults"),
    [
        (GOOD, set()),
        (Surroundings(None, None, ()), set()),
        (Surroundings("service", (0, "topic"), ()), set()),
        (Surroundings("service", (12, ""), ()), set()),
        (Surroundings("", (12, "topic"), ()), {Fault.STORE_WIPED}),
        (Surroundings("other", (12, "topic"), ()), {Fault.STORE_WIPED}),
        (Surroundings("service", (12, "other"), ()), {Fault.TOPIC_RECREATED}),
        (Surroundings("service", (-1, ""), ()), {Fault.TOPIC_MISSING}),
        (Surroundings("service", (24, "topic"), ()), {Fault.PARTITIONS_CHANGED}),
        (Surroundings("service", None, (member("report"),)), {Fault.FOREIGN_CONSUMER}),
        (Surroundings("", (-1, ""), ()), {Fault.STORE_WIPED, Fault.TOPIC_MISSING}),
    ],
)
def test_faults(seen: Surroundings, faults: set[Fault]) -> None:
    assert set(faults_of(SERVICE, "worker", seen)) == faults


def test_workers_of_another_service_are_foreign_and_names_are_compared_whole() -> None:
    ours = [SERVICE.client_id("worker", node) for node in ("a", "a.b", "")]
    others = ["dhsched.worker.other.a", "dhsched.worker.service2.a", "dhsched.dispatch.service.a"]
    found = foreigners(SERVICE, "worker", [member(name) for name in (*ours, *others)])
    assert [one.client_id for one in found] == others


class Broker:
    """Answers what it is told to."""

    shape: TopicShape | None = TopicShape(12, "topic")
    away = False

    async def topic_shape(self, topic: str) -> TopicShape | None:
        if self.away:
            raise BrokerAway("gone")
        return self.shape

    async def group_members(self, group: str, topic: str) -> tuple[GroupMember, ...]:
        return ()

    async def group_offsets(self, group: str, topic: str) -> dict[int, int]:
        return {}


async def test_an_outage_is_no_fault_and_what_is_over_is_forgotten() -> None:
    db, broker = MemoryDatabase(), Broker()
    await ensure_meta(db, Meta(12, "topic", service_id="service"))
    vigil = Vigil(db, broker, SERVICE, role="worker", group="g")
    await vigil.look()
    assert vigil.faults == {}
    broker.shape = None
    await vigil.look()
    assert set(vigil.faults) == {Fault.TOPIC_MISSING}
    broker.away = True
    db.faults = Faults(away=1.0)
    await vigil.look()
    assert vigil.faults == {}
    broker.away, broker.shape, db.faults = False, TopicShape(12, "other"), None
    with pytest.raises(SurroundingsChanged, match="was deleted and made again"):
        await vigil.look()


async def test_the_first_group_is_the_stores() -> None:
    db = MemoryDatabase()
    await ensure_meta(db, Meta(12, "topic", service_id="one"))
    assert await adopt_group(db, "g") == "g"
    assert await adopt_group(db, "h") == "g"
    assert await ensure_meta(db, Meta(12, "topic", service_id="two")) == MetaOk()
    assert await get_meta(db) == Meta(12, "topic", 1, "one", "g")


async def test_what_an_older_store_does_not_know_is_filled_in() -> None:
    db = MemoryDatabase()
    await ensure_meta(db, Meta(12))
    assert await ensure_meta(db, Meta(12, "topic", service_id="one")) == MetaOk()
    assert await ensure_meta(db, Meta(12, "other", service_id="two")) == MetaMismatch(
        12, "topic", 1
    )
    assert await get_meta(db) == Meta(12, "topic", 1, "one", "")
