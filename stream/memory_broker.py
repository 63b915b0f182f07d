"""A broker that is only an object: logs, consumer groups, and faults on demand.

Everything happens on the running loop and by its clock, chance comes from one seed, and nothing
else is read: the same calls in the same order give the same history, also on a loop whose time is
simulated. `stream.memory` is what production code sees of it.

A group rebalances as Kafka's do: a new generation divides the partitions at once, but each member
learns of it only at its next poll. Until then it believes in its old assignment and goes on reading
(a zombie); only its commits are refused, because they carry the old generation.
"""

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from random import Random

from stream.transport import Headers, KafkaRecord, LogRecord, TopicFound, TopicSpec, UnknownTopic


@dataclass(slots=True)
class MemoryFaults:
    """Chances per operation, 0 to 1, and times. May be changed at any moment.

    A late send is applied up to `late_ms_max` after its sender was told SendUnknown.
    """

    send_refused: float = 0.0
    send_unknown_applied: float = 0.0
    send_unknown_lost: float = 0.0
    send_unknown_late: float = 0.0
    late_ms_max: int = 2_000
    fetch_again: float = 0.0
    fetch_again_records_max: int = 8
    latency_ms_min: float = 0.0
    latency_ms_max: float = 0.0
    away_ms: float = 50.0


class Log:
    """One partition: records in offset order, with gaps where a test made some."""

    __slots__ = ("end", "offsets", "records", "start")

    def __init__(self) -> None:
        self.start = 0
        self.end = 0
        self.offsets: list[int] = []
        self.records: list[KafkaRecord] = []

    def read(self, from_offset: int, records_max: int) -> list[KafkaRecord]:
        at = bisect_left(self.offsets, from_offset)
        return self.records[at : at + records_max]

    def append(self, record: KafkaRecord) -> None:
        self.offsets.append(record.offset)
        self.records.append(record)
        self.end = record.offset + 1

    def cut_before(self, offset: int) -> None:
        at = bisect_left(self.offsets, offset)
        del self.offsets[:at], self.records[:at]
        self.start = max(self.start, offset)
        self.end = max(self.end, offset)


@dataclass(slots=True)
class Group:
    """`members` in the order they joined; `shares` is the division of the current generation."""

    topic: str
    generation: int = 0
    members: list[object] = field(default_factory=list[object])
    shares: dict[object, frozenset[int]] = field(default_factory=dict[object, frozenset[int]])
    committed: dict[int, int] = field(default_factory=dict[int, int])


