"""A thousand runs of the protocol, and proof that the checkers would have seen it break."""

from typing import Any

import pytest

from tests.sim.ablations import GENERATION, MUTANTS, WEAK
from tests.sim.campaign import Batch, Total, run_all
from tests.sim.windows import REQUIRED

RUNS = 1_000
WEAK_RUNS = 120
MUTANT_RUNS_MAX = 600
SEED = 1
RARE = frozenset({"drain", "twin", "zombie_custody", "stage_lost", "tick_refused_below"})


@pytest.fixture(scope="module")
def totals() -> dict[str, Total]:
    """Everything in fresh interpreters, two at once, whatever order the tests come in."""
    found: dict[str, Total] = {}
    half = RUNS // 2
    batches = [Batch(GENERATION.name, SEED, half), Batch(GENERATION.name, SEED + half, half)]
    batches += [Batch(one.name, SEED, WEAK_RUNS, stop_at_first=True) for one in WEAK]
    batches += [Batch(one.name, SEED, MUTANT_RUNS_MAX, stop_at_first=True) for one in MUTANTS]

    def done(batch: Batch, numbers: dict[str, Any]) -> None:
        found.setdefault(batch.protocol, Total()).add(numbers)

    run_all(batches, 2, done)
    return found


def test_the_generation_protocol_breaks_nothing(totals: dict[str, Total]) -> None:
    ours = totals[GENERATION.name]
    assert ours.runs == RUNS
    assert not ours.violations, (ours.violations, ours.bad_seeds, ours.example)


def test_a_run_is_worth_its_name(totals: dict[str, Total]) -> None:
    ours = totals[GENERATION.name]
    assert ours.mean("workers") >= 2
    assert ours.mean("moves") >= 2
    assert ours.mean("records") >= 20


def test_seeds_replay_bit_for_bit(totals: dict[str, Total]) -> None:
    ours = totals[GENERATION.name]
    assert ours.counts["replayed"] >= RUNS // 100
    assert not ours.mismatches


@pytest.mark.parametrize("window", REQUIRED)
def test_every_dangerous_window_is_entered(totals: dict[str, Total], window: str) -> None:
    assert totals[GENERATION.name].windows[window] > 0


@pytest.mark.parametrize("name", [one.name for one in (*WEAK, *MUTANTS)])
def test_whatever_is_weaker_is_caught_and_told(totals: dict[str, Total], name: str) -> None:
    total = totals[name]
    assert total.bad_runs, f"{name} was not caught in {total.runs} runs"
    example = total.example
    assert example is not None
    assert example["trace"][-1].startswith("=> ")
    assert example["invariant"] != "own_assertion"
