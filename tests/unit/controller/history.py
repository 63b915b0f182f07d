"""A log, a store, stages and owners of one live, driven step by step, and an independent account of
what became of every record and every character."""

from collections import deque
from dataclasses import dataclass, field

from controller import events as ev
from controller import instructions as do
from controller.counters import Counters
from controller.fence import mint, spend
from controller.partition_feed import PartitionFeed, Route, Source
from controller.records import Decoder
from controller.segmenter import SegmenterLimits
from controller.session_core import SessionLimits
from controller.session_machine import SessionMachine
from controller.session_states import State
from controller.text_queue import QueueLimits
from ownership.model import Released, ReleaseItem
from schemas.options import LiveOptions
from schemas.store_values import Checkpoint, Cursor, Generation, SegmentBounds
from schemas.text_record import RecordKind, TextRecord, encode_text_record
from stream.transport import KafkaRecord, LogRecord

LIMITS = SessionLimits(
    queue=QueueLimits(records_max=6, chars_max=120, cuts_per_step_max=4, records_per_step_max=8),
    segmenter=SegmenterLimits(),
)


@dataclass
class Store:
    """What is committed, and the account of it."""

    cursor: Cursor = field(default_factory=lambda: Cursor(0))
    checkpoint: Checkpoint | None = None
    epoch: int = 1
    disposed: dict[int, str] = field(default_factory=dict)
    spoken: set[tuple[int, int]] = field(default_factory=set)
    bounds: set[SegmentBounds] = field(default_factory=set)
    skips: list[tuple[int, int, frozenset[tuple[int, int]]]] = field(default_factory=list)


class Owner:
    """One owner: its machine, its reading, its ring. Implements `LiveInput`."""

    def __init__(self, history: "History", epoch: int) -> None:
        self.live_id = "anna"
        self.history = history
        self.generation = Generation(f"worker-{epoch}", epoch)
        self.machine = SessionMachine("anna", self.generation, LIMITS)
        self.feed = PartitionFeed(0, Decoder(), Counters())
        self.wants = False
        self.asked: deque[do.RequestRelease] = deque()
        self.letters: list[int] = []
        self.ring: deque[do.SpokenSegment] = deque()
        self.emitted: dict[int, int] = {}
        self.utterance = 0
        self.hand_over: do.HandOver | None = None
        self.frozen = False
        self.fed_now: set[int] = set()
        self.claimed: Checkpoint | None = None
        self._inbox: deque[ev.Event] = deque()
        self._busy = False

    @property
    def room(self) -> tuple[int, int]:
        queue = self.machine.queue
        return (0, 0) if queue is None else queue.room

    @property
    def roomy(self) -> bool:
        return min(self.room) > 0

    @property
    def first_unreleased(self) -> int | None:
        return self.machine.first_unreleased

    def post(self, event: ev.Event) -> None:
        self._inbox.append(event)
        if self._busy:
            return
        self._busy = True
        try:
            while self._inbox:
                for order in self.machine.handle(self._inbox.popleft(), self.history.now_ms):
                    self.carry_out(order)
        finally:
            self._busy = False

    def carry_out(self, order: do.Instruction) -> None:
        history = self.history
        match order:
            case do.Claim():
                store = history.store
                self.claimed = store.checkpoint
                claim = ev.ClaimDone(LiveOptions(), store.cursor, store.checkpoint, 0)
                self._inbox.append(claim)
            case do.ReadFrom(start, below, seq):
                self.feed.add(Route(self, start, below, seq))
            case do.StopReading():
                self.feed.remove("anna", self)
            case do.Bind(utterance=utterance):
                self.ring.clear()
                self.fed_now.clear()
                self.utterance = utterance
                self._inbox.append(ev.Bound(0, 1))
            case do.Unbind():
                self.ring.clear()
            case do.SendLetter(offset):
                assert offset not in self.letters
                self.letters.append(offset)
            case do.WantRelease():
                assert not self.wants, "one turn at a time"
                self.wants = True
            case do.RequestRelease():
                assert not self.asked, "one release at a time"
                assert order.expected_next_offset == history.store.cursor.next_offset
                self.asked.append(order)
            case do.Feed(permit, segment):
                spend(permit, "anna", self.generation, segment.segment_id)
                if history.ring_full:
                    self._inbox.append(ev.FeedRefused(segment.segment_id))
                    return
                assert segment.segment_id not in self.fed_now, "once per binding"
                assert segment.skip_samples == self._sent_before(segment)
                text = history.texts.setdefault(segment.segment_id, segment.text)
                assert segment.text == text, "the same on every owner"
                self.fed_now.add(segment.segment_id)
                self.ring.append(segment)
            case do.Silence(utterance):
                assert utterance > self.utterance
                self.utterance = utterance
                self.ring.clear()
            case do.Freeze():
                self.frozen = True
            case do.Thaw():
                self.frozen = False
            case do.HandOver():
                self.hand_over = order
            case _:
                pass

    def _sent_before(self, segment: do.SpokenSegment) -> int:
        """How much of a segment was sent, as far as this owner can know."""
        if segment.segment_id in self.emitted:
            return self.emitted[segment.segment_id]
        if self.claimed is None or self.claimed.segments[:1] != (segment.bounds,):
            return 0
        return self.claimed.samples_emitted


