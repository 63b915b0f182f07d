"""Percentiles of the last seconds in bounded memory, for figures that are read while they change.

Values fall into buckets that grow by an eighth of their size, so a percentile is at most 12.5 %
above the value it stands for. Two windows take turns: what is told covers the last one to two.

PURE.
"""

from typing import Final

WINDOW_US: Final = 10_000_000
_BUCKETS: Final = 8 * 40  # up to 2^40 us, twelve days


def _bucket(value: int) -> int:
    if value < 8:
        return max(0, value)
    shift = value.bit_length() - 4
    return min(_BUCKETS - 1, 8 * (shift + 1) + (value >> shift) - 8)


def _ceiling(bucket: int) -> int:
    if bucket < 8:
        return bucket
    shift, eighth = bucket // 8 - 1, bucket % 8
    return ((eighth + 9) << shift) - 1


class Spread:
    """Of whole numbers that are not negative, such as microseconds or lengths."""

    __slots__ = ("_before", "_largest", "_now", "_since_us", "_window_us")

    def __init__(self, window_us: int = WINDOW_US) -> None:
        self._window_us = window_us
        self._now = [0] * _BUCKETS
        self._before = [0] * _BUCKETS
        self._largest = [0, 0]
        self._since_us = 0

    def add(self, value: int, at_us: int) -> None:
        """Count one value."""
        self._turn(at_us)
        self._now[_bucket(value)] += 1
        self._largest[0] = max(self._largest[0], value)

    def _turn(self, at_us: int) -> None:
        if at_us - self._since_us < self._window_us:
            return
        stale = at_us - self._since_us >= 2 * self._window_us
        self._before = [0] * _BUCKETS if stale else self._now
        self._largest = [0, 0 if stale else self._largest[0]]
        self._now = [0] * _BUCKETS
        self._since_us = at_us

    def figures(self, name: str, unit: str, at_us: int) -> dict[str, float]:
        """`name_p50_unit`, `_p95_` and `_max_`; all 0 when nothing was counted lately."""
        self._turn(at_us)
        largest = max(self._largest)
        counts = [a + b for a, b in zip(self._now, self._before, strict=True)]
        total = sum(counts)
        told = {f"{name}_p50{unit}": 0.5, f"{name}_p95{unit}": 0.95}
        figures = {
            key: float(min(largest, _at(counts, share * total))) for key, share in told.items()
        }
        return {**figures, f"{name}_max{unit}": float(largest)}


def _at(counts: list[int], wanted: float) -> int:
    """The ceiling of the bucket in which the `wanted`-th value lies."""
    seen = 0
    for bucket, count in enumerate(counts):
        seen += count
        if count and seen >= wanted:
            return _ceiling(bucket)
    return 0
