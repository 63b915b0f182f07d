"""A batch that raises: who fails, who does not, and what is never done twice."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pytest
import torch

from gpu_stages.header import Header, MessageKind
from gpu_stages.live_table import LiveRow
from gpu_stages.poison import is_out_of_memory, parts_to_retry
from gpu_stages.stage import Message, Outbox
from gpu_stages.stage_loop import FAILED_CALLS_MAX, ROOM_AGAIN_BATCHES, StageKeepsFailing
from tests.unit.gpu_stages.loop_bench import Bench, Recorder, Ticker

MakeBench = Callable[[Recorder], Bench]


@pytest.fixture
def make_bench() -> Iterator[MakeBench]:
    made: list[Bench] = []

    def make(stage: Recorder) -> Bench:
        made.append(Bench(stage))
        return made[-1]

    yield make
    for bench in made:
        bench.close()


class AllOrNothing(Recorder):
    """As a model does: looks at the whole batch first, then sends it."""

    limit = 99

    def process(self, batch: Sequence[Message], rows: Sequence[LiveRow], out: Outbox) -> None:
        numbers = [message.header.frame_index for message in batch]
        self.batches.append(numbers)
        try:
            if len(batch) > self.limit:
                raise torch.OutOfMemoryError(f"no room for {len(batch)}")
            if any(map(self.raises, numbers)):
                raise ValueError("cannot")
            for message in batch:
                out.send(message.header, message.parts[:1])
        finally:
            self.then()


def test_only_the_culprit_s_live_fails(make_bench: MakeBench) -> None:
    stage = AllOrNothing()
    stage.raises = lambda number: number == 21
    bench = make_bench(stage)
    for number in (1, 11, 21, 31, 2, 12, 22, 32):
        bench.send(number, live_slot=number % 100 // 10)
    bench.run_idle()
    assert stage.batches == [[1, 11, 21, 31, 2, 12, 22, 32], [1, 2], [11, 12], [21, 22], [31, 32]]
    assert bench.sent() == [1, 2, 11, 12, 31, 32]
    assert [(f.live_slot, f.segment_id) for f in bench.failed] == [(2, 21), (2, 22)]
    assert bench.loop.counts["failed_process"] == 0, "the stage works"
    assert bench.source.room() == 64


def test_what_was_sent_before_it_raised_is_not_sent_again(make_bench: MakeBench) -> None:
    stage = Recorder()  # sends one by one
    stage.raises = lambda number: number == 20
    bench = make_bench(stage)
    for number in (0, 10, 20, 30):
        bench.send(number, live_slot=number // 10)
    bench.run_idle()
    assert bench.sent() == [0, 10, 30]
    assert stage.batches == [[0, 10, 20, 30], [20], [30]]
    assert [f.segment_id for f in bench.failed] == [20]


@pytest.mark.parametrize("stage", [Ticker(), type("Keeps", (Recorder,), {"repeatable": False})()])
def test_a_stage_that_keeps_what_it_is_given_is_not_asked_again(
    make_bench: MakeBench, stage: Recorder
) -> None:
    stage.raises = lambda number: number == 10
    bench = make_bench(stage)
    for number in (0, 10, 20):
        bench.send(number, live_slot=number // 10)
    bench.run_batches(1)
    assert stage.batches == [[0, 10, 20]]
    assert [f.segment_id for f in bench.failed] == [10, 20], "0 was sent already"


def test_a_live_that_always_fails_does_not_end_the_stage(make_bench: MakeBench) -> None:
    stage = AllOrNothing()
    stage.raises = lambda number: number >= 1000
    bench = make_bench(stage)
    for number in range(3 * FAILED_CALLS_MAX):
        bench.send(number, live_slot=0)
        bench.send(1000 + number, live_slot=1)
        bench.run_idle()
    assert len(bench.sent()) == 3 * FAILED_CALLS_MAX
    assert len(bench.failed) == 3 * FAILED_CALLS_MAX


def test_a_stage_for_which_nothing_works_still_gives_up(make_bench: MakeBench) -> None:
    stage = AllOrNothing()
    stage.raises = lambda number: True
    bench = make_bench(stage)
    stage.batch_max = 2
    for number in range(2 * FAILED_CALLS_MAX):
        bench.send(1 + number, live_slot=number % 2)
    with pytest.raises(StageKeepsFailing):
        bench.run()
    assert len(bench.failed) == 2 * FAILED_CALLS_MAX


def test_out_of_memory_halves_the_batch_and_the_next_ones(make_bench: MakeBench) -> None:
    stage = AllOrNothing()
    stage.limit = 3
    bench = make_bench(stage)
    for number in range(8):
        bench.send(number, live_slot=number % 4)
    bench.run_idle()
    assert [len(batch) for batch in stage.batches] == [8, 4, 2, 2, 4, 2, 2]
    assert sorted(bench.sent()) == list(range(8))
    assert bench.failed == []
    assert bench.loop.counts["out_of_memory"] == 3
    assert bench.loop.stats()["batch_limit"] == 2
    stage.batches.clear()
    for number in range(8):
        bench.send(number, live_slot=number % 4)
    bench.run_batches(4)
    bench.sent()
    assert [len(batch) for batch in stage.batches] == [2] * 4, "it is not tried over and over"
    stage.limit = 99
    for number in range(2 * ROOM_AGAIN_BATCHES):
        bench.send(number, live_slot=0)
        bench.run_batches(len(stage.batches) + 1)
        bench.sent()
    assert bench.loop.stats()["batch_limit"] > 2, "but memory may come back"


def test_one_message_that_no_memory_holds_fails_alone(
    make_bench: MakeBench, capfd: pytest.CaptureFixture[str]
) -> None:
    class Huge(AllOrNothing):
        def process(self, batch: Sequence[Message], rows: Sequence[LiveRow], out: Outbox) -> None:
            if any(message.header.frame_index == 20 for message in batch):
                self.batches.append([])
                raise MemoryError("a picture of 20000 px")
            super().process(batch, rows, out)

    bench = make_bench(Huge())
    for number in (0, 10, 20, 30):
        bench.send(number, live_slot=number // 10)
    bench.run_idle()
    assert bench.sent() == [0, 10, 30]
    assert [f.segment_id for f in bench.failed] == [20]
    assert "MemoryError: a picture of 20000 px" in bench.failed[0].reason
    assert "MemoryError" in capfd.readouterr().err


def test_a_failure_that_repeats_does_not_flood_the_log(
    make_bench: MakeBench, capfd: pytest.CaptureFixture[str]
) -> None:
    stage = AllOrNothing()
    stage.raises = lambda number: number >= 1000
    bench = make_bench(stage)
    for number in range(40):
        bench.send(number, live_slot=0)
        bench.send(1000 + number, live_slot=1)
        bench.run_idle()
    assert len(bench.failed) == 40
    assert capfd.readouterr().err.count("Traceback") == 1


def test_idle_ticks_that_fail_are_counted_and_belong_to_no_segment(make_bench: MakeBench) -> None:
    stage = Recorder()
    stage.raises = lambda number: True
    bench = make_bench(stage)
    bench.source.publish(Header(MessageKind.TICK_MOTION, 0, 1, 5, frame_index=3), [b"x"])
    bench.run_idle()
    assert bench.failed == []
    assert bench.loop.counts["messages_failed"] == 1


@pytest.mark.parametrize(
    ("error", "is_it"),
    [
        (MemoryError(), True),
        (torch.OutOfMemoryError("CUDA out of memory"), True),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"), True),
        (RuntimeError("size mismatch"), False),
        (ValueError("out of memory of the past"), False),
    ],
)
def test_memory_that_ran_out_is_told_from_other_errors(error: Exception, is_it: bool) -> None:
    assert is_out_of_memory(error) == is_it


@dataclass(frozen=True)
class Slot:
    header: Header


def slots(lives: str) -> list[Slot]:
    return [
        Slot(Header(MessageKind.TICK_MOTION, int(live), 1, 1, frame_index=number))
        for number, live in enumerate(lives)
    ]


@pytest.mark.parametrize(
    ("lives", "answered", "memory", "parts"),
    [
        ("0101", set[int](), False, [[0, 2], [1, 3]]),
        ("0101", {0, 2}, False, [[1, 3]]),
        ("000", {0}, False, []),
        ("0", set[int](), False, []),
        ("01", {0, 1}, False, []),
        ("01010", set[int](), True, [[0, 1, 2], [3, 4]]),
        ("00", set[int](), True, [[0], [1]]),
        ("0", set[int](), True, []),
        ("012", {0, 1}, True, []),
    ],
)
def test_what_is_tried_again(
    lives: str, answered: set[int], memory: bool, parts: list[list[int]]
) -> None:
    made = parts_to_retry(
        slots(lives),
        lambda header: header.frame_index in answered,
        out_of_memory=memory,
        repeatable=True,
    )
    assert [[slot.header.frame_index for slot in part] for part in made] == parts
    for part in made:
        assert len(part) < len(lives), "it ends"
    assert not parts_to_retry(slots(lives), lambda _: False, out_of_memory=memory, repeatable=False)
