"""What the memory store holds, with its keys in order."""

from bisect import bisect_left, bisect_right, insort

RUN_KEYS_MAX = 1000


class Contents:
    """The committed pairs. `values` is written together with `add` and `remove` for its keys.

    The ordered keys lie in runs, so that a new one moves those of its run and not all behind it.
    Invariant: run n holds the keys from bound n up to, not including, bound n + 1; the first bound
    is below every key, and only the first run may be empty.
    """

    __slots__ = ("_bounds", "_runs", "values")

    def __init__(self) -> None:
        self.values: dict[bytes, bytes] = {}
        self._runs: list[list[bytes]] = [[]]
        self._bounds: list[bytes] = [b""]

    def add(self, key: bytes) -> None:
        """Put a key that is not there into its place."""
        at = bisect_right(self._bounds, key) - 1
        run = self._runs[at]
        insort(run, key)
        if len(run) > RUN_KEYS_MAX:
            half = len(run) // 2
            self._bounds.insert(at + 1, run[half])
            self._runs.insert(at + 1, run[half:])
            del run[half:]

    def remove(self, key: bytes) -> None:
        """Take a key that is there out of its place."""
        at = bisect_right(self._bounds, key) - 1
        run = self._runs[at]
        del run[bisect_left(run, key)]
        if not run and at:
            del self._runs[at], self._bounds[at]

    def between(self, begin: bytes, end: bytes) -> list[bytes]:
        """The keys with begin <= key < end, in order."""
        if begin >= end:
            return []
        first = bisect_right(self._bounds, begin) - 1
        last = bisect_left(self._bounds, end) - 1
        run = self._runs[first]
        if first == last:
            return run[bisect_left(run, begin) : bisect_left(run, end)]
        found = run[bisect_left(run, begin) :]
        for whole in self._runs[first + 1 : last]:
            found += whole
        run = self._runs[last]
        found += run[: bisect_left(run, end)]
        return found
