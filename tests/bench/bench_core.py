"""The compiled core beside its own source: records of a capture, decoded and let through the fence.

`tests.bench.bench_capture` says what is measured. It runs compiled, and once more in a process that
knows nothing of the compiled packages. Each is compared with fastavro in its own process first, in
turns: the machine may be faster in one of them than in the other.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.bench.figures import Row, row
from tests.support.core import core_kind, without_compiled

ROOT = Path(__file__).parents[2]
ROWS = ("capture_decode_fence_vs_fastavro", "capture_decode_fence_vs_fastavro_sentence")
LIMIT_S = 180


def rows() -> list[Row]:
    """In parts of fastavro's speed, a word a record and a sentence a record."""
    if core_kind() != "compiled":
        return [row("core_compiled_vs_python", 0, "", "not measured: make bench compiles")]
    compiled, source = _capture(dict(os.environ)), _capture(without_compiled())
    return [
        row(
            f"core_compiled_vs_python{name.removeprefix(ROWS[0])}",
            compiled[name],
            "of bare fastavro's records/s",
            "the same files, run as Python",
            source[name],
        )
        for name in ROWS
    ]


def _capture(environment: dict[str, str]) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="bench-core-") as folder:
        out = Path(folder) / "rows.json"
        subprocess.run(
            [sys.executable, "-m", "tests.bench", "--only", "capture", "--out", str(out)],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=LIMIT_S,
            check=True,
        )
        return {one["name"]: one["ratio"] for one in json.loads(out.read_text())["rows"]}
