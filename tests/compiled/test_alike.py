"""The compiled core does what its source does, step by step."""

import subprocess
import sys
from pathlib import Path

from tests.compiled.core_run import digest, lines_of
from tests.support.core import core_kind, without_compiled

ROOT = Path(__file__).parents[2]
SEEDS = 150


def from_source(*words: str) -> str:
    """What a process printed that knows nothing of the compiled packages."""
    return subprocess.run(
        [sys.executable, "-m", "tests.compiled.core_run", *words],
        cwd=ROOT,
        env=without_compiled(),
        check=True,
        capture_output=True,
        text=True,
    ).stdout


def test_every_seed_goes_alike() -> None:
    assert core_kind() == "compiled", "make test-compiled runs this"
    theirs = dict(line.split() for line in from_source("0", str(SEEDS)).splitlines())
    assert len(theirs) == SEEDS
    differ = [seed for seed in range(SEEDS) if digest(seed) != theirs[str(seed)]]
    assert not differ, f"python -m tests.compiled.core_run {differ[0]} 1, from both"


def test_the_seeds_pass_through_what_matters() -> None:
    said = "\n".join(line for seed in range(20) for line in lines_of(seed))
    for what in (
        "RecordsRead(",
        "InterruptSeen(",
        "LetterSent(",
        "StagesLost(",
        "FeedRefused(",
        "ReleaseStale(",
        " catching_up",
        " closing",
        "skip_samples=480",
        "duplicate_seq",
        "bad_shape",
    ):
        assert what in said, f"nothing of {what}"
