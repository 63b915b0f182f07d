"""What a stage's loop tells about the last seconds: lateness, queue, batches, time per message.

PURE.
"""

from gpu_stages.spread import Spread


class LoopFigures:
    """Counted by the loop, read at every ping. Times are microseconds."""

    __slots__ = ("_batch", "_each", "_late", "_queue")

    def __init__(self) -> None:
        self._late = Spread()
        self._queue = Spread()
        self._batch = Spread()
        self._each = Spread()

    def queued(self, waiting: int, at_us: int) -> None:
        """A message came in; so many now wait."""
        self._queue.add(waiting, at_us)

    def began(self, late_us: int, at_us: int) -> None:
        """A message went into a batch, so long after its time (negative: before it)."""
        self._late.add(max(0, late_us), at_us)

    def processed(self, messages: int, spent_us: int, at_us: int) -> None:
        """A batch is done."""
        self._batch.add(messages, at_us)
        self._each.add(spent_us // messages, at_us)

    def figures(self, at_us: int) -> dict[str, float]:
        """P50, P95 and the largest of each."""
        return {
            **self._late.figures("lateness", "_us", at_us),
            **self._queue.figures("queue", "", at_us),
            **self._batch.figures("batch", "", at_us),
            **self._each.figures("message", "_us", at_us),
        }
