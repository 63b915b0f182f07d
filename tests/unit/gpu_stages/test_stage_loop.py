"""The loop of a stage, run in this process over real rings; the stage under test stops it."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pytest

from gpu_stages.live_table import LiveRow, empty_row
from gpu_stages.memory import ring_bell
from gpu_stages.stage import Message, NoRoom, Outbox
from gpu_stages.stage_loop import FAILED_CALLS_MAX, StageKeepsFailing
from tests.unit.gpu_stages.loop_bench import LIVES, Bench, Recorder, Ticker

MakeBench = Callable[..., Bench]


@pytest.fixture
def make_bench() -> Iterator[MakeBench]:
    made: list[Bench] = []

    def make(stage: Recorder, slots: int = 64, slots_out: int = 64) -> Bench:
        made.append(Bench(stage, slots, slots_out))
        return made[-1]

    yield make
    for bench in made:
        bench.close()


def test_lives_take_turns_however_much_one_of_them_sends(make_bench: MakeBench) -> None:
    stage = Recorder()
    stage.batch_max = 3
    bench = make_bench(stage)
    for number in range(30):
        bench.send(number, live_slot=0)
    bench.send(100, live_slot=1)
    bench.send(200, live_slot=2)
    bench.send(101, live_slot=1)
    bench.run_batches(3)
    assert stage.batches[:2] == [[0, 100, 200], [1, 101, 2]]
    assert bench.sent()[:6] == [0, 100, 200, 1, 101, 2]


def test_a_flood_that_keeps_coming_starves_nobody(make_bench: MakeBench) -> None:
    stage = Recorder()
    stage.batch_max = 2
    bench = make_bench(stage, slots=8)
    numbers = iter(range(10_000))

    def flood() -> None:
        bench.sent()
        while bench.source.room() > 1:
            bench.send(next(numbers), live_slot=0)
        bench.send(1_000_000 + len(stage.batches), live_slot=1)

    flood()
    stage.then = flood
    bench.run_batches(40)
    others = [b for b in stage.batches[2:] if any(number >= 1_000_000 for number in b)]
    assert len(others) >= 36, "the quiet live is in nearly every batch"


def test_order_within_a_live_is_kept(make_bench: MakeBench) -> None:
    stage = Recorder()
    stage.batch_max = 5
    bench = make_bench(stage)
    for number in range(40):
        bench.send(number, live_slot=number % 3)
    bench.run_idle()
    bench.run_batches(8)
    sent = bench.sent()
    assert sorted(sent) == list(range(40))
    for live in range(3):
        mine = [number for number in sent if number % 3 == live]
        assert mine == sorted(mine)


def test_messages_without_authority_never_reach_the_stage(make_bench: MakeBench) -> None:
    stage = Recorder()
    bench = make_bench(stage)
    bench.send(1, 0, binding=99)
    bench.send(2, 0, epoch=4)
    bench.send(3, 0, epoch=5)
    bench.send(4, 0, epoch=6)
    bench.send(5, live_slot=70, binding=0)
    bench.run_batches(1)
    assert stage.batches == [[3, 4]]
    assert bench.loop.counts["refused_binding"] == 2
    assert bench.loop.counts["refused_epoch"] == 1
    assert bench.source.room() == 64, "refused slots are given back"


def test_an_unbind_takes_effect_on_what_already_waits(make_bench: MakeBench) -> None:
    stage = Recorder()
    stage.batch_max = 1
    bench = make_bench(stage)
    for number in range(4):
        bench.send(number, live_slot=number % 2)
    stage.then = lambda: bench.bind(1, binding=0)
    bench.run_batches(2)
    bench.run_idle()
    assert stage.batches == [[0], [2]]
    assert bench.loop.counts["refused_binding"] == 2
    assert stage.forgotten == [1]


def test_a_raised_epoch_refuses_what_was_sent_before(make_bench: MakeBench) -> None:
    stage = Recorder()
    stage.batch_max = 1
    bench = make_bench(stage)
    bench.send(1, 0)
    bench.send(2, 0)
    bench.send(3, 0, epoch=6)
    stage.then = lambda: bench.bind(0, binding=1, epoch=6)
    bench.run_batches(2)
    assert stage.batches == [[1], [3]]
    assert bench.loop.counts["refused_epoch"] == 1


def test_a_live_is_forgotten_before_its_successor_is_shown(make_bench: MakeBench) -> None:
    stage = Recorder()
    stage.batch_max = 1
    bench = make_bench(stage)
    bench.send(1, 0)
    bench.run_batches(1)
    bench.bind(0, binding=50)
    bench.send(2, 0, binding=50)
    forgotten_when_shown: list[list[int]] = []
    stage.then = lambda: forgotten_when_shown.append(list(stage.forgotten))
    bench.run_batches(2)
    assert forgotten_when_shown == [[0]]


def test_a_stage_without_room_downstream_waits_and_loses_nothing(make_bench: MakeBench) -> None:
    stage = Recorder()
    bench = make_bench(stage, slots_out=3)
    for number in range(10):
        bench.send(number, 0)
    received: list[int] = []
    stage.then = lambda: received.extend(bench.sent())
    bench.run_batches(4)
    received += bench.sent()
    assert received == list(range(10))
    assert all(len(batch) <= 3 for batch in stage.batches)


def test_a_full_ring_downstream_makes_the_producer_wait(make_bench: MakeBench) -> None:
    stage = Recorder()
    bench = make_bench(stage, slots=5, slots_out=2)
    for number in range(5):
        bench.send(number, 0)
    bench.run_batches(1)
    bench.run_idle()
    assert bench.source.room() == 2
    assert stage.batches == [[0, 1]]
    bench.send(5, 0)
    bench.send(6, 0)
    with pytest.raises(NoRoom):
        bench.send(7, 0)


def test_a_batch_waits_for_others_but_not_longer_than_it_may(make_bench: MakeBench) -> None:
    stage = Recorder()
    stage.batch_max = 4
    stage.wait_us_max = 30_000
    bench = make_bench(stage)
    bench.send(1, 0)
    began_s = time.monotonic()
    bench.run_batches(1)
    assert time.monotonic() - began_s >= 0.03
    for number in range(4):
        bench.send(number, 0)
    began_s = time.monotonic()
    bench.run_batches(2)
    assert time.monotonic() - began_s < 0.03, "a full batch waits for nobody"
    assert stage.batches == [[1], [0, 1, 2, 3]]


def test_a_failing_batch_fails_its_segments_and_not_the_stage(
    make_bench: MakeBench, capfd: pytest.CaptureFixture[str]
) -> None:
    stage = Recorder()
    stage.batch_max = 2
    stage.raises = lambda number: number == 3
    bench = make_bench(stage)
    for number in range(1, 7):
        bench.send(number, 0)
    bench.run_batches(3)
    assert bench.sent() == [1, 2, 5, 6]
    assert [(f.live_slot, f.binding, f.segment_id) for f in bench.failed] == [(0, 1, 3), (0, 1, 4)]
    assert "recorder: ValueError: cannot" in bench.failed[0].reason
    assert "cannot" in capfd.readouterr().err, "the trace is in the log"
    assert bench.source.room() == 64


def test_a_stage_that_never_works_gives_up(
    make_bench: MakeBench, capfd: pytest.CaptureFixture[str]
) -> None:
    stage = Recorder()
    stage.batch_max = 1
    stage.raises = lambda number: True
    bench = make_bench(stage)
    for number in range(FAILED_CALLS_MAX + 1):
        bench.send(number, 0)
    with pytest.raises(StageKeepsFailing, match="cannot"):
        bench.run()
    assert len(stage.batches) == FAILED_CALLS_MAX
    assert capfd.readouterr().err


def test_ticks_come_by_themselves_and_at_once_after_a_change(make_bench: MakeBench) -> None:
    stage = Ticker()
    bench = make_bench(stage)

    def stop_at_ten() -> None:
        if len(stage.ticks) == 10:
            bench.loop.stop()

    stage.tick_then = stop_at_ten
    bench.run()
    gaps = [b[0] - a[0] for a, b in zip(stage.ticks, stage.ticks[1:], strict=False)]
    assert min(gaps) >= 0.0095
    assert sorted(gaps)[len(gaps) // 2] < 0.02

    def change() -> None:
        if len(stage.ticks) == 11:
            bench.table.write(replace(empty_row(0), binding=1, epoch=5, credit_frame=77))
            ring_bell(bench.bell_fd)
        if len(stage.ticks) == 12:
            bench.loop.stop()

    stage.tick_then = change
    bench.run()
    assert stage.ticks[11][1] == [77, -1, -1, -1]
    assert stage.ticks[11][0] - stage.ticks[10][0] < 0.008, "the bell woke it"


def test_ticks_go_on_under_a_flood_of_messages(make_bench: MakeBench) -> None:
    stage = Ticker()
    stage.outputs_per_message_max = 0  # type: ignore[misc]
    stage.batch_max = 1
    bench = make_bench(stage, slots=8, slots_out=500)

    def slow_flood() -> None:
        time.sleep(0.001)
        while bench.source.room():
            bench.send(1, 0)

    slow_flood()
    stage.then = slow_flood
    bench.run_batches(60)
    assert len(stage.ticks) >= 4


def test_a_reset_drops_what_is_in_hand(make_bench: MakeBench) -> None:
    stage = Recorder()
    stage.batch_max = 1
    bench = make_bench(stage)
    for number in range(3):
        bench.send(number, 0)

    def lose() -> None:
        if len(stage.batches) == 1:
            for ring in bench.rings:
                ring.reset()
            bench.sent()  # the next stage takes note, so that there is room again

    stage.then = lose
    bench.run_batches(1)
    bench.run_idle()
    assert stage.batches == [[0]]
    assert bench.loop.counts["dropped_by_reset"] == 2
    assert bench.source.room() == 64
    assert bench.sent() == []


def test_a_part_that_was_kept_cannot_be_read_later(make_bench: MakeBench) -> None:
    kept: list[memoryview] = []

    class Keeper(Recorder):
        def process(self, batch: Sequence[Message], rows: Sequence[LiveRow], out: Outbox) -> None:
            kept.append(batch[0].parts[0])
            super().process(batch, rows, out)

    bench = make_bench(Keeper())
    bench.send(1, 0)
    bench.run_batches(1)
    with pytest.raises(ValueError, match="released memoryview"):
        bytes(kept[0])


def test_the_state_can_be_looked_at(make_bench: MakeBench) -> None:
    bench = make_bench(Recorder())
    bench.send(1, 0)
    bench.run_batches(1)
    dump = bench.loop.dump()
    assert dump["stage"] == "recorder"
    assert bench.loop.stats()["messages"] == 1
    assert dump["bindings"] == {str(slot): slot + 1 for slot in range(LIVES)}