class History:
    """One live from its first record to quiet."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.log: list[KafkaRecord] = []
        self.accepted: dict[int, str] = {}
        self.kinds: dict[int, str] = {}
        self.seq = 0
        self.store = Store()
        self.ring_full = False
        self.lettered: dict[int, int] = {}
        self.texts: dict[int, str] = {}
        self.owner = Owner(self, 1)
        self.begin()

    def begin(self) -> None:
        self.owner.feed.restart(Source.OWN, self.store.cursor.next_offset)
        self.owner.post(ev.Started(f"claim-{self.owner.generation.epoch}"))

    # -- the producer

    def put(self, kind: str, record: TextRecord | None) -> None:
        value = b"?" if record is None else encode_text_record(record)
        offset = 2 * len(self.log)
        self.log.append(LogRecord("t", 0, offset, b"anna", value, (), 0))
        # A record of somebody else lies between: offsets of one live have gaps.
        self.kinds[offset] = kind
        if kind == "text" and record is not None:
            self.accepted[offset] = record.text

    def push(self, text: str, numbered: bool) -> None:
        self.seq += numbered
        self.put("text", TextRecord(RecordKind.TEXT, text, self.seq if numbered else None))

    def push_again(self, text: str) -> None:
        if self.seq:
            self.put("bad", TextRecord(RecordKind.TEXT, text, self.seq))

    # -- the readers

    def read(self, count: int) -> None:
        feed = self.owner.feed
        records = [raw for raw in self.log if raw.offset >= feed.position][:count]
        if records and feed.routes:
            feed.route(records)

    def read_again(self, count: int) -> bool:
        feed = self.owner.feed
        at = feed.read_again_from()
        if at is None:
            return False
        records = [raw for raw in self.log if raw.offset >= at][:count]
        upto = records[-1].offset + 1 if records else max(at, feed.position)
        feed.route_again(at, upto, records)
        return True

    # -- the store

    def turn(self) -> bool:
        """A commit is about to begin."""
        owner = self.owner
        if not owner.wants or owner.asked:
            return False
        owner.wants = False
        owner.post(ev.ReleaseTurn())
        return True

    def commit(self) -> do.RequestRelease | None:
        """Apply the request under way, without telling."""
        owner, store = self.owner, self.store
        self.turn()
        if not owner.asked:
            return None
        request = owner.asked[0]
        before, after = request.expected_next_offset, request.new_next_offset
        assert store.cursor.next_offset == before <= after
        new = [b for b in request.checkpoint.segments if b not in store.bounds]
        for bounds in new:
            if bounds.start_offset == bounds.end_offset and bounds.end_char == 0:
                continue
            self._speak(bounds)
        store.bounds.update(new)
        if request.skipped is not None:
            assert request.skipped == (before, after - 1)
            store.skips.append((*request.skipped, frozenset(store.spoken)))
        for offset in range(before, after):
            self._dispose(offset, request.skipped)
        seq = store.cursor.last_seq if request.last_seq is None else request.last_seq
        store.cursor = Cursor(after, seq, request.release_id)
        store.checkpoint = request.checkpoint
        return request

    def _speak(self, bounds: SegmentBounds) -> None:
        for offset, text in self.accepted.items():
            if not bounds.start_offset <= offset <= bounds.end_offset:
                continue
            begin = bounds.start_char if offset == bounds.start_offset else 0
            end = bounds.end_char if offset == bounds.end_offset else len(text)
            for char in range(begin, end):
                assert (offset, char) not in self.store.spoken, "no character twice"
                self.store.spoken.add((offset, char))

    def _dispose(self, offset: int, skipped: tuple[int, int] | None) -> None:
        if offset not in self.kinds:
            return
        assert offset not in self.store.disposed, "no record twice"
        kind = self.kinds[offset]
        if skipped is not None and skipped[0] <= offset < skipped[1]:
            self.store.disposed[offset] = "skipped"
            return
        if kind == "bad":
            assert offset in self.lettered, "its dead letter first"
        self.store.disposed[offset] = kind

    def answer(self) -> bool:
        request = self.commit()
        if request is None:
            return False
        self.owner.asked.popleft()
        item = ReleaseItem(
            "anna",
            self.owner.generation,
            request.expected_next_offset,
            request.new_next_offset,
            request.release_id,
        )
        permit = mint(Released(item), [one.segment_id for one in request.segments])
        self.owner.post(ev.ReleaseDone(permit))
        return True

    def acknowledge(self) -> bool:
        if not self.owner.letters:
            return False
        offset = self.owner.letters.pop(0)
        self.lettered[offset] = self.lettered.get(offset, 0) + 1
        self.owner.post(ev.LetterSent(offset))
        return True

    # -- the stages

    def tick(self, last: bool) -> bool:
        owner = self.owner
        if not owner.ring or owner.frozen:
            return False
        segment = owner.ring[0]
        at = owner.emitted.get(segment.segment_id, segment.skip_samples) + 960
        owner.emitted[segment.segment_id] = at
        owner.machine.next_frame += 1
        if last:
            owner.ring.popleft()
        owner.post(ev.TickSent(segment.segment_id, at, last=last, muted=False))
        return True

    def lose_stage(self) -> None:
        self.owner.ring.clear()
        self.owner.post(ev.StagesLost("render"))

    def pass_time(self, by_ms: int) -> bool:
        self.now_ms += by_ms
        deadline_ms = self.owner.machine.deadline_ms
        if deadline_ms is None or deadline_ms > self.now_ms:
            return False
        self.owner.post(ev.TimeReached())
        return True

    # -- owners

    def crash(self, applied: bool) -> None:
        if applied:
            self.commit()
        self._succeed()

    def _succeed(self) -> None:
        self.store.epoch += 1
        self.owner = Owner(self, self.store.epoch)
        self.begin()

    def move(self, taken: bool) -> None:
        owner = self.owner
        if owner.machine.state in (State.IDLE, State.SPEAKING):
            owner.post(ev.HandOverAsked("next", None))
        order = owner.hand_over
        if order is None:
            return
        owner.hand_over = None
        if not taken:
            owner.post(ev.HandOverRefused("NoFreeSlot", lost=False))
            return
        self.store.checkpoint = order.checkpoint
        owner.post(ev.HandOverDone(Generation("next", self.store.epoch + 1)))
        self._succeed()

    # -- the end

    def settle(self) -> None:
        """Everything goes well until nothing happens any more."""
        self.ring_full = False
        for _ in range(20_000):
            if self.owner.machine.state is State.DRAINING:
                self.move(taken=False)
            busy = self.turn() or self.answer() or self.acknowledge() or self.tick(last=True)
            if busy:
                continue
            position = self.owner.feed.position
            self.read(3)
            if self.owner.feed.position != position or self.read_again(4):
                continue
            if self.pass_time(1_000) or self.owner.machine.deadline_ms is not None:
                continue
            return
        raise AssertionError(f"it never comes to rest\n{self.owner.machine.story.lines()}")

    def check(self) -> None:
        """Every record and every character has one end."""
        end = 2 * (len(self.log) - 1) + 1 if self.log else 0
        assert self.store.cursor.next_offset == end
        assert self.store.disposed.keys() == self.kinds.keys()
        for offset, text in self.accepted.items():
            unsaid = [char for char in range(len(text)) if (offset, char) not in self.store.spoken]
            if not any(text[char].isalnum() for char in unsaid):
                continue
            cut_off = any(offset < to for _, to, _ in self.store.skips)
            assert cut_off, f"{text!r} at {offset} was never said"
        bad = {offset for offset, kind in self.kinds.items() if kind == "bad"}
        said_bad = {offset for offset in bad if self.store.disposed[offset] != "skipped"}
        assert said_bad <= self.lettered.keys() <= bad
