"""The loop of a stage process: gather by deadline, refuse, process, send; one thread, no queue.

    ring in -> pending per live -> batch of checked messages -> Stage.process -> ring out

Messages stay in their slots while they are pending, so a stage that falls behind, or that has no
room downstream, makes its producer wait: nothing is dropped on the way. Lives take turns in every
batch, so a live that floods delays the others by one message each. Right before `process` every
message is checked against the live table: authority is here, in one place for every stage.
"""

import select
import sys
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from gpu_stages.control import SegmentNotMade
from gpu_stages.header import Header, MessageKind
from gpu_stages.live_table import LiveRow, LiveTableReader
from gpu_stages.memory import quiet_bell
from gpu_stages.ring import RingConsumer, RingProducer, Taken
from gpu_stages.stage import Message, Part, Stage

TICK_US_MAX: Final = 10_000
TICK_US_MIN: Final = 1_000
IDLE_US_MAX: Final = 1_000_000
FAILED_CALLS_MAX: Final = 8
_REASON_CHARS_MAX: Final = 500


class StageKeepsFailing(RuntimeError):
    """Batch after batch failed: the process gives itself up, so that it is started anew."""


@dataclass(frozen=True, slots=True)
class Ends:
    """What the loop is connected to."""

    incoming: RingConsumer
    outgoing: RingProducer
    table: LiveTableReader
    bell_fd: int
    control_fd: int


def now_us() -> int:
    """CLOCK_MONOTONIC, the same for every process of this machine."""
    return time.monotonic_ns() // 1000


class RingOutbox:
    """The `Outbox` that a stage sends through."""

    def __init__(self, producer: RingProducer, not_made: Callable[[SegmentNotMade], None]) -> None:
        self._producer = producer
        self._not_made = not_made
        self.sent = 0

    def room(self) -> int:
        """How many messages can be sent now."""
        return self._producer.room()

    def send(self, header: Header, parts: Sequence[Part]) -> None:
        """Publish to the ring, or tell the controller of a segment that failed."""
        if header.kind is MessageKind.SEGMENT_FAILED:
            reason = bytes(cast(Any, parts[0])).decode(errors="replace") if parts else ""
            self._not_made(not_made(header, reason))
            return
        self._producer.publish(header, parts)
        self.sent += 1


def not_made(header: Header, reason: str) -> SegmentNotMade:
    """The control message for a segment that failed, its reason bounded."""
    return SegmentNotMade(
        header.live_slot, header.binding, header.segment_id, reason[:_REASON_CHARS_MAX]
    )


def _invalidate(taken: Taken) -> None:
    """Make a stage that kept a part notice at once, instead of reading the slot's next message."""
    for part in taken.parts:
        try:
            part.release()
        except BufferError:  # an array still looks at it: garbage soon, or the stage's own mistake
            continue


