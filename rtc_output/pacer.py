"""The media clock of a live: when each frame is due, and how far the stages may run ahead.

PURE.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PacerSettings:
    """How a live is paced. The defaults favour a short way from text to sound."""

    lead_frames: int = 4
    lead_frames_min: int = 3
    lead_frames_max: int = 12
    start_delay_us: int = 20_000
    catch_up_spacing_us: int = 10_000
    reanchor_late_us: int = 160_000
    grid_us: int = 20_000


@dataclass(frozen=True, slots=True)
class LatenessSummary:
    """How late ticks were sent, in microseconds: percentiles are upper bounds of their bucket."""

    count: int
    p50_us: int
    p95_us: int
    p99_us: int
    max_us: int
    buckets: tuple[tuple[int, int], ...]
