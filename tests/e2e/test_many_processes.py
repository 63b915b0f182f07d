"""Two replicas and some workers as processes, used and killed as operators and callers do it.

Real processes, Apache Kafka and LMDB; only the stages are stubs. The tests share one service, and
each leaves at least one replica and two workers ready.
"""

import asyncio
import itertools
import json
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from schemas.topics import DEAD_LETTER_TOPIC, TEXT_TOPIC
from stream.aiokafka_transport import AiokafkaTransport
from tests.support.apache_kafka import ApacheKafka
from tests.support.kafka_source import own_broker
from tests.support.kafka_tools import Described, describe_group
from tests.support.roles import Process, Roles, running_roles
from tests.support.wait import until

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.slow,
    pytest.mark.asyncio(loop_scope="module"),
]

WAIT_S = 120
Event = dict[str, Any]


@pytest.fixture(scope="module")
def broker() -> Iterator[ApacheKafka]:
    with own_broker(with_tools=True) as made:
        yield made


class Service:
    """The processes. Those that a test ended are started again by the next one."""

    def __init__(self, roles: Roles) -> None:
        self.roles = roles
        self.replicas: list[Process] = []
        self.workers: dict[str, Process] = {}

    async def fill(self) -> None:
        """Two replicas and the workers a and b, ready."""
        self.replicas = [one for one in self.replicas if one.child.returncode is None]
        alive = {n: one for n, one in self.workers.items() if one.child.returncode is None}
        starts = [self.roles.dispatch() for _ in range(2 - len(self.replicas))]
        names = [name for name in ("a", "b") if name not in alive]
        made = await asyncio.gather(
            *starts, *(self.roles.worker(name, capacity=32) for name in names)
        )
        self.replicas += made[: len(starts)]
        self.workers = {**alive, **dict(zip(names, made[len(starts) :], strict=True))}

        async def both() -> bool:
            ready = {one["node"] for one in await self.listed() if one["state"] == "ready"}
            return ready >= {"a", "b"}

        await until(both, timeout_s=WAIT_S, what="both workers being listed")

    async def kill_replica(self, number: int) -> None:
        self.replicas[number].child.kill()
        await self.replicas[number].child.wait()

    def http(self, replica: int = 0) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=self.replicas[replica].url, timeout=30)

    async def listed(self) -> list[dict[str, Any]]:
        async with self.http() as http:
            return list((await http.get("/v1/workers")).json()["workers"])

    async def id_of(self, node: str) -> str:
        (found,) = [
            one["worker_id"]
            for one in await self.listed()
            if one["node"] == node and one["state"] != "dead"
        ]
        return str(found)

    async def cli(self, *words: str) -> Any:
        return await self.roles.cli(*words, "--dispatch", self.replicas[0].url)

    async def live(self, live_id: str) -> dict[str, Any]:
        async with self.http() as http:
            return dict((await http.get(f"/v1/lives/{live_id}")).json())

    async def open(self, *live_ids: str) -> None:
        async with self.http() as http:
            for live_id in live_ids:
                answer = await http.post("/v1/lives", json={"live_id": live_id})
                assert answer.status_code == 201, answer.text

    async def push(self, live_id: str, *texts: str) -> int:
        """The offset after the last record."""
        end = 0
        async with self.http() as http:
            for text in texts:
                body = {"text": text, "end_turn": True}
                answer = await http.post(f"/v1/lives/{live_id}/text", json=body)
                assert answer.status_code == 202, answer.text
                end = answer.json()["offset"] + 2
        return end

    async def released(self, live_id: str, end: int) -> None:
        async def is_so() -> bool:
            return (await self.live(live_id))["next_offset"] >= end

        await until(is_so, timeout_s=WAIT_S, what=f"{live_id} released up to {end}")

    async def owned_by(self, live_id: str, worker_id: str) -> None:
        async def is_so() -> bool:
            live = await self.live(live_id)
            return live["claimed"] and live["generation"]["worker_id"] == worker_id

        await until(is_so, timeout_s=WAIT_S, what=f"{live_id} at {worker_id}")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(
    broker: ApacheKafka, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Service]:
    folder: Path = tmp_path_factory.mktemp("many")
    async with running_roles(broker.bootstrap, folder, group="many") as roles:
        yield Service(roles)


