"""What a worker does when it is told to end, or asked how it is, by real signals."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest
import pytest_asyncio

from tests.chaos.clients import Front
from tests.chaos.cluster import Cluster, Running, Slot
from tests.chaos.diary import Diary
from tests.chaos.levers import Lever, StoreMode
from tests.support.apache_kafka import KafkaUnavailable
from tests.support.kafka_source import required
from tests.support.wait import until

LIVES = [f"L{at}." for at in range(6)]
WAIT_S = 120.0
SECOND_SIGNAL = 128 + signal.SIGTERM

pytestmark = pytest.mark.asyncio(loop_scope="module")


class System:
    """A dispatcher, two workers with room for all lives each, and a caller."""

    def __init__(self, cluster: Cluster, front: Front) -> None:
        self.cluster = cluster
        self.front = front

    async def owners(self) -> dict[str, str]:
        """Lives to the nodes that own them."""
        status, found = await self.front.call("GET", "/v1/lives")
        assert status == 200
        return {
            one["live_id"]: one["generation"]["worker_id"].rpartition("-")[0]
            for one in found["lives"]
            if one["generation"]
        }

    async def gather_at(self, slot: Slot) -> None:
        """Every live is owned by this worker."""

        async def there() -> bool:
            owners = await self.owners()
            worker_id = await self.worker_id(slot)
            for live_id in LIVES:
                if owners.get(live_id) != slot.node:
                    path = f"/v1/lives/{live_id}/move"
                    await self.front.call(
                        "POST", path, json={"to": worker_id}, again={503}, tries_s=10
                    )
            return all(owners.get(live_id) == slot.node for live_id in LIVES)

        await until(there, timeout_s=WAIT_S, what=f"all lives at {slot.node}")

    async def worker_id(self, slot: Slot) -> str:
        status, found = await self.front.call("GET", "/v1/workers")
        assert status == 200
        [mine] = [
            one["worker_id"]
            for one in found["workers"]
            if one["worker_id"].startswith(f"{slot.node}-") and one["state"] == "ready"
        ]
        return str(mine)

    async def again(self, slot: Slot) -> None:
        """A process runs in the slot."""
        if slot.running is None:
            await self.cluster.start_slot(slot)
        await self.cluster.serves(slot)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def system(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[System]:
    folder: Path = tmp_path_factory.mktemp("signals")
    diary = Diary(folder / "harness.diary")
    cluster = Cluster(
        folder,
        diary,
        store=f"lmdb://{folder}/store?sync=off",
        dispatchers=1,
        capacities={"n0": 8, "n1": 8},
        ms_per_character=60,
    )
    front = Front(cluster, Random(1))
    try:
        await cluster.start()
        for live_id in LIVES:
            assert await front.create(live_id, live_id)
        yield System(cluster, front)
    except KafkaUnavailable as error:
        if required():
            raise
        pytest.skip(f"Apache Kafka cannot be run here: {error}")
    finally:
        await front.close()
        await cluster.close()
        diary.close()
    assert not cluster.surprises


def running(slot: Slot) -> Running:
    assert slot.running is not None
    return slot.running


async def test_usr1_tells_the_state_of_every_live(system: System) -> None:
    slot = system.cluster.workers[0]
    await system.again(slot)
    await system.gather_at(slot)
    one = running(slot)
    one.process.send_signal(signal.SIGUSR1)

    def dumped() -> object:
        text = one.spec.log.read_text(errors="replace")
        begin = text.find('{\n "node"')
        end = text.find("\n}\n", begin)
        return json.loads(text[begin : end + 2]) if begin >= 0 and end >= 0 else None

    found = await until(dumped, timeout_s=WAIT_S, what="the dump")
    assert isinstance(found, dict)
    assert found["node"] == slot.node
    assert set(LIVES) <= set(found["lives"])
    assert all(found["lives"][live_id]["story"] for live_id in LIVES)
    assert one.alive


async def test_term_moves_every_live_away_and_ends_with_success(system: System) -> None:
    first, second = system.cluster.workers
    await system.again(first)
    await system.again(second)
    await system.gather_at(first)
    for live_id in LIVES:
        text = {"text": "It is in the middle of this sentence when its worker is told to end. "}
        status, _ = await system.front.call("POST", f"/v1/lives/{live_id}/text", json=text)
        assert status == 202
    assert await system.cluster.terminate(first, WAIT_S) == 0
    owners = await system.owners()
    assert [owners.get(live_id) for live_id in LIVES] == [second.node] * len(LIVES)


async def test_a_second_signal_ends_it_at_once(system: System) -> None:
    slot = system.cluster.workers[0]
    await system.again(slot)
    one = running(slot)
    # It cannot leave in good order, for it does not reach the store.
    one.levers.set(Lever.STORE, StoreMode.AWAY)
    one.told_to_end = True
    slot.wanted = False
    one.process.send_signal(signal.SIGTERM)
    await until(
        lambda: b"worker_drains" in one.spec.log.read_bytes(),
        timeout_s=WAIT_S,
        what="the first signal's effect",
    )
    assert one.alive
    one.process.send_signal(signal.SIGTERM)
    async with asyncio.timeout(WAIT_S):
        assert await one.process.wait() == SECOND_SIGNAL
