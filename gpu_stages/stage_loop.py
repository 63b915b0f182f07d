"""The loop of a stage process: gather by deadline, refuse, process, send; one thread, no queue.

    ring in -> pending per live -> batch of checked messages -> Stage.process -> ring out

Messages stay in their slots while they are pending, so a stage that falls behind, or that has no
room downstream, makes its producer wait: nothing is dropped on the way. Lives take turns in every
batch, so a live that floods delays the others by one message each. Right before `process` every
message is checked against the live table (`authority`), in one place for every stage.

A batch is due when it is full or when its oldest message has waited `wait_us_max`; a stage that is
then idle takes it at once. So a message waits at most `wait_us_max` and the batches before its own.
A batch that raises is tried again in parts (see `poison`), so that only the culprit's lives fail.
"""

import select
import sys
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gpu_stages.authority import Authority
from gpu_stages.control import SegmentNotMade
from gpu_stages.header import Header
from gpu_stages.live_table import LiveRow, LiveTableReader
from gpu_stages.loop_figures import LoopFigures
from gpu_stages.memory import quiet_bell
from gpu_stages.outbox import RingOutbox, not_made
from gpu_stages.poison import is_out_of_memory, parts_to_retry
from gpu_stages.ring import RingConsumer, RingProducer, Taken
from gpu_stages.stage import Message, Stage

TICK_US_MAX: Final = 10_000
TICK_US_MIN: Final = 1_000
IDLE_US_MAX: Final = 1_000_000
FAILED_CALLS_MAX: Final = 8
LOG_AGAIN_CALLS: Final = 1024
ROOM_AGAIN_BATCHES: Final = 256
"""After so many batches without one, a stage that ran out of memory is given one message more."""


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


Wait = Callable[[Sequence[int], float], Sequence[int]]
"""Which of these descriptors are readable, waiting at most so many seconds for one."""


def wait_readable(watched: Sequence[int], timeout_s: float) -> Sequence[int]:
    """The real one."""
    return select.select(watched, (), (), timeout_s)[0]


@dataclass(frozen=True, slots=True)
class _Pending:
    """A slot in hand, and when it was gathered."""

    taken: Taken
    came_us: int


@dataclass(frozen=True, slots=True)
class _Checked:
    """A slot of a batch, and the row that it was checked against."""

    taken: Taken
    row: LiveRow

    @property
    def header(self) -> Header:
        return self.taken.header


