"""What happened to one live, for errors and state dumps: the last moments, and no more.

PURE.
"""

from collections import deque
from dataclasses import dataclass

from schemas.quick_init import quick_init

MOMENTS_MAX = 64


@quick_init
@dataclass(frozen=True, slots=True)
class Moment:
    """One thing that happened, at `at_ms` of this process's monotonic clock."""

    at_ms: int
    state: str
    what: str
    detail: str | int

    def __str__(self) -> str:
        return f"{self.at_ms} ms [{self.state}] {self.what} {self.detail}".rstrip()


class Story:
    """A ring of moments. Cheap to add to: nothing is formatted before somebody asks."""

    __slots__ = ("_moments",)

    def __init__(self) -> None:
        self._moments: deque[Moment] = deque(maxlen=MOMENTS_MAX)

    def note(self, at_ms: int, state: str, what: str, detail: str | int = "") -> None:
        """Remember this, and forget the oldest."""
        self._moments.append(Moment(at_ms, state, what, detail))

    def lines(self) -> list[str]:
        """Oldest first."""
        return [str(moment) for moment in self._moments]


class BrokenInvariant(RuntimeError):
    """Something that must not happen did. It carries the live's story; nobody handles it."""

    def __init__(self, what: str, live_id: str, story: Story) -> None:
        super().__init__("\n  ".join([f"live {live_id}: {what}", *story.lines()]))
        self.live_id = live_id
