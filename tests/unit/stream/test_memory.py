"""The memory broker's faults, and that a seed gives the same history."""

import asyncio
from collections.abc import Callable

import pytest

from stream.memory import MemoryBroker, MemoryFaults, MemoryGroupReader, MemoryTransport
from stream.transport import (
    BrokerAway,
    KafkaRecord,
    SendRefused,
    SendUnknown,
    TopicSpec,
    UnknownTopic,
)

TOPIC = "t"


def broker_with(partitions: int = 1, seed: int = 1, **faults: float) -> MemoryBroker:
    broker = MemoryBroker(seed=seed, faults=MemoryFaults(**faults))  # type: ignore[arg-type]
    broker.make_topic(TopicSpec(TOPIC, partitions))
    return broker


def values(broker: MemoryBroker, partition: int = 0) -> list[bytes | None]:
    return [record.value for record in broker.records(TOPIC, partition)]


async def drain(reader: MemoryGroupReader) -> list[KafkaRecord]:
    found: list[KafkaRecord] = []
    while batch := await reader.poll(records_max=7, timeout_ms=0):
        found += batch
    return found


@pytest.mark.parametrize(
    ("fault", "error", "written"),
    [
        ("send_refused", SendRefused, False),
        ("send_unknown_lost", SendUnknown, False),
        ("send_unknown_applied", SendUnknown, True),
    ],
)
async def test_how_a_send_may_end(fault: str, error: type[Exception], written: bool) -> None:
    broker = broker_with(**{fault: 1.0})
    producer = await MemoryTransport(broker).producer()
    with pytest.raises(error):
        await producer.send(TOPIC, key=b"k", value=b"v")
    assert values(broker) == ([b"v"] if written else [])


async def test_a_late_send_appears_after_its_error() -> None:
    broker = broker_with(send_unknown_late=1.0, late_ms_max=20)
    producer = await MemoryTransport(broker).producer()
    reader = await MemoryTransport(broker).range_reader(TOPIC)
    with pytest.raises(SendUnknown):
        await producer.send(TOPIC, key=b"k", value=b"late")
    assert values(broker) == []
    (record,) = await reader.read(0, 0, records_max=1, timeout_ms=5_000)
    assert record.value == b"late"


async def test_a_cancelled_send_may_still_be_written() -> None:
    broker = broker_with(latency_ms_min=5, latency_ms_max=5)
    producer = await MemoryTransport(broker).producer()
    task = asyncio.ensure_future(producer.send(TOPIC, key=b"k", value=b"v"))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    reader = await MemoryTransport(broker).range_reader(TOPIC)
    (record,) = await reader.read(0, 0, records_max=1, timeout_ms=5_000)
    assert record.value == b"v"


async def test_random_latency_keeps_a_producers_order() -> None:
    broker = broker_with(latency_ms_min=0, latency_ms_max=4)
    producer = await MemoryTransport(broker).producer()
    sends = [producer.send(TOPIC, key=b"k", value=b"%d" % number) for number in range(30)]
    await asyncio.gather(*sends)
    assert values(broker) == [b"%d" % number for number in range(30)]


async def test_away_is_told_by_everything() -> None:
    broker = broker_with(away_ms=1)
    transport = MemoryTransport(broker)
    producer, group = await transport.producer(), await transport.group_reader("g", TOPIC)
    ranges, tail = await transport.range_reader(TOPIC), await transport.tail(TOPIC, None)
    await group.poll(records_max=1, timeout_ms=0)
    broker.away = True
    questions = (
        producer.send(TOPIC, key=b"k", value=b"v"),
        group.poll(records_max=1, timeout_ms=0),
        group.commit({0: 1}, group.assignment.token),
        ranges.read(0, 0, records_max=1, timeout_ms=0),
        ranges.log_range(0),
        tail.poll(records_max=1, timeout_ms=0),
        transport.partition_count(TOPIC),
        transport.producer(),
    )
    for question in questions:
        with pytest.raises(BrokerAway):
            await question
    broker.away = False
    assert values(broker) == []
    await producer.send(TOPIC, key=b"k", value=b"v")
    assert len(await drain(group)) == 1


async def test_an_expelled_reader_is_a_zombie_until_it_is_let_in_again() -> None:
    broker = broker_with(partitions=2)
    transport = MemoryTransport(broker)
    zombie, heir = (
        await transport.group_reader("g", TOPIC),
        await transport.group_reader("g", TOPIC),
    )
    await drain(zombie)
    await drain(heir)
    old = zombie.assignment
    broker.expel("g", zombie)
    await drain(heir)
    assert heir.assignment.partitions == {0, 1}
    broker.append(TOPIC, min(old.partitions), b"k", b"v")
    assert [r.value for r in await drain(zombie)] == [b"v"], "it goes on reading"
    assert zombie.assignment == old
    assert not zombie.is_member
    assert not await zombie.commit({min(old.partitions): 1}, old.token)
    assert [r.value for r in await drain(heir)] == [b"v"]
    broker.readmit("g", zombie)
    await drain(zombie)
    assert zombie.assignment.token > old.token
    assert len(zombie.assignment.partitions) == 1


async def test_a_reader_that_does_not_poll_believes_its_old_assignment() -> None:
    broker = broker_with(partitions=2)
    transport = MemoryTransport(broker)
    slow, quick = await transport.group_reader("g", TOPIC), await transport.group_reader("g", TOPIC)
    await drain(slow)
    await drain(quick)
    before = slow.assignment
    broker.rebalance("g", shuffle=False)
    await drain(quick)
    assert slow.assignment == before
    assert not await slow.commit({min(before.partitions): 1}, before.token)
    await drain(slow)
    assert slow.assignment.token == before.token + 1


