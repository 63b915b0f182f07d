"""How long messages wait in a stage, in virtual time: nothing here depends on the machine.

The loop's clock and its waiting are the test's: time passes only while the loop waits, and while
the stage works, as long as each message costs.
"""

import random
import select
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import pytest

from gpu_stages.live_table import LiveRow
from gpu_stages.stage import Message, Outbox
from tests.unit.gpu_stages.loop_bench import LIVES, Bench, Recorder

MS = 1000


@dataclass(order=True)
class Arrival:
    """A message that is published at a time, and what it costs to process."""

    at_us: int
    number: int
    live_slot: int
    cost_us: int = 0


class Working(Recorder):
    """Takes as long as its messages cost; notes when each was begun."""

    def __init__(self) -> None:
        super().__init__()
        self.spend: Callable[[Sequence[int]], None] = lambda numbers: None

    def process(self, batch: Sequence[Message], rows: Sequence[LiveRow], out: Outbox) -> None:
        self.spend([message.header.frame_index for message in batch])
        super().process(batch, rows, out)


@dataclass
class Virtual:
    """A loop, its stage, and what arrives when."""

    arrivals: list[Arrival]
    batch_max: int = 4
    wait_us_max: int = 0
    now_us: int = 0
    begun_us: dict[int, int] = field(default_factory=dict[int, int])
    came_us: dict[int, int] = field(default_factory=dict[int, int])

    def __post_init__(self) -> None:
        self.stage = Working()
        self.stage.batch_max, self.stage.wait_us_max = self.batch_max, self.wait_us_max
        self.stage.spend = self.spend
        self.bench = Bench(
            self.stage, slots=512, slots_out=512, clock=lambda: self.now_us, wait=self.wait
        )
        self.costs = {arrival.number: arrival.cost_us for arrival in self.arrivals}
        self.todo = sorted(self.arrivals)

    def publish_due(self) -> None:
        while self.todo and self.todo[0].at_us <= self.now_us:
            arrival = self.todo.pop(0)
            self.bench.send(arrival.number, arrival.live_slot)
            self.came_us[arrival.number] = arrival.at_us

    def wait(self, watched: Sequence[int], timeout_s: float) -> Sequence[int]:
        """Nothing readable: time passes, but not beyond the next arrival."""
        readable = select.select(watched, (), (), 0)[0]
        if readable or not timeout_s:
            return readable
        until_us = self.now_us + round(timeout_s * 1e6)
        if self.todo:
            until_us = min(until_us, max(self.now_us, self.todo[0].at_us))
        self.now_us = until_us
        self.publish_due()
        return select.select(watched, (), (), 0)[0]

    def spend(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            self.begun_us[number] = self.now_us
        end_us = self.now_us + sum(self.costs[number] for number in numbers)
        while self.todo and self.todo[0].at_us <= end_us:
            self.now_us = self.todo[0].at_us
            self.publish_due()
        self.now_us = end_us
        self.bench.sent()
        if len(self.begun_us) == len(self.arrivals):
            self.bench.loop.stop()

    def run(self) -> dict[int, int]:
        """Until everything was processed; how long each message waited to be begun."""
        self.publish_due()
        self.bench.run()
        return {number: self.begun_us[number] - self.came_us[number] for number in self.begun_us}


@pytest.fixture
def run() -> Iterator[Callable[..., tuple[Virtual, dict[int, int]]]]:
    made: list[Virtual] = []

    def run(arrivals: list[Arrival], **settings: int) -> tuple[Virtual, dict[int, int]]:
        made.append(Virtual(arrivals, **settings))
        return made[-1], made[-1].run()

    yield run
    for virtual in made:
        virtual.bench.close()


Run = Callable[..., tuple[Virtual, dict[int, int]]]


@pytest.mark.parametrize("seed", range(5))
def test_no_message_waits_longer_than_the_bound(run: Run, seed: int) -> None:
    chance = random.Random(seed)
    at_us = 0
    arrivals: list[Arrival] = []
    for number in range(200):
        at_us += chance.choice((0, 0, 300, 2 * MS, 9 * MS))
        arrivals.append(Arrival(at_us, number, chance.randrange(LIVES)))
    virtual, waited = run(arrivals, batch_max=4, wait_us_max=5 * MS)
    assert max(waited.values()) <= 5 * MS, f"seed {seed}"
    batches = virtual.stage.batches
    assert sum(map(len, batches)) == 200
    full_before = False  # whoever is left over by a full batch goes at once
    for batch in batches:
        due_us = min(virtual.came_us[number] for number in batch) + 5 * MS
        assert len(batch) == 4 or full_before or virtual.begun_us[batch[0]] == due_us, "not before"
        full_before = len(batch) == 4
    assert any(len(batch) == 4 for batch in batches)
    figures = virtual.bench.loop.stats()
    assert figures["lateness_max_us"] == 0


def test_a_lone_message_waits_for_others_exactly_as_long_as_it_may(run: Run) -> None:
    _, waited = run([Arrival(0, 1, 0), Arrival(40 * MS, 2, 0)], batch_max=4, wait_us_max=5 * MS)
    assert waited == {1: 5 * MS, 2: 5 * MS}


def test_a_full_batch_waits_for_nobody(run: Run) -> None:
    arrivals = [Arrival(1 * MS, live, live) for live in range(4)]
    _, waited = run(arrivals, batch_max=4, wait_us_max=5 * MS)
    assert set(waited.values()) == {0}


def steady(lives: Sequence[int], ticks: int = 50, cost_us: int = MS) -> list[Arrival]:
    """A tick of each live every 40 ms."""
    return [
        Arrival(tick * 40 * MS, 10_000 * live + tick, live, cost_us)
        for tick in range(ticks)
        for live in lives
    ]


@pytest.mark.parametrize("flood", [20, 100, 300])
def test_the_length_of_a_flood_does_not_matter_to_the_others(run: Run, flood: int) -> None:
    """Live 3 sends all at once what costs 5 ms each: seconds of work. The others have the same
    bound however much it is: the batch at hand, and their own."""
    arrivals = [*steady((0, 1, 2)), *(Arrival(7 * MS, 90_000 + n, 3, 5 * MS) for n in range(flood))]
    virtual, waited = run(arrivals, batch_max=4)
    quick = [wait for number, wait in waited.items() if number < 90_000]
    assert max(quick) <= 4 * 5 * MS, "at most the batch at hand"
    slow = max(wait for number, wait in waited.items() if number >= 90_000)
    assert slow >= (flood - 4) * 5 * MS, "who floods waits for itself"
    figures = virtual.bench.loop.stats()
    assert figures["queue_max"] >= flood
    assert figures["lateness_max_us"] == max(waited.values())


def test_a_live_whose_ticks_are_dear_costs_the_others_one_of_them(run: Run) -> None:
    """Live 3's tick takes 15 ms where another's takes 1: within 40 ms all have had theirs."""
    arrivals = [*steady((0, 1, 2)), *steady((3,), cost_us=15 * MS)]
    virtual, waited = run(arrivals, batch_max=4)
    assert max(waited.values()) <= (15 + 3) * MS
    for tick in range(50):
        begun = [virtual.begun_us[10_000 * live + tick] for live in range(4)]
        assert max(begun) < (tick + 1) * 40 * MS, "before the next tick"


def test_without_turns_it_would_be_otherwise(run: Run) -> None:
    """The control: the same flood, all of one live, in the order in which it came."""
    arrivals = [Arrival(n, n, 0, 5 * MS) for n in range(100)]
    arrivals.append(Arrival(200, 100, 0, MS))
    _, waited = run(arrivals, batch_max=4)
    assert waited[100] >= 96 * 5 * MS