def _invalidate(taken: Taken) -> None:
    """Make a stage that kept a part notice at once, instead of reading the slot's next message."""
    for part in filter(len, taken.parts):
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
        *,
        clock: Callable[[], int] = now_us,
        wait: Wait = wait_readable,
    ) -> None:
        """`on_control` is called whenever the control socket is readable; it does not block.

        `clock` (microseconds) and `wait` are the only sources of time.
        """
        self.stage = stage
        self.wants_ticks = type(stage).on_tick is not Stage.on_tick
        self.stopped = False
        self.counts: Counter[str] = Counter()
        self._ends = ends
        self._on_control = on_control
        self._report = report
        self._out = RingOutbox(ends.outgoing, report)
        self._clock = clock
        self._wait_readable = wait
        self._figures = LoopFigures()
        self._fits: int | None = None  # messages at once that the memory held, after it did not
        self._good_batches = 0
        self._told = ""
        self._pending: dict[int, deque[_Pending]] = {}
        self._turns: deque[int] = deque()
        self._waiting = 0
        self._first_us = 0
        self._rung = False
        self._authority = Authority(ends.table, stage.forget, self.counts)
        self._ticked_us = 0
        self._tick_wanted = True
        self._failed_in_a_row = {"process": 0, "on_tick": 0}

    def run(self) -> None:
        """Until `stop`. Raises `StageKeepsFailing`."""
        while not self.stopped:
            self._wait()
            self._authority.follow_bindings()
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
        timeout_us = self._until_work_us(self._clock())
        if timeout_us is None:
            timeout_us = IDLE_US_MAX
            watched.append(ends.outgoing.space_fd())
        if self.wants_ticks:
            if self._out.room() == 0:
                watched.append(ends.outgoing.space_fd())
            gap_us = TICK_US_MIN if self._tick_wanted else TICK_US_MAX
            timeout_us = min(timeout_us, max(0, self._ticked_us + gap_us - self._clock()))
        readable = self._wait_readable(watched, timeout_us / 1e6)
        if ends.control_fd in readable:
            self._on_control()
        if ends.bell_fd in readable:
            quiet_bell(ends.bell_fd)
            self._tick_wanted = True
        if ends.incoming.data_fd() in readable:
            self._rung = True
        if ends.outgoing.space_fd() in readable:
            ends.outgoing.quiet()
            self._tick_wanted = True

    def _until_work_us(self, at_us: int) -> int | None:
        """How long until a batch is due; None when one is, but there is no room downstream."""
        if not self._waiting:
            return IDLE_US_MAX
        due_us = self._first_us + self.stage.wait_us_max
        if self._waiting < self._batch_max() and at_us < due_us:
            return due_us - at_us
        return 0 if self._batch_limit() else None

    # -- batches ---------------------------------------------------------------------------------

    def _gather(self) -> None:
        """Take every published slot in hand, by live."""
        while (taken := self._next_taken()) is not None:
            live_slot = taken.header.live_slot
            queue = self._pending.get(live_slot)
            if queue is None:
                queue = self._pending[live_slot] = deque()
            if not queue:
                self._turns.append(live_slot)
            at_us = self._clock()
            queue.append(_Pending(taken, at_us))
            if not self._waiting:
                self._first_us = at_us
            self._waiting += 1
            self._figures.queued(self._waiting, at_us)

    def _next_taken(self) -> Taken | None:
        """The next published slot. The bell is quieted where none is left, before one last look:
        nothing is missed, and no message waits for the call."""
        incoming = self._ends.incoming
        taken = incoming.take()
        if taken is None and self._rung:
            self._rung = False
            incoming.quiet()
            taken = incoming.take()
        return taken

    def _batch_max(self) -> int:
        return min(self.stage.batch_max, self._fits or self.stage.batch_max)

    def _batch_limit(self) -> int:
        each = self.stage.outputs_per_message_max
        return min(self._batch_max(), self._out.room() // each) if each else self._batch_max()

    def _process_due(self) -> None:
        while self._waiting and not self.stopped and self._until_work_us(self._clock()) == 0:
            self._process(self._pick(self._batch_limit()))
            self._gather()
            if self._ends_want_attention():
                return

    def _ends_want_attention(self) -> bool:
        """Ticks and the control socket get their turn between two batches."""
        return self.wants_ticks or bool(self._wait_readable([self._ends.control_fd], 0))

    def _pick(self, limit: int) -> list[_Checked]:
        """Up to `limit` messages with authority, lives in turns; the others are let go."""
        batch: list[_Checked] = []
        at_us = self._clock()
        while self._turns and len(batch) < limit:
            live_slot = self._turns.popleft()
            queue = self._pending[live_slot]
            pending = queue.popleft()
            taken = pending.taken
            self._waiting -= 1
            if queue:
                self._turns.append(live_slot)
            else:
                del self._pending[live_slot]
            if not self._ends.incoming.holds(taken):
                self.counts["dropped_by_reset"] += 1
                continue
            row = self._authority.row_for(taken.header)
            if row is None:
                self._ends.incoming.release(taken)
                continue
            batch.append(_Checked(taken, row))
            self._figures.began(at_us - pending.came_us - self.stage.wait_us_max, at_us)
        self._first_us = 0  # whoever is left has waited for a whole batch already
        return batch

    def _process(self, batch: list[_Checked]) -> None:
        if not batch:
            return
        started_us = self._clock()
        self._out.start_batch()
        try:
            self._call_in_parts(batch)
        finally:
            for each in batch:
                _invalidate(each.taken)
                self._ends.incoming.release(each.taken)
        ended_us = self._clock()
        spent_us = ended_us - started_us
        self.counts["batches"] += 1
        self.counts["messages"] += len(batch)
        self.counts["process_us"] += spent_us
        self.counts["process_us_max"] = max(self.counts["process_us_max"], spent_us)
        self._figures.processed(len(batch), spent_us, ended_us)

    def _call_in_parts(self, batch: list[_Checked]) -> None:
        """The batch at once; what is left of it in parts while parts of it raise."""
        reason = ""
        worked = False
        todo = deque([batch])
        while todo:
            part = todo.popleft()
            error = self._call(part)
            if error is None:
                worked = True
                continue
            reason = f"{self.stage.name}: {type(error).__name__}: {error}"
            out_of_memory = is_out_of_memory(error)
            if out_of_memory:
                self._make_room(len(part), error)
            again = parts_to_retry(
                part,
                self._out.answered,
                out_of_memory=out_of_memory,
                repeatable=self._repeatable(),
            )
            if again:
                self.counts["batches_parted"] += 1
                todo.extendleft(reversed(again))
            else:
                self._report_failed(part, reason)
        if reason and not worked:
            self._count_failure("process", reason)
            return
        self._failed_in_a_row["process"] = 0
        self._good_batches += 1
        if self._fits is not None and self._good_batches % ROOM_AGAIN_BATCHES == 0:
            self._fits = self._fits + 1 if self._fits + 1 < self.stage.batch_max else None

    def _call(self, part: list[_Checked]) -> Exception | None:
        """`process` with these messages; what it raised, which is in the log then."""
        messages = [Message(c.taken.header, c.taken.parts, c.taken.on_device) for c in part]
        try:
            self.stage.process(messages, [c.row for c in part], self._out)
        except Exception as error:
            self._log(error)
            return error
        return None

    def _log(self, error: Exception) -> None:
        """With its trace, unless the log holds that one already: a live may fail with each tick."""
        told = repr(error)
        if told != self._told or self.counts["raised"] % LOG_AGAIN_CALLS == 0:
            traceback.print_exception(error, file=sys.stderr)
        self._told = told
        self.counts["raised"] += 1

    def _repeatable(self) -> bool:
        said = self.stage.repeatable
        return not self.wants_ticks if said is None else said

    def _make_room(self, messages: int, error: Exception) -> None:
        """Ask for less at once from now on, and give back what the failed call still holds."""
        self.counts["out_of_memory"] += 1
        self._fits = max(1, messages // 2)
        self._good_batches = 0
        traceback.clear_frames(error.__traceback__)
        torch: Any = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_available():
            torch.cuda.empty_cache()

    def _report_failed(self, part: Sequence[_Checked], reason: str) -> None:
        """Tell the controller which segments are hit; idle ticks belong to none."""
        left = [each.header for each in part if not self._out.answered(each.header)]
        self.counts["messages_failed"] += len(left)
        hit = {(header.live_slot, header.segment_id): header for header in left}
        for header in hit.values():
            if header.segment_id:
                self._report(not_made(header, reason))

    def _count_failure(self, method: str, reason: str) -> None:
        self.counts[f"failed_{method}"] += 1
        self._failed_in_a_row[method] += 1
        if self._failed_in_a_row[method] >= FAILED_CALLS_MAX:
            raise StageKeepsFailing(
                f"{method} failed {self._failed_in_a_row[method]} times in a row, last: {reason}"
            )

    # -- ticks -----------------------------------------------------------------------------------

    def _tick_due(self) -> None:
        at_us = self._clock()
        gap_us = TICK_US_MIN if self._tick_wanted else TICK_US_MAX
        if at_us - self._ticked_us < gap_us:
            return
        self._tick_wanted = False
        self._ticked_us = at_us
        rows = self._authority.bound_rows()
        try:
            self.stage.on_tick(rows, at_us, self._out)
        except Exception as error:
            self._log(error)
            self._count_failure("on_tick", f"{self.stage.name}: {type(error).__name__}: {error}")
        else:
            self._failed_in_a_row["on_tick"] = 0
        self.counts["tick_us"] += self._clock() - at_us

    # -- figures ---------------------------------------------------------------------------------

    def stats(self) -> dict[str, float]:
        """Counters of the loop, and the stage's own figures under their names."""
        figures: dict[str, float] = {
            **self.counts,
            **self._figures.figures(self._clock()),
            "sent": self._out.sent,
            "pending": self._waiting,
            "room": self._out.room(),
            "batch_limit": self._batch_max(),
        }
        figures.update({f"stage_{name}": value for name, value in self.stage.stats().items()})
        return figures

    def dump(self) -> dict[str, object]:
        """The whole state, for people."""
        return {
            "stage": self.stage.name,
            "stats": self.stats(),
            "pending": {str(slot): len(queue) for slot, queue in self._pending.items()},
            "bindings": self._authority.bindings(),
            "failed_in_a_row": self._failed_in_a_row,
            "ticked_ago_us": self._clock() - self._ticked_us if self.wants_ticks else None,
        }