async def test_a_rewound_group_reads_again_after_its_next_rebalance() -> None:
    broker = broker_with()
    reader = await MemoryTransport(broker).group_reader("g", TOPIC)
    for number in range(4):
        broker.append(TOPIC, 0, b"k", b"%d" % number)
    await drain(reader)
    assert await reader.commit({0: 4}, reader.assignment.token)
    broker.rewind("g", 0, 1)
    broker.rebalance("g")
    assert [record.offset for record in await drain(reader)] == [1, 2, 3]


async def test_records_may_be_fetched_again() -> None:
    broker = broker_with(fetch_again=0.5)
    reader = await MemoryTransport(broker).group_reader("g", TOPIC)
    seen: list[int] = []
    for number in range(50):
        broker.append(TOPIC, 0, b"k", b"%d" % number)
        seen += [record.offset for record in await reader.poll(records_max=5, timeout_ms=0)]
    broker.faults.fetch_again = 0.0
    seen += [record.offset for record in await drain(reader)]
    assert set(seen) == set(range(50))
    assert len(seen) > 50


async def test_gaps_and_cut_logs_keep_their_offsets() -> None:
    broker = broker_with()
    for gap in (0, 3, 0):
        broker.leave_gap(TOPIC, 0, gap)
        broker.append(TOPIC, 0, b"k", b"v")
    assert [record.offset for record in broker.records(TOPIC, 0)] == [0, 4, 5]
    ranges = await MemoryTransport(broker).range_reader(TOPIC)
    assert [r.offset for r in await ranges.read(0, 1, records_max=9, timeout_ms=0)] == [4, 5]
    broker.cut_log(TOPIC, 0, 2)
    assert await ranges.log_range(0) == (2, 6)
    broker.leave_gap(TOPIC, 0, 2)
    assert await ranges.read(0, 6, records_max=9, timeout_ms=0) == []
    assert broker.append(TOPIC, 0, b"k", b"v") == 8


async def test_a_full_partition_does_not_starve_the_others() -> None:
    broker = broker_with(partitions=3)
    for partition, count in ((0, 500), (1, 1), (2, 1)):
        for _ in range(count):
            broker.append(TOPIC, partition, b"k", b"v")
    reader = await MemoryTransport(broker).group_reader("g", TOPIC)
    seen: set[int] = set()
    for _ in range(6):
        seen |= {r.partition for r in await reader.poll(records_max=10, timeout_ms=0)}
    assert seen == {0, 1, 2}


async def test_a_poll_wakes_for_its_own_partitions_and_for_a_rebalance() -> None:
    broker = broker_with(partitions=2)
    transport = MemoryTransport(broker)
    first, second = [await transport.group_reader("g", TOPIC) for _ in range(2)]
    polls = [
        asyncio.create_task(one.poll(records_max=1, timeout_ms=60_000)) for one in (first, second)
    ]
    for _ in range(3):
        await asyncio.sleep(0)
    (own,) = second.assignment.partitions
    broker.append(TOPIC, own, b"k", b"v")
    assert [one.value for one in await polls[1]] == [b"v"]
    assert not polls[0].done(), "nothing came for the first"
    broker.append(TOPIC, 1 - own, b"k", b"w")
    assert [one.value for one in await polls[0]] == [b"w"]
    alone = asyncio.create_task(first.poll(records_max=1, timeout_ms=60_000))
    for _ in range(3):
        await asyncio.sleep(0)
    broker.append(TOPIC, own, b"k", b"x")
    assert not alone.done()
    broker.expel("g", second)
    assert await alone, "it takes over what the other left"


async def history(seed: int) -> list[object]:
    """A world of faults, written down."""
    broker = broker_with(
        partitions=4, seed=seed, send_unknown_applied=0.2, send_unknown_lost=0.2,
        send_unknown_late=0.1, late_ms_max=3, fetch_again=0.2,
    )  # fmt: skip
    transport = MemoryTransport(broker)
    producer = await transport.producer()
    readers = [await transport.group_reader("g", TOPIC) for _ in range(2)]
    story: list[object] = []
    for number in range(60):
        try:
            story.append(await producer.send(TOPIC, key=b"%d" % number, value=b"%d" % number))
        except SendUnknown:
            story.append("unknown")
        if number % 20 == 10:
            broker.rebalance("g")
        for reader in readers:
            batch = await reader.poll(records_max=5, timeout_ms=0)
            story.append([(r.partition, r.value) for r in batch])
            story.append(reader.assignment)
    return story


async def test_a_seed_gives_the_same_history_and_another_seed_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(loop, "call_later", _at_once(loop))
    one, same, other = await history(5), await history(5), await history(6)
    assert one == same
    assert one != other


def _at_once(loop: asyncio.AbstractEventLoop) -> Callable[..., asyncio.Handle]:
    """Real time out of the game: what was to come later comes in the next round."""

    def call(_: float, action: Callable[..., object], *args: object) -> asyncio.Handle:
        return loop.call_soon(action, *args)

    return call


async def test_topics_and_groups_that_are_not_there() -> None:
    broker = broker_with()
    transport = MemoryTransport(broker)
    for question in (
        transport.group_reader("g", "nothing"),
        transport.range_reader("nothing"),
        transport.tail("nothing", None),
        transport.partition_count("nothing"),
    ):
        with pytest.raises(UnknownTopic):
            await question
    await transport.group_reader("g", TOPIC)
    broker.make_topic(TopicSpec("other", 1))
    with pytest.raises(ValueError, match="group g reads"):
        await transport.group_reader("g", "other")
