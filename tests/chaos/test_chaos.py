"""Ten minutes of mixed faults on real processes, and proof that the checkers would see them break.

DHSCHED_CHAOS_MINUTES and DHSCHED_CHAOS_SEED change the run. `make chaos` is the same for longer.
"""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.__main__ import BROKER, store_url
from tests.chaos.plan import KINDS, Planned
from tests.chaos.report import as_json, failures, keep
from tests.chaos.run import Options, Run, run
from tests.sim.verdict import Invariant
from tests.support.apache_kafka import KafkaUnavailable
from tests.support.kafka_source import required

MINUTES = float(os.environ.get("DHSCHED_CHAOS_MINUTES", "10"))
SEED = int(os.environ.get("DHSCHED_CHAOS_SEED", "1"))
BUILD = Path(__file__).parents[2] / "build"
LIVES = 50
MOVES_PER_MINUTE = 20
FULL_MINUTES = 8
"""A shorter run may miss a kind of fault, or a window, by chance."""

SURE_WINDOWS = (
    "planned_moves",
    "there_and_back",
    "recovery",
    "recovery_by_two",
    "superseded_owner_alive",
    "superseded_owner_bound",
    "release_asked_while_superseded",
    "stale_release_refused",
    "paused_between_commit_and_feed",
    "heard_after_superseded",
    "slot_leaving",
    "segment_made_again",
    "stage_lost",
    "unknown_applied",
    "unknown_dropped",
    "interrupt_skipped",
    "dead_letter",
    "duplicate_seq",
)


def finished(*options: Options) -> list[Run]:
    """All at once, each to its end. Skipped only where Apache Kafka cannot be run and nobody
    insists on it.
    """

    async def all_of_them() -> list[Run | BaseException]:
        return await asyncio.gather(*(run(one) for one in options), return_exceptions=True)

    found: list[Run] = []
    for one in asyncio.run(all_of_them()):
        if isinstance(one, KafkaUnavailable) and not required():
            pytest.skip(f"Apache Kafka cannot be run here: {one}")
        if isinstance(one, BaseException):
            raise one
        found.append(one)
    return found


@pytest.fixture(scope="module")
def chaos() -> Iterator[Run]:
    [found] = finished(Options(SEED, MINUTES * 60, lives=LIVES, store=store_url(SEED)))
    keep(as_json(found, BROKER), BUILD / "chaos.json", BUILD / "chaos.md")
    yield found
    print(dict(found.faults), dict(found.windows))


def test_nothing_breaks(chaos: Run) -> None:
    assert not failures(chaos), "\n".join(failures(chaos))


def test_the_run_is_worth_its_name(chaos: Run) -> None:
    assert chaos.verdict.moves >= MOVES_PER_MINUTE * MINUTES
    assert chaos.verdict.releases >= 100 * MINUTES
    assert chaos.verdict.heard.handed_over_mid_segment > MINUTES
    assert chaos.verdict.heard.crashed_mid_sentence > MINUTES
    owners = {one.worker_id for one in chaos.history if type(one).__name__ == "GenerationWritten"}
    assert len(owners) >= 3


@pytest.mark.skipif(MINUTES < FULL_MINUTES, reason="the run is too short to be sure of it")
@pytest.mark.parametrize("kind", [one.name for one in KINDS])
def test_every_kind_of_fault_struck(chaos: Run, kind: str) -> None:
    assert chaos.faults[kind] > 0


@pytest.mark.skipif(MINUTES < FULL_MINUTES, reason="the run is too short to be sure of it")
@pytest.mark.parametrize("window", SURE_WINDOWS)
def test_every_dangerous_window_is_entered(chaos: Run, window: str) -> None:
    assert chaos.windows[window] > 0


CONTROL = Options(
    SEED,
    44.0,
    lives=18,
    pushed=0,
    churned=0,
    capacities={"n0": 18, "n1": 18, "n2": 18},
    load=0.4,
    move_every_s=5.0,
    plan=tuple(Planned(8.0, "pause_after_release", at, 6.0, at) for at in range(5)),
    weaken=dict.fromkeys(("n0", "n1", "n2"), "claim-only"),
    expected_bad=True,
)
ROLLING = Options(
    1,
    50.0,
    lives=24,
    pushed=2,
    churned=0,
    capacities={"n0": 16, "n1": 16, "n2": 16},
    move_every_s=30.0,
    plan=(Planned(5.0, "rolling", 0, 0.5, 0),),
)


@pytest.fixture(scope="module")
def beside() -> list[Run]:
    """Two small systems, each with a broker and a store of its own, mostly wait: at one time."""
    return finished(CONTROL, ROLLING)


def test_a_release_that_does_not_check_the_generation_is_caught(beside: list[Run]) -> None:
    """The control: the same processes and checkers, one protection left out of the workers. They
    stop after a release for longer than their lease, and go on when others own their lives."""
    found, _ = beside
    assert found.verdict.by_invariant[Invariant.ONE_OWNER.value], "the checkers saw nothing"


def test_a_rolling_restart_of_all_workers_under_load_loses_nothing(beside: list[Run]) -> None:
    _, found = beside
    assert not failures(found), "\n".join(failures(found))
    assert found.faults["rolling"] == 1
    assert found.windows["left"] == 3, "each worker left with status 0"
    assert found.windows["crash"] == 0
