"""What happened to one live, for errors and state dumps: the last moments, and no more.

PURE.
"""

from collections import deque

MOMENTS_MAX = 64


_Moment = tuple[int, str, str, str | int]
"""When (this process's monotonic clock, ms), in which state, what, and a detail of it. Bare: one is
made at nearly every event of every live."""


class Story:
    """A ring of moments. Cheap to add to: nothing is formatted before somebody asks."""

    __slots__ = ("_moments",)

    def __init__(self) -> None:
        self._moments: deque[_Moment] = deque(maxlen=MOMENTS_MAX)

    def note(self, at_ms: int, state: str, what: str, detail: str | int = "") -> None:
        """Remember this, and forget the oldest."""
        self._moments.append((at_ms, state, what, detail))

    def lines(self) -> list[str]:
        """Oldest first."""
        return [
            f"{at_ms} ms [{state}] {what} {detail}".rstrip()
            for at_ms, state, what, detail in self._moments
        ]


class BrokenInvariant(RuntimeError):
    """Something that must not happen did. It carries the live's story; nobody handles it."""

    def __init__(self, what: str, live_id: str, story: Story) -> None:
        super().__init__("\n  ".join([f"live {live_id}: {what}", *story.lines()]))
        self.live_id = live_id
