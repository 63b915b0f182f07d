"""What a process' log says that no process should say, whatever is done to it from outside.

PURE.
"""

import json
from collections.abc import Iterator
from typing import Any

OURS = ("controller", "dispatch", "dhsched", "gpu_stages", "hosting", "ownership", "rtc_output")
ALSO = ("stream", "asyncio")

TELL_CHARS_MAX = 3_000


def complaints(log: str) -> Iterator[str]:
    """Errors of our own code (not of the libraries, which tell of every lost connection so), and
    whatever was written past the log."""
    loose: list[str] = []
    for line in log.splitlines():
        found = _parsed(line)
        if found is None:
            loose.append(line)
        elif _ours(found):
            told = f"{found.get('event')}: {found.get('error', '')}\n{found.get('exception', '')}"
            yield told[:TELL_CHARS_MAX]
    rest = "\n".join(loose)
    if "Traceback (most recent call last)" in rest:
        yield rest[-TELL_CHARS_MAX:]


def _parsed(line: str) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _ours(found: dict[str, Any]) -> bool:
    room = str(found.get("logger", "")).split(".")[0]
    return found.get("level") in ("error", "critical") and room in (*OURS, *ALSO)
