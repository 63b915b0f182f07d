"""Custody by group, over every implementation of stream.transport."""

import uuid
from collections.abc import Mapping

import pytest

from stream.transport import GroupReader, OffsetOutOfLog, Transport
from tests.support.transports import World, read_until, settle
from tests.support.wait import until


def new_group() -> str:
    return f"g-{uuid.uuid4().hex[:12]}"


async def fill(transport: Transport, topic: str, counts: Mapping[int, int]) -> None:
    producer = await transport.producer()
    for partition, count in counts.items():
        for number in range(count):
            await producer.send(topic, key=b"k", value=b"%d" % number, partition=partition)
    await producer.close()


async def resumes_at(world: World, group: str, topic: str, partitions: int) -> dict[int, int]:
    """Where a reader that joins alone would begin, from the first record of each partition."""
    reader = await world.transport().group_reader(group, topic)
    found = await settle([reader], partitions)
    for _ in range(20):
        found += await reader.poll(records_max=100, timeout_ms=20)
    await reader.close()
    first: dict[int, int] = {}
    for record in found:
        first.setdefault(record.partition, record.offset)
    return first


async def test_a_lone_reader_gets_every_partition_from_the_logs_start(world: World) -> None:
    topic = await world.topic(3)
    await fill(world.transport(), topic, {0: 5, 1: 3, 2: 4})
    reader = await world.transport().group_reader(new_group(), topic)
    assert not reader.assignment.partitions
    found = await read_until([reader], 12)
    assert reader.assignment.partitions == {0, 1, 2}
    for partition, count in {0: 5, 1: 3, 2: 4}.items():
        offsets = [record.offset for record in found if record.partition == partition]
        assert offsets == list(range(count))


async def test_the_next_reader_goes_on_where_the_group_committed(world: World) -> None:
    topic, group = await world.topic(2), new_group()
    await fill(world.transport(), topic, {0: 5, 1: 5})
    reader = await world.transport().group_reader(group, topic)
    await read_until([reader], 10)
    assert await reader.commit({0: 3, 1: 1}, reader.assignment.token)
    await reader.close()
    assert await resumes_at(world, group, topic, 2) == {0: 3, 1: 1}


async def test_commits_only_grow(world: World) -> None:
    topic, group = await world.topic(1), new_group()
    await fill(world.transport(), topic, {0: 6})
    reader = await world.transport().group_reader(group, topic)
    await read_until([reader], 6)
    token = reader.assignment.token
    assert await reader.commit({0: 4}, token)
    assert await reader.commit({0: 2}, token)
    await reader.close()
    assert await resumes_at(world, group, topic, 1) == {0: 4}
    other = await world.transport().group_reader(group, topic)
    await settle([other], 1)
    assert await other.commit({0: 1}, other.assignment.token), "a later member rewinds neither"
    await other.close()
    assert await resumes_at(world, group, topic, 1) == {0: 4}


async def test_an_old_token_and_a_foreign_partition_commit_nothing(world: World) -> None:
    topic, group = await world.topic(2), new_group()
    await fill(world.transport(), topic, {0: 5, 1: 5})
    reader = await world.transport().group_reader(group, topic)
    await read_until([reader], 10)
    token = reader.assignment.token
    assert not await reader.commit({0: 2}, token - 1)
    assert not await reader.commit({0: 2}, token + 1)
    assert not await reader.commit({0: 2, 7: 1}, token)
    await reader.close()
    assert await resumes_at(world, group, topic, 2) == {0: 0, 1: 0}


