"""What others did to topic, group and store: every role notices it, names it, and loses nothing.

On an Apache Kafka of these tests' own, because they delete its topics.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, MutableMapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions
from aiokafka.admin.records_to_delete import RecordsToDelete
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from structlog.testing import capture_logs

from dhsched.topic_writer import TopicWriter
from hosting.start import RoleEnded, StartFailed
from ownership.kv import Transaction
from ownership.open import open_database
from ownership.workers import list_workers
from schemas.dead_letter import DeadLetter
from schemas.text_record import RecordKind
from schemas.topics import DEAD_LETTER_TOPIC, EVENTS_TOPIC, TEXT_PARTITIONS, TEXT_TOPIC
from stream.aiokafka_transport import AiokafkaTransport
from stream.topics import default_topics
from tests.support.apache_kafka import ApacheKafka
from tests.support.kafka_source import own_broker
from tests.support.roles_here import RolesHere, roles_here
from tests.support.wait import until

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

TOPICS = [TEXT_TOPIC, EVENTS_TOPIC, DEAD_LETTER_TOPIC]
Logs = list[MutableMapping[str, Any]]


@pytest.fixture(scope="module")
def broker() -> Iterator[ApacheKafka]:
    with own_broker() as made:
        yield made


@pytest.fixture
async def admin(broker: ApacheKafka) -> AsyncIterator[AIOKafkaAdminClient]:
    client = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap, request_timeout_ms=10_000)
    await client.start()
    yield client
    await client.close()


@pytest.fixture
async def transport(broker: ApacheKafka) -> AsyncIterator[AiokafkaTransport]:
    made = AiokafkaTransport(broker.bootstrap)
    yield made
    await made.close()


@pytest.fixture
def logs() -> Iterator[Logs]:
    with capture_logs() as captured:
        yield captured


@pytest.fixture
async def roles(
    monkeypatch: pytest.MonkeyPatch,
    broker: ApacheKafka,
    admin: AIOKafkaAdminClient,
    tmp_path: Path,
) -> AsyncIterator[RolesHere]:
    """A new service on topics of its own: those of the test before are gone."""
    await delete_topics(admin)
    async with roles_here(monkeypatch, broker.bootstrap, tmp_path, tmp_path.name) as made:
        yield made


async def delete_topics(admin: AIOKafkaAdminClient) -> None:
    async def gone() -> bool:
        left = set(TOPICS) & set(await admin.list_topics())
        if left:
            await admin.delete_topics(sorted(left))
        return not left

    await until(gone, timeout_s=60, what="the end of the topics")


async def told(logs: Logs, event: str, *words: str) -> None:
    """Waits until that was logged, with these words."""

    def found() -> bool:
        return any(
            one["event"] == event and all(word in str(one) for word in words) for one in logs
        )

    await until(found, timeout_s=60, what=f"{event} in the log")


async def letters(transport: AiokafkaTransport) -> list[DeadLetter]:
    reader = await transport.range_reader(DEAD_LETTER_TOPIC)
    _, end = await reader.log_range(0)
    found = await reader.read(0, 0, records_max=1_000, timeout_ms=3_000) if end else []
    await reader.close()
    return [DeadLetter.decode(raw.value) for raw in found]


async def reasons(transport: AiokafkaTransport) -> list[str]:
    return [one.reason.value for one in await letters(transport)]


async def committed(roles: RolesHere, transport: AiokafkaTransport) -> None:
    """Waits until the group has an offset above 0, of a record of nobody's."""
    async with TopicWriter.to(roles.kafka) as writer:
        await writer.write("nobody", RecordKind.TEXT, "Hello.")

    async def is_there() -> bool:
        found = await transport.inspector().group_offsets(roles.group, TEXT_TOPIC)
        return any(found.values())

    await until(is_there, timeout_s=60, what="the group's offset")


# -- topics


