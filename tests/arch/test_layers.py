"""Imports go down only, and the files keep a readable size."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINES_MAX = 420
PACKAGES = (
    "schemas",
    "stream",
    "ownership",
    "gpu_stages",
    "rtc_output",
    "hosting",
    "dispatch",
    "controller",
    "dhsched",
)


def test_layers() -> None:
    linter = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run(
        [linter, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("package", PACKAGES)
def test_files_hold_one_concept(package: str) -> None:
    long = {
        str(path.relative_to(ROOT)): lines
        for path in (ROOT / package).rglob("*.py")
        if (lines := len(path.read_text().splitlines())) > LINES_MAX
    }
    assert long == {}, "usually two things: split them"
