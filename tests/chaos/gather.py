"""One history from what was written in many places: the journal of commits, diaries, topics.

Commits stand in the order in which the store gave them. Everything else is put among them by its
time on CLOCK_MONOTONIC, which all processes of the machine share. A commit counts from when its
transaction ran, or from when the commit before it counts, if that is later; that moment is never
before its process asked for it and never after anybody can have seen it.
"""

import asyncio
import pickle
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from ownership.kv import Database, StoreAway, Transaction
from ownership.workers import node_holder
from schemas.topics import DEAD_LETTER_TOPIC, TEXT_TOPIC
from tests.chaos.diary import read
from tests.chaos.journal import ENTRIES, ENTRIES_END, PROBE, WATCHED, JournalEntry
from tests.sim import history as h
from tests.sim.recorder import Recorder

_PAGE = 500


class Journal:
    """Reads the entries of the journal as they come, and takes them out of the store."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._reading = asyncio.Lock()
        self._after = ENTRIES
        self.entries: list[JournalEntry] = []

    async def catch_up(self) -> None:
        """Everything that was committed before this call is in `entries`, in commit order, each
        once, whoever else reads and wherever a reader is cancelled."""
        async with self._reading:
            while page := await self._db.read(
                lambda tr: tr.get_range(self._after, ENTRIES_END, limit=_PAGE)
            ):
                self.entries += [pickle.loads(raw) for _, raw in page]
                self._after = end = page[-1][0] + b"\x00"

                def forget(tr: Transaction, end: bytes = end) -> None:
                    tr.clear_range(ENTRIES, end)

                await self._db.run(forget)

    async def writable(self, within_s: float) -> bool:
        """Whether a write to the store goes through now."""
        try:
            async with asyncio.timeout(within_s):
                await self._db.run(lambda tr: tr.set(PROBE, b""))
        except (StoreAway, TimeoutError):
            return False
        return True

    async def holder_url(self, node: str) -> str:
        """Of the worker that has the node's name now; "" when none lives there, or the store does
        not answer."""
        try:
            holder = await node_holder(self._db, node)
        except StoreAway:
            return ""
        return "" if holder is None else holder[0].url


def missed(entries: Iterable[JournalEntry], store: Mapping[bytes, bytes]) -> list[bytes]:
    """Watched keys whose value in the store is not the one that the journal ends with."""
    told: dict[bytes, bytes | None] = {}
    for _, _, changes in entries:
        told.update(changes)
    there = {key: raw for key, raw in store.items() if key.startswith(WATCHED)}
    return [key for key in told.keys() | there.keys() if told.get(key) != there.get(key)]


def timed(entries: Iterable[JournalEntry]) -> Iterator[tuple[int, JournalEntry]]:
    """Commits with times that never go back."""
    reached_ns = 0
    for entry in entries:
        reached_ns = max(reached_ns, entry[1])
        yield reached_ns, entry


class Topics:
    """What lies in the text and dead-letter topics, read by a client that is not ours."""

    def __init__(self, bootstrap: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "chaos.reads.only",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "log_level": 0,
            }
        )
        self._next: dict[tuple[str, int], int] = {}
        self.records: list[tuple[str, int, int, bytes | None, bytes | None]] = []

    def catch_up(self, timeout_s: float = 60.0) -> None:
        """Everything that was in the logs when this was called is in `records`. Blocks."""
        listed = self._consumer.list_topics(timeout=timeout_s).topics
        ends: dict[tuple[str, int], int] = {}
        for topic in (TEXT_TOPIC, DEAD_LETTER_TOPIC):
            for partition in listed[topic].partitions:
                place = TopicPartition(topic, partition)
                _, end = self._consumer.get_watermark_offsets(place, timeout=timeout_s)
                if end > self._next.get((topic, partition), 0):
                    ends[topic, partition] = end
        self._consumer.assign([TopicPartition(*place, self._next.get(place, 0)) for place in ends])
        while any(self._next.get(place, 0) < end for place, end in ends.items()):
            found = self._consumer.consume(1_000, timeout=5.0)
            for message in found:
                if message.error():
                    raise KafkaException(message.error())
                topic, partition = str(message.topic()), int(message.partition() or 0)
                offset = int(message.offset() or 0)
                self._next[topic, partition] = offset + 1
                key: Any = message.key()
                value: Any = message.value()
                self.records.append((topic, partition, offset, key, value))
        self._consumer.unassign()

    def close(self) -> None:
        self._consumer.close()


def tell(recorder: Recorder, topics: Topics, done: int) -> int:
    """Note the records from the `done`th on; returns how many are noted now."""
    for topic, partition, offset, key, value in topics.records[done:]:
        if topic == TEXT_TOPIC:
            recorder.produced(partition, offset, key, value)
        else:
            recorder.letter(value)
    return len(topics.records)


def history(
    entries: Iterable[JournalEntry], diaries: Iterable[Path], topics: Topics
) -> tuple[h.History, Recorder]:
    """Everything in one order. The topics' records come first: the checkers look them up."""
    clock = SimpleNamespace(now_s=0.0)
    recorder = Recorder(clock)  # type: ignore[arg-type]
    tell(recorder, topics, 0)
    seen = [(at, 0, one) for path in diaries for at, one in read(path)]
    commits = [(at, 1, one) for at, one in timed(entries)]
    version = 0
    for at_ns, is_commit, one in sorted([*seen, *commits], key=lambda each: each[0]):
        clock.now_s = at_ns / 1e9
        if is_commit:
            version += 1
            process, _, changes = one
            recorder.committer = process
            recorder.commit(version, dict(changes))
        else:
            recorder.note(one)
    return recorder.history, recorder
