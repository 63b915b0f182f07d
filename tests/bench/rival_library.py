"""The virtual environment of the stream library that consumption is measured against.

It is apart from ours because the library pins other versions of what we use too. Made once, from
`requirements/bench.lock`, in `build/`; removed and made again when the lock changes.
"""

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
LOCK = ROOT / "requirements" / "bench.lock"
PLACE = ROOT / "build" / "bench-venv"
INSTALL_S_MAX = 180


class NotThere(Exception):
    """The library cannot be installed here; the message says why."""


def rival_python() -> str:
    """The interpreter that has the library. Raises NotThere."""
    python, stamp = PLACE / "bin" / "python", PLACE / "bench.lock"
    if stamp.exists() and stamp.read_bytes() == LOCK.read_bytes():
        return str(python)
    shutil.rmtree(PLACE, ignore_errors=True)
    PLACE.parent.mkdir(exist_ok=True)
    uv = str(Path(sys.executable).with_name("uv"))
    _run(uv, "venv", "--quiet", "--python", sys.executable, str(PLACE))
    into = ("--python", str(python), "--require-hashes")
    _run(uv, "pip", "install", "--quiet", *into, "-r", str(LOCK))
    shutil.copy(LOCK, stamp)
    return str(python)


def _run(*command: str) -> None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=INSTALL_S_MAX, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotThere(str(error)) from error
    if done.returncode:
        raise NotThere((done.stderr.strip().splitlines() or ["no reason given"])[-1][:300])
