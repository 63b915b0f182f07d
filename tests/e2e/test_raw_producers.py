"""Text that foreign programs produce, with no call to Dispatch: lives open, speak, and close.

Dispatch and worker are processes, Kafka is real, and the producers are the two that users come
with: the Java client (in Kafka's own console producer) and librdkafka. Only the stages are stubs.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import httpx
import pytest
import pytest_asyncio
from confluent_kafka import Producer

from schemas.bad_record import DeadLetterReason
from schemas.dead_letter import DeadLetter
from schemas.events import EventKind
from schemas.topics import DEAD_LETTER_TOPIC, TEXT_TOPIC
from stream.aiokafka_transport import AiokafkaTransport
from tests.support.apache_kafka import ApacheKafka
from tests.support.kafka_source import own_broker
from tests.support.kafka_tools import console_produce
from tests.support.roles import Process, Roles, running_roles
from tests.support.wait import until

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.slow,
    pytest.mark.asyncio(loop_scope="module"),
]

WAIT_S = 120
SAYINGS = ("From far away. ", "Nobody called first. ")


@pytest.fixture(scope="module")
def broker() -> Iterator[ApacheKafka]:
    with own_broker(with_tools=True) as made:
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def roles(
    broker: ApacheKafka, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Roles]:
    """A replica, and a worker that lets text open lives."""
    async with running_roles(broker.bootstrap, tmp_path_factory.mktemp("raw")) as made:
        await asyncio.gather(made.dispatch(), made.worker("a", "--unknown-lives", "create"))
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def transport(broker: ApacheKafka) -> AsyncIterator[AiokafkaTransport]:
    made = AiokafkaTransport(broker.bootstrap)
    yield made
    await made.close()


def records(*texts: str) -> list[str]:
    """Records of the text topic, in JSON: the texts, then the turn's end, then the live's."""
    return [
        *(json.dumps({"text": text}) for text in texts),
        json.dumps({"kind": "end_turn"}),
        json.dumps({"kind": "close"}),
    ]


async def by_java(bootstrap: str, live_id: str) -> None:
    await console_produce(bootstrap, TEXT_TOPIC, [(live_id, r) for r in records(*SAYINGS)])


async def by_librdkafka(bootstrap: str, live_id: str) -> None:
    """With the partitioner that the README asks for."""
    producer = Producer({"bootstrap.servers": bootstrap, "partitioner": "murmur2_random"})
    for record in records(*SAYINGS):
        producer.produce(TEXT_TOPIC, key=live_id, value=record)
    assert await asyncio.to_thread(producer.flush, 60) == 0, "records are still on their way"


async def letters(transport: AiokafkaTransport) -> list[DeadLetter]:
    reader = await transport.range_reader(DEAD_LETTER_TOPIC)
    try:
        start, end = await reader.log_range(0)
        if start == end:
            return []
        found = await reader.read(0, start, records_max=end - start, timeout_ms=5_000)
        return [DeadLetter.decode(raw.value) for raw in found]
    finally:
        await reader.close()


@pytest.mark.parametrize("produce", [by_java, by_librdkafka])
async def test_text_of_a_foreign_producer_opens_a_live_is_spoken_and_closes_it(
    roles: Roles, transport: AiokafkaTransport, produce: Callable[[str, str], Awaitable[None]]
) -> None:
    live_id = produce.__name__.replace("_", "-")
    await produce(roles.kafka, live_id)
    async with httpx.AsyncClient(base_url=_dispatch(roles).url, timeout=30) as http:

        async def closed() -> bool:
            answer = await http.get(f"/v1/lives/{live_id}")
            return answer.status_code == 200 and answer.json()["state"] == "closed"

        await until(closed, timeout_s=WAIT_S, what=f"{live_id} closed by its producer")
    story = (await roles.cli("story", live_id, "--kafka", roles.kafka))["story"]
    told = [(one["kind"], one["data"].get("cause")) for one in story]
    assert (EventKind.GENERATION_COMMITTED, "record") in told, "a record opened it, no call did"
    assert "".join(_texts(story, EventKind.SPEAK_STARTED)) == "".join(SAYINGS)
    assert len(_texts(story, EventKind.SPEAK_ENDED)) == len(SAYINGS)
    assert await letters(transport) == []
    assert [one.said for one in roles.processes if "Traceback" in one.said] == []


async def test_without_the_policy_every_record_of_an_unknown_id_is_a_dead_letter(
    roles: Roles, transport: AiokafkaTransport
) -> None:
    generous = next(one for one in roles.processes if one.name.startswith("worker"))
    assert await generous.stop() == 0, generous.said
    await roles.worker("a")
    await by_librdkafka(roles.kafka, "nobody")

    async def all_refused() -> bool:
        return len(await letters(transport)) == len(records(*SAYINGS))

    await until(all_refused, timeout_s=WAIT_S, what="dead letters")
    refused = await letters(transport)
    assert {letter.reason for letter in refused} == {DeadLetterReason.UNKNOWN_LIVE}
    assert [letter.value for letter in refused] == [r.encode() for r in records(*SAYINGS)]
    async with httpx.AsyncClient(base_url=_dispatch(roles).url, timeout=30) as http:
        assert (await http.get("/v1/lives/nobody")).status_code == 404


def _dispatch(roles: Roles) -> Process:
    return next(one for one in roles.processes if one.name.startswith("dispatch"))


def _texts(story: list[dict[str, Any]], kind: EventKind) -> list[str]:
    return [str(one["data"].get("text", "")) for one in story if one["kind"] == kind]
