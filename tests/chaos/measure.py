"""Times that a history shows: from a worker's death to speech again, and gaps while one joins.

PURE.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from tests.sim import history as h


@dataclass(frozen=True, slots=True)
class Recovery:
    """`seconds` from a SIGKILL until the live was heard from its next owner. `alone`: no other
    fault was at work."""

    live_id: str
    seconds: float
    alone: bool


@dataclass(slots=True)
class _Down:
    at_ms: int
    epoch: int
    alone: bool


def recoveries(history: h.History) -> Iterator[Recovery]:
    """For every live that was in the middle of a segment when its worker was killed."""
    process_of: dict[str, str] = {}
    owner: dict[str, tuple[str, int]] = {}
    speaking: set[str] = set()
    down: dict[str, _Down] = {}
    for entry in history:
        match entry:
            case h.WorkerWritten():
                process_of.setdefault(entry.worker_id, entry.process)
            case h.GenerationWritten(worker_id=""):
                owner.pop(entry.live_id, None)
                down.pop(entry.live_id, None)
            case h.GenerationWritten():
                owner[entry.live_id] = (entry.worker_id, entry.epoch)
            case h.ProgressWritten():
                if entry.segments:
                    speaking.add(entry.live_id)
                else:
                    speaking.discard(entry.live_id)
                    # An interrupt, or a close, left nothing to be spoken again.
                    down.pop(entry.live_id, None)
            case h.Fault(kind="crash"):
                for live_id, (worker_id, epoch) in owner.items():
                    if process_of.get(worker_id) == entry.process and live_id in speaking:
                        alone = entry.detail == "alone"
                        down[live_id] = _Down(entry.at_ms, epoch, alone)
            case h.Heard():
                one = down.get(entry.live_id)
                if one is not None and entry.epoch > one.epoch:
                    del down[entry.live_id]
                    seconds = (entry.at_ms - one.at_ms) / 1000
                    yield Recovery(entry.live_id, seconds, one.alone)
            case _:
                pass


@dataclass(slots=True)
class _Join:
    """`last`: when a live's last release was, and whether it was in the middle of a segment."""

    last: dict[str, tuple[int, bool]]
    moved: set[str]
    gaps: dict[str, int]


def longest_gap_ms(history: h.History) -> int | None:
    """Between two releases of a speaking live that kept its owner, while a worker joined and
    nothing else happened. A live that speaks is released anew at each checkpoint, every 500 ms.
    None when no worker joined so.
    """
    join: _Join | None = None
    worst: int | None = None
    pending: dict[str, int] = {}
    for entry in history:
        match entry:
            case h.Fault(kind="join", detail="alone"):
                join = _Join({}, set(), {})
            case h.Fault(kind="rebalance"):
                if join is not None:
                    kept = [gap for live, gap in join.gaps.items() if live not in join.moved]
                    worst = max([worst or 0, *kept])
                join = None
            case h.GenerationWritten():
                if join is not None:
                    join.moved.add(entry.live_id)
            case h.CursorWritten() if entry.release_id:
                pending[entry.live_id] = entry.at_ms
            case h.ProgressWritten():
                at_ms = pending.pop(entry.live_id, None)
                if join is None or at_ms is None:
                    continue
                before = join.last.get(entry.live_id)
                if before is not None and before[1]:
                    gap = at_ms - before[0]
                    join.gaps[entry.live_id] = max(gap, join.gaps.get(entry.live_id, 0))
                join.last[entry.live_id] = (at_ms, bool(entry.segments))
            case _:
                pass
    return worst


def asked_while_superseded(history: h.History) -> int:
    """How often a release was asked for in the name of a generation that had ended."""
    owner: dict[str, tuple[str, int]] = {}
    count = 0
    for entry in history:
        if isinstance(entry, h.GenerationWritten):
            owner[entry.live_id] = (entry.worker_id, entry.epoch)
        elif isinstance(entry, h.ReleaseAsked):
            count += owner.get(entry.live_id) != (entry.worker_id, entry.epoch)
    return count


def percentile(values: list[float], share: float) -> float | None:
    """The smallest value that at least `share` of them do not exceed."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[max(0, ceil(len(ordered) * share) - 1)]
