"""What a live is created with. Checked once, at the edge; stored with the live.

PURE.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, Final

_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}")
_INT64_MAX = 2**63 - 1
_DAY_MS = 86_400_000

SPEED_MIN, SPEED_MAX = 0.5, 2.0
SIDE_PX_MIN, SIDE_PX_MAX = 64, 1920
# H.264 codes macroblocks of 16x16 and colour at half size: even sides need no hidden cropping of
# half a colour sample.
SIDE_PX_STEP = 2

_RANGES: Final[Mapping[str, tuple[int, int]]] = {
    "width_px": (SIDE_PX_MIN, SIDE_PX_MAX),
    "height_px": (SIDE_PX_MIN, SIDE_PX_MAX),
    "seed": (0, _INT64_MAX),
    "idle_timeout_ms": (1_000, 7 * _DAY_MS),
    "length_ms_max": (1_000, 7 * _DAY_MS),
    "absent_viewer_ms": (0, _DAY_MS),
}


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
    length_ms_max: int = _DAY_MS
    absent_viewer_ms: int = 0

    def check(self) -> "LiveOptions":
        """Itself, when every value is within its bounds. Raises BadOptions."""
        for name in ("look", "voice"):
            value: Any = getattr(self, name)
            if not isinstance(value, str) or not _NAME.fullmatch(value):
                raise BadOptions(
                    name, "a name of 1 to 64 of a-z 0-9 _ . -, a letter or digit first"
                )
        speed: Any = self.speed
        if isinstance(speed, bool) or not isinstance(speed, int | float):
            raise BadOptions("speed", "must be a number")
        if not math.isfinite(speed) or not SPEED_MIN <= speed <= SPEED_MAX:
            raise BadOptions("speed", f"must be {SPEED_MIN} to {SPEED_MAX}")
        for name, (least, most) in _RANGES.items():
            value = getattr(self, name)
            if value is None and name == "seed":
                continue
            if isinstance(value, bool) or not isinstance(value, int):
                raise BadOptions(name, "must be an integer")
            if not least <= value <= most:
                raise BadOptions(name, f"must be {least} to {most}")
        for name in ("width_px", "height_px"):
            if getattr(self, name) % SIDE_PX_STEP:
                raise BadOptions(name, "must be even")
        return self

    @classmethod
    def from_mapping(cls, given: Mapping[str, object]) -> "LiveOptions":
        """Checked options from a JSON object; unknown names are refused. Raises BadOptions."""
        known = {f.name for f in fields(cls)}
        for name in given:
            if name not in known:
                raise BadOptions(str(name)[:64], f"there is no such option; known: {sorted(known)}")
        values: dict[str, Any] = dict(given)
        return cls(**values).check()

    def as_mapping(self) -> dict[str, object]:
        """A JSON object that `from_mapping` reads back."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def as_json(self) -> str:
        """The same as text, as the event that opens a live carries it."""
        return _as_json(self)


@lru_cache(maxsize=256)
def _as_json(options: LiveOptions) -> str:
    """Kept, for nearly all lives are opened with one of a few options."""
    return json.dumps(options.as_mapping(), separators=(",", ":"))
