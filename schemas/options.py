"""What a live is created with. Checked once, at the edge; stored with the live.

PURE.
"""

from collections.abc import Mapping
from dataclasses import dataclass


class BadOptions(ValueError):
    """The caller's fault. `field` names the option, the message says what it must be."""

    def __init__(self, field: str, detail: str) -> None:
        super().__init__(f"{field}: {detail}")
        self.field = field
        self.detail = detail


@dataclass(frozen=True, slots=True)
class LiveOptions:
    """`absent_viewer_ms` 0 is off; `seed` None lets the service choose one from the live's id."""

    look: str = "clay"
    voice: str = "heart"
    speed: float = 1.0
    width_px: int = 256
    height_px: int = 256
    seed: int | None = None
    idle_timeout_ms: int = 600_000
    length_ms_max: int = 86_400_000
    absent_viewer_ms: int = 0

    def check(self) -> "LiveOptions":
        """Itself, when every value is within its bounds. Raises BadOptions."""
        raise NotImplementedError

    @classmethod
    def from_mapping(cls, given: Mapping[str, object]) -> "LiveOptions":
        """Checked options from a JSON object; unknown names are refused. Raises BadOptions."""
        raise NotImplementedError

    def as_mapping(self) -> dict[str, object]:
        """A JSON object that `from_mapping` reads back."""
        raise NotImplementedError
