"""A seed is one history: in this process, in another one, and after other runs."""

import gc
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sim.loop import VirtualLoop
from tests.sim.run import run_seed

ROOT = Path(__file__).parents[2]
SEEDS = (3, 11, 64)
TRACE = """
import sys
from tests.sim.run import run_seed
for seed in map(int, sys.argv[1:]):
    print(run_seed(seed, traced=True).trace)
"""


@pytest.fixture(autouse=True)
def _collected() -> Iterator[None]:
    yield
    gc.collect()


def _traces(*seeds: int, hash_seed: str = "0") -> list[str]:
    answer = subprocess.run(
        [sys.executable, "-c", TRACE, *map(str, seeds)],
        cwd=ROOT,
        env={"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    return answer.stdout.split()


def test_another_process_replays_it() -> None:
    assert _traces(*SEEDS) == _traces(*SEEDS, hash_seed="7")


def test_what_ran_before_changes_nothing() -> None:
    forth, back = _traces(*SEEDS), _traces(*reversed(SEEDS))
    assert forth == list(reversed(back))


def test_seeds_differ() -> None:
    assert len(set(_traces(*SEEDS))) == len(SEEDS)


def test_a_world_is_forgotten_when_its_run_is_over() -> None:
    seeds = range(1, 13)
    gc.collect()
    before = _worlds()
    bad_records = sum(run_seed(seed).windows["dead_letter"] for seed in seeds)
    gc.collect()
    assert bad_records, "an error that is remembered would remember the frames it went through"
    assert _worlds() == before


def _worlds() -> int:
    return sum(type(one) is VirtualLoop for one in gc.get_objects())
