"""What the core makes of one seed's records, as lines: the same ones, however it is run.

    python -m tests.compiled.core_run FIRST_SEED SEEDS

Raw values, some of them broken, go through decoder, routing and session machines. Whoever carries
out what these ask for answers at random moments, now and then badly. Prints a digest for each seed.
"""

import argparse
from collections import deque
from collections.abc import Iterator
from hashlib import sha256
from random import Random

from controller import events as ev
from controller import instructions as do
from controller.counters import Counters
from controller.fence import mint
from controller.instructions import Instruction
from controller.partition_feed import PartitionFeed, Route, Source
from controller.records import Decoder
from controller.session_core import SessionLimits
from controller.session_machine import SessionMachine
from controller.session_states import State
from controller.text_queue import QueueLimits
from ownership.model import Generation, Released, ReleaseItem
from schemas.ids import ulid
from schemas.options import LiveOptions
from schemas.store_values import Checkpoint, Cursor
from schemas.text_record import RecordKind, TextRecord, encode_text_record
from stream.transport import KafkaRecord, LogRecord

LIVES = ("anna", "berta", "čížek")
PARTS = (
    "Good morning",
    ", and welcome. ",
    "Is it 3.5 or 4? ",
    "Dr. Who",
    "\n- a list\n- of two\n",
    "… and then ",
    "これは文です。",
    "Nein! ",
    "e\u0301te\u0301 ",
    "word " * 60,
    "x" * 500,
    "   .",
)
LIMITS = SessionLimits(queue=QueueLimits(records_max=16, chars_max=2_000))
"""Little room, so that the log is read again."""
BATCHES = 12
BATCH = 40


class Carrier:
    """One live: its machine, and what is on its way to it."""

    def __init__(self, live_id: str, feed: PartitionFeed, rng: Random) -> None:
        self.live_id = live_id
        self.generation = Generation("one", 0)
        self.lines: list[str] = []
        self._feed = feed
        self._rng = rng
        self._coming: deque[ev.Event] = deque()
        self._cursor, self._checkpoint = Cursor(0), Checkpoint()
        self._now_ms = 0
        self.begin()

    def begin(self) -> None:
        """Under a later generation: whatever the machine before knew is gone."""
        self._feed.remove(self.live_id, self)
        self.generation = Generation("one", self.generation.epoch + 1)
        self.machine = SessionMachine(self.live_id, self.generation, LIMITS)
        self._coming.clear()
        self._coming.append(ev.Started(f"claim-{self.generation.epoch}"))

    @property
    def room(self) -> tuple[int, int]:
        queue = self.machine.queue
        return (0, 0) if queue is None else queue.room

    @property
    def roomy(self) -> bool:
        return self.machine.queue is not None and self.machine.queue.roomy

    @property
    def first_unreleased(self) -> int | None:
        return self.machine.first_unreleased

    def post(self, event: ev.Event) -> None:
        """Handles it, and notes what is asked."""
        if self.machine.state is State.GONE:
            return
        asked = self.machine.handle(event, self._now_ms)
        told = f"{event} -> {asked} {self.machine.state} {self.machine.deadline_ms}"
        self.lines.append(told)
        for one in asked:
            self._coming.extend(self._answers(one))

    def pass_time(self) -> None:
        """Some of what is on its way arrives."""
        self._now_ms += self._rng.randrange(400)
        for _ in range(self._rng.randrange(2 * len(self._coming) + 1)):
            if self._coming:
                self.post(self._coming.popleft())
        deadline_ms = self.machine.deadline_ms
        if deadline_ms is not None and deadline_ms <= self._now_ms:
            self.post(ev.TimeReached())
        if self._rng.random() < 0.03:
            self.begin()
        elif self._rng.random() < 0.02 and self.machine.state in (State.IDLE, State.SPEAKING):
            self._coming.clear()
            self.post(ev.StagesLost("a stage died"))

    def _answers(self, asked: Instruction) -> Iterator[ev.Event]:
        match asked:
            case do.Claim():
                yield ev.ClaimDone(LiveOptions(), self._cursor, self._checkpoint, 0)
            case do.ReadFrom(start, released_below, last_seq):
                self._feed.add(Route(self, start, released_below, last_seq))
            case do.StopReading():
                self._feed.remove(self.live_id, self)
            case do.Bind():
                full = self._rng.random() < 0.1
                yield ev.BindRefused("full", retryable=True) if full else ev.Bound(0, 1)
            case do.WantRelease():
                yield ev.ReleaseTurn()
            case do.RequestRelease():
                yield self._released(asked)
            case do.Feed(permit=permit, segment=segment):
                permit.unspent.discard(segment.segment_id)
                if self._rng.random() < 0.1:
                    yield ev.FeedRefused(segment.segment_id)
                else:
                    yield ev.TickSent(segment.segment_id, 480, last=False, muted=False)
                    yield ev.TickSent(segment.segment_id, 960, last=True, muted=False)
            case do.SendLetter(offset=offset):
                yield ev.LetterSent(offset)
            case do.CloseLive():
                yield ev.CloseDone()
            case do.ConfirmGone():
                yield ev.GoneConfirmed()
            case _:
                pass

    def _released(self, asked: do.RequestRelease) -> ev.Event:
        if self._rng.random() < 0.005:
            return ev.ReleaseStale(asked.release_id, Generation("two", 2))
        self._cursor = Cursor(asked.new_next_offset, asked.last_seq, asked.release_id)
        self._checkpoint = asked.checkpoint
        item = ReleaseItem(
            self.live_id,
            self.generation,
            asked.expected_next_offset,
            asked.new_next_offset,
            asked.release_id,
        )
        return ev.ReleaseDone(mint(Released(item), [one.segment_id for one in asked.segments]))


