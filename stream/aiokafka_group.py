"""Custody by a consumer group over aiokafka.

Rebalances are eager and their callbacks late, so nothing here is authority: a token per assignment
fences commits, and a commit names the membership that its assignment came with.
"""

import asyncio
from collections.abc import Collection, Mapping
from itertools import chain

import structlog
from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka import errors as kafka_errors
from aiokafka.coordinator.assignors.range import RangePartitionAssignor

from stream.aiokafka_border import (
    ask,
    commit_as,
    membership,
    position_of,
    reading_options,
    start_consumer,
    stop_consumer,
)
from stream.log_ranges import LogRanges
from stream.settings import KafkaSettings
from stream.transport import Assignment, BrokerAway, GroupRefused, KafkaRecord, OffsetOutOfLog
from stream.watchdog import Watchdog

_log = structlog.get_logger(__name__)

# `getmany` ignores its own timeout while a rebalance is on; this much later it is left alone.
_GRACE_S = 0.1
_REFUSED = (
    kafka_errors.InconsistentGroupProtocolError,
    kafka_errors.InvalidSessionTimeoutError,
    kafka_errors.InvalidGroupIdError,
    kafka_errors.GroupAuthorizationFailedError,
)


class AiokafkaGroupReader:
    """A member of a group; makes itself anew when it stalls or its coordination ends."""

    def __init__(self, settings: KafkaSettings, group: str, topic: str, ranges: LogRanges) -> None:
        self._settings = settings
        self._group = group
        self._topic = topic
        self._ranges = ranges
        self._consumer: AIOKafkaConsumer | None = None
        self._assignment = Assignment(0, frozenset())
        # The membership of `_assignment`; None while partitions are revoked and not given again.
        self._member: tuple[int, str] | None = None
        self._committed: dict[int, int] = {}
        self._committing = asyncio.Lock()
        self._stopping: set[asyncio.Task[None]] = set()
        self._watchdog = Watchdog(settings, ranges)
        # Twice what an orderly rebalance may take, a member that died included.
        self._assigned_within_s = (
            2 * (settings.rebalance_timeout_ms + settings.session_timeout_ms) / 1000
        )
        self._revoked_at_s = asyncio.get_running_loop().time()
        self._is_refused = False
        self.closed = False

    @property
    def assignment(self) -> Assignment:
        return self._assignment

    async def open(self) -> None:
        """Joins the group. Raises BrokerAway."""
        consumer = AIOKafkaConsumer(
            **reading_options(self._settings),
            group_id=self._group,
            session_timeout_ms=self._settings.session_timeout_ms,
            heartbeat_interval_ms=self._settings.heartbeat_interval_ms,
            rebalance_timeout_ms=self._settings.rebalance_timeout_ms,
            max_poll_interval_ms=self._settings.max_poll_interval_ms,
            partition_assignment_strategy=(RangePartitionAssignor,),
        )
        await start_consumer(consumer, self._settings)
        if self.closed:
            await stop_consumer(consumer)
            return
        self._watchdog.start_over()
        self._revoked_at_s = asyncio.get_running_loop().time()
        self._consumer = consumer
        # Subscribed after the start, which would wait for the first assignment otherwise.
        consumer.subscribe([self._topic], listener=_Listener(self, consumer))

    async def poll(self, *, records_max: int, timeout_ms: int) -> list[KafkaRecord]:
        if self.closed:
            return []
        if self._consumer is None:
            await self.open()
        consumer = self._consumer
        if consumer is None:
            return []
        records = await self._records(consumer, records_max, timeout_ms)
        self._watch(consumer)
        return records

    async def commit(self, offsets: Mapping[int, int], token: int) -> bool:
        async with self._committing:
            consumer, member = self._consumer, self._member
            if consumer is None or member is None or token != self._assignment.token:
                return False
            if not offsets.keys() <= self._assignment.partitions:
                return False
            await self._learn_committed(consumer, offsets, token)
            if token != self._assignment.token:
                return False
            grown = {
                TopicPartition(self._topic, partition): offset
                for partition, offset in offsets.items()
                if offset > self._committed[partition]
            }
            if not grown:
                return True
            taken = await ask(
                "committing",
                self._settings.request_timeout_ms / 1000,
                commit_as(consumer, self._group, member, grown),
            )
            if taken and token == self._assignment.token:
                self._committed.update({tp.partition: offset for tp, offset in grown.items()})
            return taken

    def seek(self, partition: int, offset: int) -> None:
        consumer = self._consumer
        tp = TopicPartition(self._topic, partition)
        if consumer is not None and tp in consumer.assignment():
            consumer.seek(tp, offset)

    async def close(self) -> None:
        self.closed = True
        self._change(None, frozenset())
        await self._watchdog.close()
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await stop_consumer(consumer)
        await asyncio.gather(*self._stopping)

    async def _records(
        self, consumer: AIOKafkaConsumer, records_max: int, timeout_ms: int
    ) -> list[KafkaRecord]:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + timeout_ms / 1000
        while True:
            left_ms = max(0, int((until_s - loop.time()) * 1000))
            try:
                async with asyncio.timeout(left_ms / 1000 + _GRACE_S):
                    found = await consumer.getmany(timeout_ms=left_ms, max_records=records_max)
            except TimeoutError:
                return []
            except kafka_errors.NoOffsetForPartitionError as error:
                await self._from_log_start(consumer, error.args[0])
                continue
            except kafka_errors.OffsetOutOfRangeError as error:
                ((tp, offset),) = error.args[0].items()
                log_start, log_end = await self._ranges.range(self._topic, tp.partition)
                raise OffsetOutOfLog(tp.partition, offset, log_start, log_end) from error
            except _REFUSED as error:
                self._give_up(consumer, repr(error))
                raise self._refused(error) from error
            except kafka_errors.KafkaError as error:
                self._give_up(consumer, repr(error))
                raise BrokerAway(f"reading as a member of {self._group}: {error!r}") from error
            if found and self._member is None:
                # Records of an assignment whose callback is still on its way: ours already, and
                # the consumer will not give them again.
                self.assigned(consumer, consumer.assignment())
            return [*chain.from_iterable(found.values())]

    def _refused(self, error: kafka_errors.KafkaError) -> GroupRefused:
        said = (
            f"the consumer group {self._group} takes no worker ({type(error).__name__}): other "
            "programs are in it with other settings. Use another group, or end them"
        )
        if not self._is_refused:
            self._is_refused = True
            _log.error("kafka_group_refused", group=self._group, what=said)
        return GroupRefused(said)

    async def _from_log_start(self, consumer: AIOKafkaConsumer, tp: TopicPartition) -> None:
        """A partition that the group has never committed begins at the log's start."""
        log_start, _ = await self._ranges.range(self._topic, tp.partition)
        if tp in consumer.assignment() and position_of(consumer, tp) is None:
            consumer.seek(tp, log_start)

    async def _learn_committed(
        self, consumer: AIOKafkaConsumer, partitions: Collection[int], token: int
    ) -> None:
        """Fills in what the group has committed, once per assignment: commits only grow from it.

        An answer that comes when the assignment is over says nothing of the next one: whoever had
        the partition in between may have committed more.
        """
        timeout_s = self._settings.request_timeout_ms / 1000
        for partition in partitions:
            if partition not in self._committed:
                committed = await ask(
                    "asking for the committed offset",
                    timeout_s,
                    consumer.committed(TopicPartition(self._topic, partition)),
                )
                if token != self._assignment.token:
                    return
                self._committed[partition] = -1 if committed is None else committed

    def _watch(self, consumer: AIOKafkaConsumer) -> None:
        positions = {
            partition: position_of(consumer, TopicPartition(self._topic, partition))
            for partition in self._assignment.partitions
        }
        stalled = self._watchdog.look(self._topic, positions)
        if stalled is None and self._member is None:
            waited_s = asyncio.get_running_loop().time() - self._revoked_at_s
            if waited_s > self._assigned_within_s:
                stalled = f"no assignment for {waited_s:.1f} s"
        if stalled is not None:
            self._give_up(consumer, stalled)

    def _give_up(self, consumer: AIOKafkaConsumer, why: str) -> None:
        """The next poll joins anew; this consumer is stopped behind everybody's back."""
        if self._consumer is not consumer:
            return
        _log.warning("kafka_group_reader_made_anew", group=self._group, why=why)
        self._consumer = None
        self._change(None, frozenset())
        task = asyncio.get_running_loop().create_task(stop_consumer(consumer))
        self._stopping.add(task)
        task.add_done_callback(self._stopping.discard)

    def revoked(self, consumer: AIOKafkaConsumer) -> None:
        """Called by the listener, perhaps long after the group has gone on without us."""
        if consumer is self._consumer:
            self._change(None, frozenset())

    def assigned(self, consumer: AIOKafkaConsumer, tps: Collection[TopicPartition]) -> None:
        """Called by the listener, or by a poll that overtook it; the second call does nothing."""
        member = membership(consumer)
        if consumer is self._consumer and member != self._member:
            self._change(member, frozenset(tp.partition for tp in tps))

    def _change(self, member: tuple[int, str] | None, partitions: frozenset[int]) -> None:
        self._member = member
        self._committed.clear()
        self._assignment = Assignment(self._assignment.token + 1, partitions)
        self._is_refused = self._is_refused and member is None
        if member is None:
            self._revoked_at_s = asyncio.get_running_loop().time()


class _Listener(ConsumerRebalanceListener):
    """Tells the reader what the group decided; commits nothing, waits for nothing."""

    def __init__(self, reader: AiokafkaGroupReader, consumer: AIOKafkaConsumer) -> None:
        self._reader = reader
        self._consumer = consumer

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        self._reader.revoked(self._consumer)

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        self._reader.assigned(self._consumer, assigned)