async def test_a_topic_that_was_made_again_ends_every_role_and_is_refused_at_the_next_start(
    roles: RolesHere, admin: AIOKafkaAdminClient, transport: AiokafkaTransport
) -> None:
    running = await asyncio.gather(roles.dispatch(), roles.worker("a"))
    await delete_topics(admin)
    await transport.ensure_topics(default_topics())
    for role in running:
        error = await role.ended()
        assert isinstance(error, RoleEnded)
        assert f"{TEXT_TOPIC} was deleted and made again" in str(error)
    for start in (roles.dispatch, lambda: roles.worker("a")):
        with pytest.raises(StartFailed, match="the topic was deleted and made again"):
            await start()


async def test_a_topic_that_is_gone_is_said_and_not_made_again_for_a_store_that_was_used(
    roles: RolesHere, admin: AIOKafkaAdminClient, logs: Logs
) -> None:
    running = await asyncio.gather(roles.dispatch(), roles.worker("a"))
    await delete_topics(admin)
    await told(logs, "topic_missing", f"the topic {TEXT_TOPIC} is gone")
    for role in running:

        async def shown(role: Any = role) -> bool:
            return "topic_missing" in await role.faults()

        await until(shown, timeout_s=60, what="the fault in the metrics")
    assert not await running[0].ready()
    with pytest.raises(StartFailed, match=f"no topic {TEXT_TOPIC}, and the store .* was used"):
        await roles.worker("b")
    assert TEXT_TOPIC not in await admin.list_topics()


async def test_more_partitions_than_recorded_are_said_and_refused_at_the_next_start(
    roles: RolesHere, admin: AIOKafkaAdminClient, logs: Logs
) -> None:
    running = await asyncio.gather(roles.dispatch(), roles.worker("a"))
    await admin.create_partitions({TEXT_TOPIC: NewPartitions(total_count=2 * TEXT_PARTITIONS)})
    await told(logs, "partitions_changed", f"the store was made for {TEXT_PARTITIONS}")
    for role in running:

        async def shown(role: Any = role) -> bool:
            return "partitions_changed" in await role.faults()

        await until(shown, timeout_s=60, what="the fault in the metrics")
        assert not role.task.done()
    with pytest.raises(StartFailed, match=f"of {TEXT_PARTITIONS} partitions"):
        await roles.dispatch()


async def test_retention_past_a_cursor_is_a_dead_letter_that_names_the_live(
    roles: RolesHere, admin: AIOKafkaAdminClient, transport: AiokafkaTransport
) -> None:
    dispatch, worker = await asyncio.gather(roles.dispatch(), roles.worker("a"))
    async with httpx.AsyncClient(base_url=dispatch.url, timeout=20) as http:
        opened = await http.post("/v1/lives", json={"live_id": "anna"})
        assert opened.status_code == 201, opened.text
        await worker.die()
        places = [
            (await http.post("/v1/lives/anna/text", json={"text": text, "end_turn": True})).json()
            for text in ("Lost one. ", "Lost two. ", "Kept. ")
        ]
        kept = TopicPartition(TEXT_TOPIC, places[-1]["partition"])
        await admin.delete_records({kept: RecordsToDelete(before_offset=places[-1]["offset"])})
        await roles.worker("b")

        async def spoken() -> bool:
            live = (await http.get("/v1/lives/anna")).json()
            return live["next_offset"] > places[-1]["offset"]

        await until(spoken, timeout_s=120, what="what was kept")

    # Said by the live's owner or by the partition's custodian, whichever saw it first.
    async def refused() -> bool:
        found = await letters(transport)
        return any(one.key == b"anna" and one.reason.value == "before_log_start" for one in found)

    await until(refused, timeout_s=60, what="the live's dead letter")
    assert set(await reasons(transport)) == {"before_log_start"}