def _value(rng: Random, seq: int) -> bytes:
    """Of a record: nearly always a text, sometimes another kind, sometimes nothing readable."""
    drawn = rng.random()
    event_id = ulid(1_764_000_000_000 + seq, rng.randbytes(10))
    if drawn < 0.03:
        kind = rng.choice([RecordKind.INTERRUPT, RecordKind.END_TURN, RecordKind.END_TURN])
        return encode_text_record(TextRecord(kind, "", seq, event_id))
    if drawn < 0.035:
        return encode_text_record(TextRecord(RecordKind.CLOSE, "", seq, event_id))
    text = "".join(rng.choices(PARTS, k=rng.randrange(1, 4)))
    value = encode_text_record(
        TextRecord(RecordKind.TEXT, text, seq if drawn < 0.9 else None, event_id, seq)
    )
    if drawn > 0.97:
        at = rng.randrange(len(value))
        return value[:at] + rng.randbytes(rng.randrange(3)) + value[at + 1 :]
    return value


def lines_of(seed: int) -> list[str]:
    """Everything that happened under one seed."""
    rng = Random(seed)
    feed = PartitionFeed(0, Decoder(), Counters())
    feed.restart(Source.CUSTODY, 0)
    lives = [Carrier(live_id, feed, rng) for live_id in LIVES]
    log: list[KafkaRecord] = []
    said: list[str] = []
    for _ in range(BATCHES):
        for offset in range(len(log), len(log) + rng.randrange(BATCH)):
            key = rng.choice(LIVES).encode()
            seq = max(0, offset - rng.choice([0, 0, 0, 0, 3]))
            log.append(LogRecord("t", 0, offset, key, _value(rng, seq), (), offset))
        for live in lives:
            live.pass_time()
        said.append(str(len(feed.route(log[feed.position :]))))
        again = feed.read_again_from()
        if again is not None:
            feed.route_again(again, len(log), log[again:])
        lows = [one.low for one in feed.routes.values()]
        said.append(f"{feed.position} {feed.read_again_from()} {lows}")
    for _ in range(40):
        for live in lives:
            live.pass_time()
    return said + [line for live in lives for line in live.lines]


def digest(seed: int) -> str:
    """Of all lines of a seed."""
    return sha256("\n".join(lines_of(seed)).encode()).hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("first", type=int)
    parser.add_argument("seeds", type=int)
    asked = parser.parse_args()
    for seed in range(asked.first, asked.first + asked.seeds):
        print(seed, digest(seed))


if __name__ == "__main__":
    main()