async def test_two_readers_divide_the_partitions_and_one_inherits_them(world: World) -> None:
    topic, group = await world.topic(4), new_group()
    await fill(world.transport(), topic, dict.fromkeys(range(4), 3))
    first = await world.transport().group_reader(group, topic)
    await read_until([first], 12)
    old = first.assignment
    assert await first.commit(dict.fromkeys(range(4), 1), old.token)

    second = await world.transport().group_reader(group, topic)
    again = await settle([first, second], 4)
    assert first.assignment.token > old.token
    assert not await first.commit({0: 3}, old.token)
    mine = first.assignment.partitions
    theirs = second.assignment.partitions
    assert mine
    assert theirs
    assert not mine & theirs
    # Whoever has a partition now reads it on from the group's commit: none of it is left out.
    again += await read_until([first, second], 8 - len({(r.partition, r.offset) for r in again}))
    assert {(r.partition, r.offset) for r in again} >= {(p, o) for p in range(4) for o in (1, 2)}

    await first.close()
    assert not first.assignment.partitions
    await settle([second], 4)
    await fill(world.transport(), topic, dict.fromkeys(range(4), 1))

    def last_ones(found: list[tuple[int, int]]) -> bool:
        return {(p, 3) for p in range(4)} <= set(found)

    seen: list[tuple[int, int]] = []

    async def read_on() -> bool:
        seen.extend(
            (r.partition, r.offset) for r in await second.poll(records_max=50, timeout_ms=20)
        )
        return last_ones(seen)

    await until(read_on, what="the new records of all partitions")


async def test_records_come_from_assigned_partitions_only(world: World) -> None:
    topic, group = await world.topic(4), new_group()
    readers: list[GroupReader] = [await world.transport().group_reader(group, topic)]
    producer = await world.transport().producer()
    joined = False
    rounds = 0

    async def steady() -> bool:
        nonlocal joined, rounds
        rounds += 1
        await producer.send(topic, key=b"k%d" % rounds, value=b"v")
        for reader in readers:
            for record in await reader.poll(records_max=10, timeout_ms=20):
                assert record.partition in reader.assignment.partitions
        if not joined and readers[0].assignment.partitions:
            readers.append(await world.transport().group_reader(group, topic))
            joined = True
        return joined and all(len(reader.assignment.partitions) == 2 for reader in readers)

    await until(steady, timeout_s=40, what="two readers with two partitions each")


async def test_an_expelled_member_cannot_move_the_groups_offsets(world: World) -> None:
    topic, group = await world.topic(1), new_group()
    await fill(world.transport(), topic, {0: 6})
    reader = await world.transport().group_reader(group, topic)
    await read_until([reader], 6)
    token = reader.assignment.token
    assert await reader.commit({0: 2}, token)
    await world.expel(group, reader)
    assert not await reader.commit({0: 5}, token)
    await reader.close()
    assert await resumes_at(world, group, topic, 1) == {0: 2}


async def test_seek_moves_the_next_poll(world: World) -> None:
    topic = await world.topic(1)
    await fill(world.transport(), topic, {0: 6})
    reader = await world.transport().group_reader(new_group(), topic)
    await read_until([reader], 6)
    reader.seek(0, 4)
    reader.seek(9, 0)
    found = await read_until([reader], 2)
    assert [record.offset for record in found] == [4, 5]


async def test_a_committed_offset_that_left_the_log_is_an_error_until_seek(world: World) -> None:
    topic, group = await world.topic(1), new_group()
    await fill(world.transport(), topic, {0: 6})
    reader = await world.transport().group_reader(group, topic)
    await read_until([reader], 6)
    assert await reader.commit({0: 1}, reader.assignment.token)
    await reader.close()
    await world.cut_log(topic, 0, 4)
    late = await world.transport().group_reader(group, topic)
    with pytest.raises(OffsetOutOfLog) as caught:
        await read_until([late], 1)
    assert (caught.value.partition, caught.value.offset) == (0, 1)
    assert (caught.value.log_start, caught.value.log_end) == (4, 6)
    with pytest.raises(OffsetOutOfLog):
        await read_until([late], 1)
    late.seek(0, caught.value.log_start)

    found: list[int] = []

    async def read_on() -> bool:
        # What was already under way when the seek was made may say the same once more.
        try:
            found.extend(r.offset for r in await late.poll(records_max=10, timeout_ms=20))
        except OffsetOutOfLog:
            return False
        return len(found) >= 2

    await until(read_on, what="the records that are left")
    assert found == [4, 5]