async def test_a_record_over_the_size_limit_is_a_dead_letter_that_says_so(
    roles: RolesHere, transport: AiokafkaTransport
) -> None:
    dispatch, _ = await asyncio.gather(roles.dispatch(), roles.worker("a"))
    async with httpx.AsyncClient(base_url=dispatch.url, timeout=20) as http:
        assert (await http.post("/v1/lives", json={"live_id": "anna"})).status_code == 201
        long = {"text": "a" * 200_000}
        assert (await http.post("/v1/lives/anna/text", json=long)).status_code == 413
        producer = await transport.producer()
        value = b'{"text": "' + b"a" * 900_000 + b'"}'
        sent = await producer.send(TEXT_TOPIC, key=b"anna", value=value)

        async def is_there() -> bool:
            return bool(await letters(transport))

        await until(is_there, timeout_s=60, what="the dead letter")
    (letter,) = await letters(transport)
    assert (letter.partition, letter.offset) == (sent.partition, sent.offset)
    assert letter.reason.value == "too_large"


# -- groups


async def test_a_consumer_that_is_not_ours_in_our_group_is_named(
    roles: RolesHere, logs: Logs
) -> None:
    worker = await roles.worker("a")
    foreign = AIOKafkaConsumer(
        TEXT_TOPIC,
        bootstrap_servers=roles.kafka,
        group_id=roles.group,
        client_id="somebodys-report",
        enable_auto_commit=False,
        partition_assignment_strategy=(RangePartitionAssignor,),
    )
    await foreign.start()
    try:
        await told(logs, "foreign_consumer", "somebodys-report at 127.0.0.1")
        assert "foreign_consumer" in await worker.faults()
    finally:
        await foreign.stop()
    await told(logs, "fault_is_gone")
    assert "foreign_consumer" not in await worker.faults()


async def test_a_group_with_other_settings_is_named_until_it_is_free(
    roles: RolesHere, transport: AiokafkaTransport, logs: Logs
) -> None:
    """Members with another assignor only: the broker refuses ours."""
    await transport.ensure_topics(default_topics())
    foreign = AIOKafkaConsumer(
        TEXT_TOPIC,
        bootstrap_servers=roles.kafka,
        group_id=roles.group,
        client_id="somebodys-report",
        enable_auto_commit=False,
        partition_assignment_strategy=(RoundRobinPartitionAssignor,),
    )
    await foreign.start()
    try:
        await roles.worker("a")
        await told(logs, "kafka_group_refused", roles.group, "InconsistentGroupProtocol")
        await told(logs, "foreign_consumer", "somebodys-report")
    finally:
        await foreign.stop()
    await told(logs, "fault_is_gone")
    await told(logs, "custody", "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]")


async def test_another_group_for_the_same_store_is_refused(roles: RolesHere) -> None:
    await roles.worker("a")
    first, roles.group = roles.group, f"{roles.group}-other"
    with pytest.raises(StartFailed, match=f"form the consumer group {first}, and this one"):
        await roles.worker("b")


# -- nodes and stores


async def test_a_second_worker_of_one_name_is_refused_while_the_first_lives(
    roles: RolesHere,
) -> None:
    first = await roles.worker("a")
    with pytest.raises(StartFailed, match=f"under the node name a already: a-.* at {first.url}"):
        await roles.worker("a")
    assert await first.ready()
    # One that was killed gives its name away, without its goodbye.
    await first.die()
    second = await roles.worker("a")
    assert second.worker is not None
    assert second.worker.counters.incarnations == 1


async def test_a_store_that_was_wiped_under_a_running_cluster_ends_every_role(
    roles: RolesHere, transport: AiokafkaTransport
) -> None:
    running = await asyncio.gather(roles.dispatch(), roles.worker("a"))
    await committed(roles, transport)

    def wipe(tr: Transaction) -> None:
        tr.clear_range(b"", b"\xff")

    async with await open_database(roles.store) as db:
        await db.run(wipe)
        for role in running:
            error = await role.ended()
            assert isinstance(error, RoleEnded)
            assert "wiped or replaced under us" in str(error)
        assert await list_workers(db) == [], "nobody began anew in the empty store"
    # A supervisor starts it again: it does not begin a new service with the old group's offsets.
    with pytest.raises(StartFailed, match=r"has committed offsets .* it was wiped"):
        await roles.worker("a")
    assert await reasons(transport) == ["unknown_live"]
