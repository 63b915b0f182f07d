"""Rows of the result, and the percentiles in them."""

import math
import os
from collections.abc import Sequence
from typing import Any

Row = dict[str, Any]


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of all do not exceed. Raises ValueError for none."""
    if not values:
        raise ValueError("nothing was measured")
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def row(
    name: str, value: float, unit: str, against: str = "", rival: float | None = None, **more: Any
) -> Row:
    """One figure beside what it is compared with; `more` are further keys of the row."""
    return {
        "name": name,
        "value": round(value, 3),
        "unit": unit,
        "against": against,
        "against_value": None if rival is None else round(rival, 3),
        "ratio": round(value / rival, 3) if rival else None,
        **more,
    }


def load() -> float:
    """How many processes wanted a core over the last minute: who else measured here."""
    return round(os.getloadavg()[0], 1)
