"""What one process saw, written down as it happens: its own part of the history.

Each line holds the time of CLOCK_MONOTONIC, which all processes of a machine share, and an entry of
the simulator's history. A line is in the file before any later commit of its process can be
durable, so a process that is killed loses only what no commit can refer to.
"""

import asyncio
import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import astuple, dataclass, replace
from pathlib import Path

from tests.sim import history as h

FLUSH_S = 0.1


@dataclass(slots=True)
class _Heard:
    now_ns: int
    entry: h.Heard
    written: bool


def _follows(before: h.Heard, entry: h.Heard) -> bool:
    return (
        (before.segment, before.live_id, before.epoch)
        == (entry.segment, entry.live_id, entry.epoch)
        and before.end == entry.begin
        and not before.last
    )


class Diary:
    """`note` entries in their order. It passes for the simulator's `Recorder` where that is noted
    to; `owner` and `windows` are only there for that: real ones come from the whole history.
    """

    def __init__(self, path: Path) -> None:
        self.owner: dict[str, tuple[str, int]] = {}
        self.windows: Counter[str] = Counter()
        self._file = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
        self._lines: list[str] = []
        self._heard: dict[int, _Heard] = {}
        """By binding: what was heard last."""
        self._timer: asyncio.TimerHandle | None = None

    @property
    def now_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def note(self, entry: h.Entry) -> None:
        """Written at the latest in `FLUSH_S`, and before any commit that comes after it."""
        now_ns = time.monotonic_ns()
        if isinstance(entry, h.Heard):
            self._hear(now_ns, entry)
        else:
            self._pour()
            self._line(now_ns, entry)
            if isinstance(entry, h.Unbound):
                self._heard.pop(entry.binding, None)
        if self._timer is None:
            try:
                loop = asyncio.get_running_loop()
            except RuntimeError:
                self.flush()
                return
            self._timer = loop.call_later(FLUSH_S, self._fire)

    def _hear(self, now_ns: int, entry: h.Heard) -> None:
        """The first tick of a segment stands alone, so that it has its own time; those that follow
        it without a break become one entry, at the last one's time."""
        known = self._heard.get(entry.tick_binding)
        follows = known is not None and _follows(known.entry, entry)
        if known is not None and not known.written:
            if follows:
                entry = replace(entry, begin=known.entry.begin)
            else:
                self._line(known.now_ns, known.entry)
        if not follows:
            self._line(now_ns, entry)
        self._heard[entry.tick_binding] = _Heard(now_ns, entry, written=not follows)

    def _pour(self) -> None:
        waiting = [one for one in self._heard.values() if not one.written]
        for one in sorted(waiting, key=lambda one: one.now_ns):
            self._line(one.now_ns, one.entry)
            one.written = True

    def _line(self, now_ns: int, entry: h.Entry) -> None:
        self._lines.append(json.dumps([now_ns, type(entry).__name__, *astuple(entry)]))

    def _fire(self) -> None:
        self._timer = None
        self.flush()

    def flush(self) -> None:
        """Everything noted is in the file."""
        self._pour()
        if self._lines:
            data = ("\n".join(self._lines) + "\n").encode()
            self._lines.clear()
            os.write(self._file, data)

    def close(self) -> None:
        self.flush()
        if self._timer is not None:
            self._timer.cancel()
        os.close(self._file)


def read(path: Path) -> Iterator[tuple[int, h.Entry]]:
    """The entries of a diary with their times; a last line that was cut off is left out."""
    for line in path.read_bytes().split(b"\n")[:-1]:
        now_ns, kind, *values = json.loads(line)
        yield now_ns, h.KINDS[kind](*(tuple(v) if isinstance(v, list) else v for v in values))