class Waiters:
    """Tasks that wait for something new in some partitions, each until its own deadline."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Future[None], Collection[int]] = {}

    async def wait(self, timeout_s: float, partitions: Collection[int]) -> None:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        self._waiting[future] = partitions
        timer = loop.call_later(timeout_s, _wake, future)
        try:
            await future
        finally:
            timer.cancel()
            self._waiting.pop(future, None)

    def wake(self, partition: int | None = None) -> None:
        """Those that wait for this partition; None: all of them, whatever they wait for."""
        for future, partitions in list(self._waiting.items()):
            if partition is None or partition in partitions:
                del self._waiting[future]
                _wake(future)


class MemoryBroker:
    """Shared by the transports of all processes of a simulated world. Not for threads."""

    def __init__(self, *, seed: int = 0, faults: MemoryFaults | None = None) -> None:
        self.random = Random(seed)
        self.faults = faults if faults is not None else MemoryFaults()
        self.away = False
        self.changed: dict[str, Waiters] = {}
        self.groups: dict[str, Group] = {}
        self._topics: dict[str, list[Log]] = {}

    # --- topics and logs

    def make_topic(self, spec: TopicSpec) -> TopicFound:
        """Makes the topic unless it is there; the contract of Transport.ensure_topics."""
        logs = self._topics.get(spec.name)
        created = logs is None
        if logs is None:
            logs = self._topics[spec.name] = [Log() for _ in range(spec.partitions)]
            self.changed[spec.name] = Waiters()
        return TopicFound(spec.name, len(logs), spec.partitions, created)

    def partition_count(self, topic: str) -> int:
        return len(self._logs(topic))

    def log(self, topic: str, partition: int) -> Log:
        """Raises UnknownTopic, also for a partition that is not there."""
        try:
            if partition >= 0:
                return self._topics[topic][partition]
        except (KeyError, IndexError):
            pass
        count = len(self._logs(topic))
        raise UnknownTopic(f"{topic} has {count} partitions, there is no {partition}")

    def append(
        self,
        topic: str,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
    ) -> int:
        """Writes one record now and gives its offset. Time comes from the running loop."""
        log = self.log(topic, partition)
        now_ms = int(asyncio.get_running_loop().time() * 1000)
        offset = log.end
        log.append(LogRecord(topic, partition, offset, key, value, headers, now_ms))
        self.changed[topic].wake(partition)
        return offset

    def records(self, topic: str, partition: int) -> Sequence[KafkaRecord]:
        """What lies in the log now, for checkers."""
        return tuple(self.log(topic, partition).records)

    # --- faults on demand

    def cut_log(self, topic: str, partition: int, log_start: int) -> None:
        """Retention: everything below `log_start` is gone."""
        self.log(topic, partition).cut_before(log_start)
        self.changed[topic].wake()

    def leave_gap(self, topic: str, partition: int, offsets: int = 1) -> None:
        """The next `offsets` offsets are never written, as after compaction or a marker."""
        self.log(topic, partition).end += offsets

    def rewind(self, group: str, partition: int, offset: int) -> None:
        """The group's committed offset goes back, as an expelled consumer's commit can do."""
        self.groups[group].committed[partition] = offset

    def rebalance(self, group: str, *, shuffle: bool = True) -> None:
        """A new generation; with `shuffle` the members also change places."""
        found = self.groups[group]
        if shuffle:
            self.random.shuffle(found.members)
        self._divide(found)

    def expel(self, group: str, member: object) -> None:
        """The group goes on without `member`, which is not told: it becomes a zombie.

        It stays one until `readmit`, or until its reader is closed.
        """
        found = self.groups[group]
        if member in found.members:
            found.members.remove(member)
            self._divide(found)

    def readmit(self, group: str, member: object) -> None:
        """An expelled member notices and joins again, at its next poll."""
        self.join(group, self.groups[group].topic, member)

    # --- groups

    def join(self, group: str, topic: str, member: object) -> Group:
        self._logs(topic)
        found = self.groups.setdefault(group, Group(topic))
        if found.topic != topic:
            raise ValueError(f"group {group} reads {found.topic}, not {topic}")
        if member not in found.members:
            found.members.append(member)
            self._divide(found)
        return found

    def leave(self, group: str, member: object) -> None:
        self.expel(group, member)

    def _divide(self, group: Group) -> None:
        """Range assignment, in the members' order: neighbours get neighbouring partitions."""
        group.generation += 1
        count, members = self.partition_count(group.topic), group.members
        group.shares = {
            member: frozenset(range(count * at // len(members), count * (at + 1) // len(members)))
            for at, member in enumerate(members)
        }
        self.changed[group.topic].wake()

    # --- chance

    def latency_s(self) -> float:
        """How long the next request takes, half of it before it is applied."""
        least, most = self.faults.latency_ms_min, self.faults.latency_ms_max
        return (least if least >= most else self.random.uniform(least, most)) / 1000

    def happens(self, chance: float) -> bool:
        """Draws from the seed only when there is a choice, so that faults off cost no numbers."""
        return chance > 0 and self.random.random() < chance

    def draw(self, chances: Iterable[tuple[str, float]]) -> str:
        """At most one of several exclusive faults: its name, or ""."""
        known = [(name, chance) for name, chance in chances if chance > 0]
        if not known:
            return ""
        at = self.random.random()
        for name, chance in known:
            if at < chance:
                return name
            at -= chance
        return ""

    def later(self, delay_s: float, action: Callable[[], None]) -> None:
        """Runs `action` even when the task that asked for it is gone: the network has it."""
        loop = asyncio.get_running_loop()
        if delay_s <= 0:
            loop.call_soon(action)
        else:
            loop.call_later(delay_s, action)

    def _logs(self, topic: str) -> list[Log]:
        logs = self._topics.get(topic)
        if logs is None:
            raise UnknownTopic(f"there is no topic {topic}")
        return logs


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
