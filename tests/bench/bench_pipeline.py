"""How many lives one core carries through all four stages, and where its time goes.

Processor time of the stages' processes while two lives speak, so other load on the machine does
not change the figures much. Needed are six lives at 256 x 256 on two cores.
"""

import asyncio
from typing import Any

from tests.bench.figures import load, row
from tests.bench.paced import Held, PacedLives

LIVES = 2
SPEAK_S = 12.0
NEEDED_LIVES_PER_CORE = {256: 3.0, 512: 1.0}


async def _held(size_px: int) -> Held:
    async with PacedLives(LIVES, size_px) as lives:
        lives.add(LIVES)
        return await lives.speak(SPEAK_S)


def _rows(size_px: int) -> list[dict[str, Any]]:
    held = asyncio.run(_held(size_px))
    per_live = held.cores_per_live
    needed = "needed, of 25 frames a second"
    total = sum(held.cpu_s.values())
    return [
        row(
            f"pipeline_lives_per_core_{size_px}",
            1 / per_live,
            "lives at 25 fps",
            needed,
            NEEDED_LIVES_PER_CORE[size_px],
            load=load(),
            speech_share=round(held.speech_ticks / max(1, held.ticks), 2),
        ),
        *(
            row(
                f"pipeline_share_{size_px}_{stage}",
                100 * used / total,
                "% of the pipeline's time",
                ms_per_tick=round(1000 * used / (held.ticks or 1), 3),
            )
            for stage, used in held.cpu_s.items()
        ),
    ]


def rows() -> list[dict[str, Any]]:
    """At 256 x 256 and at 512 x 512."""
    return [*_rows(256), *_rows(512)]