@pytest_asyncio.fixture(loop_scope="module")
async def service(running: Service) -> AsyncIterator[Service]:
    """With all its processes up and no live left of earlier tests."""
    await running.fill()
    yield running
    running.replicas = [one for one in running.replicas if one.child.returncode is None]
    async with running.http() as http:
        for live in (await http.get("/v1/lives", params={"limit": 200})).json()["lives"]:
            if live["state"] == "open":
                await http.delete(f"/v1/lives/{live['live_id']}")


async def letters(kafka: str) -> int:
    """How many dead letters there are."""
    transport = AiokafkaTransport(kafka)
    try:
        reader = await transport.range_reader(DEAD_LETTER_TOPIC)
        return (await reader.log_range(0))[1]
    finally:
        await transport.close()


async def test_the_commands_see_and_move_lives(service: Service) -> None:
    kafka = service.roles.kafka
    a, b = await service.id_of("a"), await service.id_of("b")
    await service.open("anna")
    source = (await service.live("anna"))["generation"]["worker_id"]
    target = b if source == a else a
    pushed = await service.roles.cli("push", "anna", "Hello", "there.", "--kafka", kafka)
    await service.released("anna", pushed["offset"] + 1)

    (row,) = [one for one in (await service.cli("lives"))["lives"] if one["live"] == "anna"]
    assert (row["state"], row["worker"], row["epoch"]) == ("open", source, 1)
    workers = {one["worker_id"]: one for one in (await service.cli("workers"))["workers"]}
    assert workers[source]["held"] == 1
    assert workers[target]["held"] == 0

    await service.cli("move", "anna", "--to", target)
    await service.owned_by("anna", target)
    end = await service.push("anna", "And on the other side.")
    await service.released("anna", end)

    await service.cli("drain", target)
    await service.owned_by("anna", source)
    async with service.http() as http:
        undone = await http.post(f"/v1/workers/{target}/drain", json={"draining": False})
        assert undone.json()["state"] == "ready"

    story = (await service.roles.cli("story", "anna", "--kafka", kafka))["story"]
    committed = [
        (one["epoch"], one["worker"]) for one in story if one["kind"] == "generation_committed"
    ]
    assert committed == sorted(committed)
    assert (1, source) in committed
    assert [one["epoch"] for one in story if one["kind"] == "claimed"] == [1, 2, 3]
    assert {"speak_started", "speak_ended", "moved"} <= {one["kind"] for one in story}


async def test_a_killed_replicas_callers_get_the_same_answers_of_another(service: Service) -> None:
    before = await _open_ids(service)
    names = [f"order-{number}" for number in range(24)]
    answered: dict[str, str] = {}

    async def ask(replica: int, key: str) -> httpx.Response:
        async with service.http(replica) as http:
            return await http.post("/v1/lives", headers={"Idempotency-Key": key})

    async def first_try(key: str) -> None:
        try:
            answer = await ask(1, key)
        except httpx.TransportError:
            return  # Nobody knows: it may have been created.
        if answer.status_code == 201:
            answered[key] = answer.json()["live_id"]

    tries = [asyncio.create_task(first_try(name)) for name in names]
    # Killed with requests at every stage of their way.
    await until(lambda: len(answered) >= 4, timeout_s=WAIT_S, what="the first answers")
    await service.kill_replica(1)
    await asyncio.gather(*tries)
    again = await asyncio.gather(*(ask(0, name) for name in names))
    assert {answer.status_code for answer in again} == {201}, [one.text for one in again]
    lives = {name: one.json()["live_id"] for name, one in zip(names, again, strict=True)}
    assert answered.items() <= lives.items()
    assert len(set(lives.values())) == len(names)
    assert await _open_ids(service) - before == set(lives.values()), "and none besides"


async def _open_ids(service: Service) -> set[str]:
    found = (await service.cli("lives"))["lives"]
    return {one["live"] for one in found if one["state"] == "open"}


async def test_events_go_on_at_another_replica_where_they_broke_off(service: Service) -> None:
    await service.open("bella")
    texts = [f"This is number {number}." for number in range(6)]
    await service.push("bella", *texts[:3])
    async with asyncio.timeout(WAIT_S):
        first = await _listen(service.replicas[1].url, "0:0", lambda seen: _ended(seen) == 2)
    await service.kill_replica(1)
    await service.push("bella", *texts[3:])
    last_id = first[-1][0]
    async with asyncio.timeout(WAIT_S):
        rest = await _listen(service.replicas[0].url, last_id, lambda seen: _ended(seen) == 4)
        whole = await _listen(service.replicas[0].url, "0:0", lambda seen: _ended(seen) == 6)
    assert [event for _, event in (*first, *rest)] == [event for _, event in whole]
    assert len({event["event_id"] for _, event in whole}) == len(whole)