class StageLoop:
    """Runs one stage between its two rings until `stop`."""

    def __init__(
        self,
        stage: Stage,
        ends: Ends,
        on_control: Callable[[], None],
        report: Callable[[SegmentNotMade], None],
    ) -> None:
        """`on_control` is called whenever the control socket is readable; it does not block."""
        self.stage = stage
        self.wants_ticks = type(stage).on_tick is not Stage.on_tick
        self.stopped = False
        self.counts: Counter[str] = Counter()
        self._ends = ends
        self._on_control = on_control
        self._report = report
        self._out = RingOutbox(ends.outgoing, report)
        self._pending: dict[int, deque[Taken]] = {}
        self._turns: deque[int] = deque()
        self._waiting = 0
        self._first_us = 0
        self._bindings_seen = 0
        self._known = [0] * ends.table.rows
        self._ticked_us = 0
        self._tick_wanted = True
        self._failed_in_a_row = {"process": 0, "on_tick": 0}

    def run(self) -> None:
        """Until `stop`. Raises `StageKeepsFailing`."""
        while not self.stopped:
            self._wait()
            self._follow_bindings()
            self._gather()
            self._process_due()
            if self.wants_ticks:
                self._tick_due()

    def stop(self) -> None:
        """Leave the loop after the batch at hand."""
        self.stopped = True

    # -- waiting ---------------------------------------------------------------------------------

    def _wait(self) -> None:
        ends = self._ends
        watched = [ends.control_fd, ends.bell_fd, ends.incoming.data_fd()]
        timeout_us = self._until_work_us(now_us())
        if timeout_us is None:
            timeout_us = IDLE_US_MAX
            watched.append(ends.outgoing.space_fd())
        if self.wants_ticks:
            if self._out.room() == 0:
                watched.append(ends.outgoing.space_fd())
            gap_us = TICK_US_MIN if self._tick_wanted else TICK_US_MAX
            timeout_us = min(timeout_us, max(0, self._ticked_us + gap_us - now_us()))
        readable, _, _ = select.select(watched, (), (), timeout_us / 1e6)
        if ends.control_fd in readable:
            self._on_control()
        if ends.bell_fd in readable:
            quiet_bell(ends.bell_fd)
            self._tick_wanted = True
        if ends.incoming.data_fd() in readable:
            ends.incoming.quiet()
        if ends.outgoing.space_fd() in readable:
            ends.outgoing.quiet()
            self._tick_wanted = True

    def _until_work_us(self, at_us: int) -> int | None:
        """How long until a batch is due; None when one is, but there is no room downstream."""
        if not self._waiting:
            return IDLE_US_MAX
        due_us = self._first_us + self.stage.wait_us_max
        if self._waiting < self.stage.batch_max and at_us < due_us:
            return due_us - at_us
        return 0 if self._batch_limit() else None

    # -- authority -------------------------------------------------------------------------------

    def _follow_bindings(self) -> None:
        """Forget lives whose binding ended, also when no message of theirs comes any more."""
        bindings = self._ends.table.bindings()
        if bindings == self._bindings_seen:
            return
        self._bindings_seen = bindings
        for live_slot in range(len(self._known)):
            self._row(live_slot)

    def _row(self, live_slot: int) -> LiveRow:
        """The row as it is now; the stage has forgotten what was under an earlier binding."""
        row = self._ends.table.row(live_slot)
        known = self._known[live_slot]
        if row.binding != known:
            self._known[live_slot] = row.binding
            if known:
                self.stage.forget(live_slot)
        return row

    def _authority(self, header: Header) -> LiveRow | None:
        """The row that allows this message, or None, counted, when it has no authority."""
        if header.live_slot >= len(self._known):
            self.counts["refused_binding"] += 1
            return None
        row = self._row(header.live_slot)
        if header.binding != row.binding:
            self.counts["refused_binding"] += 1
            return None
        if header.epoch < row.epoch:
            self.counts["refused_epoch"] += 1
            return None
        return row

    # -- batches ---------------------------------------------------------------------------------

    def _gather(self) -> None:
        """Take every published slot in hand, by live."""
        while (taken := self._ends.incoming.take()) is not None:
            live_slot = taken.header.live_slot
            queue = self._pending.get(live_slot)
            if queue is None:
                queue = self._pending[live_slot] = deque()
            if not queue:
                self._turns.append(live_slot)
            queue.append(taken)
            if not self._waiting:
                self._first_us = now_us()
            self._waiting += 1

    def _batch_limit(self) -> int:
        each = self.stage.outputs_per_message_max
        return min(self.stage.batch_max, self._out.room() // each) if each else self.stage.batch_max

    def _process_due(self) -> None:
        while self._waiting and not self.stopped and self._until_work_us(now_us()) == 0:
            self._process(*self._pick(self._batch_limit()))
            self._gather()
            if self._ends_want_attention():
                return

    def _ends_want_attention(self) -> bool:
        """Ticks and the control socket get their turn between two batches."""
        return self.wants_ticks or bool(select.select([self._ends.control_fd], (), (), 0)[0])

    def _pick(self, limit: int) -> tuple[list[Taken], list[LiveRow]]:
        """Up to `limit` messages with authority, lives in turns; the others are let go."""
        batch: list[Taken] = []
        rows: list[LiveRow] = []
        while self._turns and len(batch) < limit:
            live_slot = self._turns.popleft()
            queue = self._pending[live_slot]
            taken = queue.popleft()
            self._waiting -= 1
            if queue:
                self._turns.append(live_slot)
            else:
                del self._pending[live_slot]
            if not self._ends.incoming.holds(taken):
                self.counts["dropped_by_reset"] += 1
                continue
            row = self._authority(taken.header)
            if row is None:
                self._ends.incoming.release(taken)
                continue
            batch.append(taken)
            rows.append(row)
        self._first_us = 0  # whoever is left has waited for a whole batch already
        return batch, rows

    def _process(self, batch: list[Taken], rows: list[LiveRow]) -> None:
        if not batch:
            return
        started_us = now_us()
        try:
            self.stage.process(
                [Message(t.header, t.parts, t.on_device) for t in batch], rows, self._out
            )
        except Exception as error:
            self._failed(batch, error)
        else:
            self._failed_in_a_row["process"] = 0
        finally:
            for taken in batch:
                _invalidate(taken)
                self._ends.incoming.release(taken)
        spent_us = now_us() - started_us
        self.counts["batches"] += 1
        self.counts["messages"] += len(batch)
        self.counts["process_us"] += spent_us
        self.counts["process_us_max"] = max(self.counts["process_us_max"], spent_us)

    def _failed(self, batch: Sequence[Taken], error: Exception) -> None:
        """Tell the controller which segments are hit; give up when it never works."""
        traceback.print_exc(file=sys.stderr)
        reason = f"{self.stage.name}: {type(error).__name__}: {error}"
        hit = {(t.header.live_slot, t.header.segment_id): t.header for t in batch}
        for header in hit.values():
            if header.segment_id:
                self._report(not_made(header, reason))
        self._count_failure("process", reason)

    def _count_failure(self, method: str, reason: str) -> None:
        self.counts[f"failed_{method}"] += 1
        self._failed_in_a_row[method] += 1
        if self._failed_in_a_row[method] >= FAILED_CALLS_MAX:
            raise StageKeepsFailing(
                f"{method} failed {self._failed_in_a_row[method]} times in a row, last: {reason}"
            )

    # -- ticks -----------------------------------------------------------------------------------

    def _tick_due(self) -> None:
        at_us = now_us()
        gap_us = TICK_US_MIN if self._tick_wanted else TICK_US_MAX
        if at_us - self._ticked_us < gap_us:
            return
        self._tick_wanted = False
        self._ticked_us = at_us
        rows = [row for row in map(self._row, range(len(self._known))) if row.binding]
        try:
            self.stage.on_tick(rows, at_us, self._out)
        except Exception as error:
            traceback.print_exc(file=sys.stderr)
            self._count_failure("on_tick", f"{self.stage.name}: {type(error).__name__}: {error}")
        else:
            self._failed_in_a_row["on_tick"] = 0

    # -- figures ---------------------------------------------------------------------------------

    def stats(self) -> dict[str, float]:
        """Counters of the loop, and the stage's own figures under their names."""
        figures: dict[str, float] = {
            **self.counts,
            "sent": self._out.sent,
            "pending": self._waiting,
            "room": self._out.room(),
        }
        figures.update({f"stage_{name}": value for name, value in self.stage.stats().items()})
        return figures

    def dump(self) -> dict[str, object]:
        """The whole state, for people."""
        return {
            "stage": self.stage.name,
            "stats": self.stats(),
            "pending": {str(slot): len(queue) for slot, queue in self._pending.items()},
            "bindings": {str(s): binding for s, binding in enumerate(self._known) if binding},
            "failed_in_a_row": self._failed_in_a_row,
            "ticked_ago_us": now_us() - self._ticked_us if self.wants_ticks else None,
        }
