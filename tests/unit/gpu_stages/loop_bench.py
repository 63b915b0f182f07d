"""A stage's loop in the test's hands: real rings, a table, and stages that remember their calls."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from gpu_stages.control import SegmentNotMade
from gpu_stages.header import Header, MessageKind
from gpu_stages.host_ring import HostConsumer, HostProducer, HostRing
from gpu_stages.live_table import LiveRow, LiveTableReader, LiveTableWriter, create_table, empty_row
from gpu_stages.memory import create_bell, ring_bell
from gpu_stages.ring import RingSpec
from gpu_stages.stage import Message, Outbox, Stage
from gpu_stages.stage_loop import Ends, StageLoop

LIVES = 4


class Recorder(Stage):
    """Passes messages on and remembers its calls; `then` runs after each."""

    name: ClassVar[str] = "recorder"

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.forgotten: list[int] = []
        self.then: Callable[[], None] = lambda: None
        self.raises: Callable[[int], bool] = lambda number: False

    def load(self, settings: Mapping[str, object], device: str) -> None:
        pass

    def process(self, batch: Sequence[Message], rows: Sequence[LiveRow], out: Outbox) -> None:
        numbers = [message.header.frame_index for message in batch]
        self.batches.append(numbers)
        try:
            for message, row in zip(batch, rows, strict=True):
                assert row.binding == message.header.binding
                if self.raises(message.header.frame_index):
                    raise ValueError("cannot")
                out.send(message.header, message.parts[:1])
        finally:
            self.then()

    def forget(self, live_slot: int) -> None:
        self.forgotten.append(live_slot)


class Ticker(Recorder):
    """The same, with ticks."""

    def __init__(self) -> None:
        super().__init__()
        self.ticks: list[tuple[float, list[int]]] = []
        self.tick_then: Callable[[], None] = lambda: None

    def on_tick(self, rows: Sequence[LiveRow], now_us: int, out: Outbox) -> None:
        self.ticks.append((now_us / 1e6, [row.credit_frame for row in rows]))
        self.tick_then()


class Bench:
    """A loop with both of its rings, its table and its control socket in the test's hands."""

    def __init__(self, stage: Recorder, slots: int = 64, slots_out: int = 64, **loop: Any) -> None:
        self.stage = stage
        self.looks = 0
        self.rings = [
            HostRing("in", RingSpec(slots, 512)),
            HostRing("out", RingSpec(slots_out, 512)),
        ]
        self.table_fd = create_table(LIVES)
        self.bell_fd, self.control_fd = create_bell(), create_bell()
        self.table = LiveTableWriter(self.table_fd)
        self.failed: list[SegmentNotMade] = []
        ends = Ends(
            HostConsumer(self.rings[0].handle),
            HostProducer(self.rings[1].handle),
            LiveTableReader(self.table_fd),
            self.bell_fd,
            self.control_fd,
        )
        self.loop = StageLoop(stage, ends, self.on_control, self.failed.append, **loop)
        self.source = HostProducer(self.rings[0].handle)
        self.sink = HostConsumer(self.rings[1].handle)
        for live_slot in range(LIVES):
            self.bind(live_slot, binding=live_slot + 1)

    def on_control(self) -> None:
        """The third look at the control socket stops the loop: two whole rounds come before it."""
        os.eventfd_read(self.control_fd)
        self.looks += 1
        if self.looks % 3:
            ring_bell(self.control_fd)
        else:
            self.loop.stop()

    def bind(self, live_slot: int, binding: int, epoch: int = 5) -> None:
        self.table.write(replace(empty_row(live_slot), binding=binding, epoch=epoch))
        self.table.bindings_changed()

    def send(self, number: int, live_slot: int, binding: int | None = None, epoch: int = 5) -> None:
        header = Header(
            MessageKind.TICK_MOTION,
            live_slot,
            live_slot + 1 if binding is None else binding,
            epoch,
            frame_index=number,
            segment_id=number,
        )
        self.source.publish(header, [b"x"])

    def run_batches(self, batches: int) -> None:
        """Run until the stage was called this often (then whatever `then` was set runs too)."""
        then = self.stage.then

        def count() -> None:
            then()
            if len(self.stage.batches) >= batches:
                self.loop.stop()

        self.stage.then = count
        self.run()

    def run_idle(self) -> None:
        """Run until nothing is left to do."""
        ring_bell(self.control_fd)
        self.run()

    def run(self) -> None:
        self.loop.stopped = False
        self.loop.run()

    def sent(self) -> list[int]:
        numbers: list[int] = []
        while (taken := self.sink.take()) is not None:
            numbers.append(taken.header.frame_index)
            self.sink.release(taken)
        return numbers

    def close(self) -> None:
        for ring in self.rings:
            ring.close()
        for fd in (self.table_fd, self.bell_fd, self.control_fd):
            os.close(fd)