def _ended(seen: list[tuple[str, Event]]) -> int:
    return sum(event["kind"] == "speak_ended" for _, event in seen)


async def _listen(url: str, last_id: str, enough: Any) -> list[tuple[str, Event]]:
    """(id, event) of bella's stream after `last_id`, until there are enough."""
    seen: list[tuple[str, Event]] = []
    at = last_id
    timeout = httpx.Timeout(30, read=None)
    async with (
        httpx.AsyncClient(timeout=timeout) as http,
        http.stream(
            "GET", f"{url}/v1/lives/bella/events", headers={"Last-Event-ID": last_id}
        ) as answer,
    ):
        assert answer.status_code == 200
        async for line in answer.aiter_lines():
            if line.startswith("id:"):
                at = line[3:].strip()
            elif line.startswith("data:"):
                event = json.loads(line[5:])
                if "kind" in event:
                    seen.append((at, event))
                if enough(seen):
                    break
    return seen


async def test_a_paused_worker_whose_name_was_taken_gives_way(service: Service) -> None:
    """A zombie of the same node: it does not take its name back from who replaced it."""
    await service.open("cleo")
    first = service.workers["a"]
    first.signal(signal.SIGSTOP)
    second = await service.roles.worker("a", capacity=32)
    service.workers["a"] = second
    taken = await service.id_of("a")
    first.signal(signal.SIGCONT)
    assert await first.ended() == 1
    assert first.said.strip().splitlines()[-1].startswith("worker ends: a-")
    assert f"{taken} at {second.url} runs under the same node name a" in first.said
    assert await second.ready()
    assert await service.id_of("a") == taken
    await service.released("cleo", await service.push("cleo", "Who speaks?"))


async def test_the_groups_offsets_tell_the_true_lag_while_workers_come_and_go(
    service: Service,
) -> None:
    roles = service.roles
    transport = AiokafkaTransport(roles.kafka)
    inspector = transport.inspector()
    history: list[dict[int, int]] = []

    async def watch() -> None:
        while True:
            history.append(await inspector.group_offsets(roles.group, TEXT_TOPIC))
            await asyncio.sleep(0.2)

    watching = asyncio.create_task(watch())
    try:
        names = [f"scaled-{number}" for number in range(8)]
        await service.open(*names)
        before = await letters(roles.kafka)
        ends = dict.fromkeys(names, 0)

        async def talk(*texts: str) -> None:
            for name in names:
                ends[name] = await service.push(name, *texts)

        await talk("Two of us. ")
        # Up: a third joins under load.
        joining = asyncio.create_task(roles.worker("c", capacity=32))
        await talk("A third one comes. ")
        third = await joining
        await talk("Three of us. ")
        # Down: it leaves, and one that was there before, with everything they have.
        ending = asyncio.gather(third.stop(), service.workers["a"].stop())
        await talk("Two of us leave. ")
        assert await ending == [0, 0], [third.said, service.workers["a"].said]
        await talk("One is left. ")
        for name in names:
            await service.released(name, ends[name])
        await until(lambda: _lag_is(roles, 0), timeout_s=WAIT_S, what="no lag, as operators see it")
        assert await letters(roles.kafka) == before, "nothing was refused"
        b = await service.id_of("b")
        for name in names:
            await service.owned_by(name, b)

        # Nobody is left: what comes now is the lag, to the record.
        assert await service.workers["b"].stop() == 0
        await talk("Is anybody there? ")
        assert await _lag_is(roles, 2 * len(names))
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        await transport.close()
    for earlier, later in itertools.pairwise(history):
        for partition, offset in earlier.items():
            assert later[partition] >= offset, "an offset went back"
    # Who starts next takes over where it was left.
    await service.fill()
    for name in names:
        await service.released(name, ends[name])
    await until(lambda: _lag_is(roles, 0), timeout_s=WAIT_S, what="no lag again")


async def _lag_is(roles: Roles, records: int) -> bool:
    rows = (await describe_group(roles.kafka, roles.group, TEXT_TOPIC)).values()
    assert all(_consistent(row) for row in rows), rows
    known = all(row.lag is not None for row in rows if row.log_end)
    return known and sum(row.lag or 0 for row in rows) == records


def _consistent(row: Described) -> bool:
    if row.offset is None or row.log_end is None:
        return not row.lag
    return row.lag == row.log_end - row.offset
