"""What the rest of the system knows of Kafka.

Contract, kept by every implementation (one conformance suite):

- A partition's records come in offset order; offsets may have gaps (compaction, markers), and a
  record may come twice. Nothing here de-duplicates: the store's cursor does.
- `send` has three outcomes: it returns (in the log), SendRefused (certainly not in the log),
  SendUnknown (it is, it is not, or it will appear later). A cancelled send is unknown as well.
- Custody (GroupReader) is soft: two readers may believe in the same partition at the same time.
  The token of an assignment fences commits only; it is no authority over a live.
- Reading never skips silently: an offset outside the log raises OffsetOutOfLog.
- BrokerAway is retryable and says nothing was changed. Objects stay usable after it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

Headers = tuple[tuple[str, bytes | None], ...]


class KafkaRecord(Protocol):
    """One record as it lies in the log. `timestamp` is Unix time in milliseconds (the producer's or
    the broker's); a header's name may repeat, its value may be null.

    What a client library's own record has, by the library's names: there are very many, and none of
    them is made a second time.
    """

    @property
    def topic(self) -> str: ...

    @property
    def partition(self) -> int: ...

    @property
    def offset(self) -> int: ...

    @property
    def key(self) -> bytes | None: ...

    @property
    def value(self) -> bytes | None: ...

    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]: ...

    @property
    def timestamp(self) -> int: ...


class LogRecord(NamedTuple):
    """A `KafkaRecord` of who has no client library."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: int


@dataclass(frozen=True, slots=True)
class Sent:
    """Where an acknowledged record lies."""

    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Assignment:
    """The partitions in this reader's custody. `token` grows with every change, loss included."""

    token: int
    partitions: frozenset[int]


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic as it should be. Replication adapts to the number of brokers (3 where possible)."""

    name: str
    partitions: int
    retention_ms: int | None = None


@dataclass(frozen=True, slots=True)
class TopicFound:
    """A topic as it is. `partitions` may differ from `partitions_wanted`: that is the caller's to
    refuse or accept, it is never changed here, because adding partitions would re-map keys.
    """

    name: str
    partitions: int
    partitions_wanted: int
    created: bool


@dataclass(frozen=True, slots=True)
class TopicShape:
    """A topic as it is now. `partitions` 0: one of them has no leader. `topic_id` "": not told."""

    partitions: int
    topic_id: str


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member of a consumer group as the broker knows it, with its partitions of one topic."""

    client_id: str
    host: str
    partitions: frozenset[int]


class SendRefused(Exception):
    """The record is certainly not in the log and will not appear there."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class SendUnknown(Exception):
    """The record may be in the log, or may appear in it later."""


class BrokerAway(Exception):
    """No broker answered in time, or it asked to come again. Retryable."""


class GroupRefused(BrokerAway):
    """The group takes no member like us: others use its id with other settings. It is tried
    again, because they may leave, and has to be said."""


class OffsetOutOfLog(Exception):
    """The wanted offset was deleted (below `log_start`) or never written (above `log_end`)."""

    def __init__(self, partition: int, offset: int, log_start: int, log_end: int) -> None:
        super().__init__(
            f"offset {offset} of partition {partition} is outside the log [{log_start}, {log_end})"
        )
        self.partition = partition
        self.offset = offset
        self.log_start = log_start
        self.log_end = log_end


class Producer(Protocol):
    """Writes records; safe to use from many tasks."""

    async def send(
        self,
        topic: str,
        *,
        key: bytes | None,
        value: bytes,
        headers: Headers = (),
        partition: int | None = None,
    ) -> Sent:
        """Without `partition`, `schemas.partition.partition_of(key)` decides.

        Returns when every in-sync replica has it. Raises SendRefused, SendUnknown, BrokerAway.
        """
        ...

    async def send_all(self, topic: str, records: Sequence[tuple[bytes, bytes]]) -> int:
        """Keys and values of a report: records that may be lost, in few requests for all of them.

        Returns how many are certainly in the log, and raises nothing for the rest. What goes to
        one partition goes in order, also after what an earlier call was given.
        """
        ...

    async def close(self) -> None: ...


class GroupReader(Protocol):
    """Custody of partitions by membership in a consumer group. One task polls."""

    @property
    def assignment(self) -> Assignment: ...

    async def poll(self, *, records_max: int, timeout_ms: int) -> list[KafkaRecord]:
        """Records of assigned partitions only, perhaps none; also moves rebalances forward.

        A partition starts at the group's committed offset, or at the log's start when there is
        none. Raises BrokerAway; OffsetOutOfLog when a position left the log, until `seek`.
        """
        ...

    async def commit(self, offsets: Mapping[int, int], token: int) -> bool:
        """Commits next offsets per partition; lower ones than already committed are left out.

        False when `token` is not that of the current assignment (or a partition is not in it):
        nothing was committed then. Raises BrokerAway.
        """
        ...

    def seek(self, partition: int, offset: int) -> None:
        """The next poll reads on from `offset`. A partition that is not assigned is ignored."""
        ...

    async def close(self) -> None:
        """Leaves the group."""
        ...


class RangeReader(Protocol):
    """Reads any partition of one topic from any offset, without a group.

    Reads of different partitions may run side by side, reads of one partition queue.
    """

    async def log_range(self, partition: int) -> tuple[int, int]:
        """(log start, log end): the first offset still there, and the next one to be written."""
        ...

    async def offset_at(self, partition: int, timestamp_ms: int) -> int:
        """The first offset whose record has this timestamp or a later one; the log's end for none.

        Timestamps need not grow with the offsets: behind it there may be earlier ones.
        """
        ...

    async def read(
        self, partition: int, from_offset: int, *, records_max: int, timeout_ms: int
    ) -> list[KafkaRecord]:
        """Records at and after `from_offset`; [] when there were none in time.

        `from_offset` may be the log's end (waits for the next record). Raises OffsetOutOfLog,
        BrokerAway.
        """
        ...

    async def close(self) -> None: ...


class TailReader(Protocol):
    """Follows all partitions of a topic, without a group."""

    @property
    def positions(self) -> Mapping[int, int]:
        """The next offset to be read per partition."""
        ...

    async def poll(self, *, records_max: int, timeout_ms: int) -> list[KafkaRecord]:
        """As GroupReader.poll; a position that left the log goes on at the log's start."""
        ...

    async def close(self) -> None: ...


class Inspector(Protocol):
    """What others may have done to topic and group; asked anew each time. Raises BrokerAway."""

    async def topic_shape(self, topic: str) -> TopicShape | None:
        """None: there is no such topic."""
        ...

    async def group_members(self, group: str, topic: str) -> tuple[GroupMember, ...]:
        """Everybody in the group, whatever program it is."""
        ...

    async def group_offsets(self, group: str, topic: str) -> dict[int, int]:
        """Next offsets that the group committed, by partition; none for what it never did."""
        ...


class Transport(Protocol):
    """One process's connection to Kafka. Made and used inside one running event loop."""

    async def producer(self) -> Producer: ...

    async def group_reader(self, group: str, topic: str) -> GroupReader:
        """Joins the group; the first assignment comes during polls."""
        ...

    async def range_reader(self, topic: str) -> RangeReader: ...

    async def tail(self, topic: str, positions: Mapping[int, int] | None) -> TailReader:
        """Partitions that `positions` does not name start at the log's end."""
        ...

    async def partition_count(self, topic: str) -> int:
        """Raises UnknownTopic, BrokerAway."""
        ...

    async def ensure_topics(self, specs: Sequence[TopicSpec]) -> tuple[TopicFound, ...]:
        """Makes the missing ones and says how each is. Raises BrokerAway, TopicRefused."""
        ...

    async def close(self) -> None:
        """Closes everything that was made here and not closed yet."""
        ...


class UnknownTopic(Exception):
    """The topic does not exist."""


class TopicRefused(Exception):
    """The broker would not make a topic, and asking again will not help."""
