"""How far mouth and sound are apart in ten minutes of speech, as a viewer's decoder gives them.

Voice, motion, renderer, encoder and container at the speed that they have, every picture decoded
again; the worst minute counts. A picture that leads is as wrong here as one that lags.
"""

from typing import Any

from tests.bench.figures import row
from tests.support.av_sync import skew, speak

MINUTES = 10
SIZE_PX = 96
ALLOWED_MS = 40.0


def rows() -> list[dict[str, Any]]:
    """One row; what each minute gave stands beside it."""
    spoken = speak(MINUTES * 60, SIZE_PX)
    seen = skew(spoken, stretch_s=60)
    return [
        row(
            "av_skew_ms",
            seen.worst_ms,
            "ms, worst minute of ten",
            "required, at most",
            ALLOWED_MS,
            mouth_ms=[round(value, 1) for value in seen.mouth_ms],
            sound_ms=[round(value, 1) for value in seen.sound_ms],
            pts_ms=round(seen.pts_ms, 3),
        )
    ]
