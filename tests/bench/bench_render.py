"""How many frames one core draws.

Against what is needed: six speaking lives at 256 x 256 take 150 frames a second, and one core is
to draw 60 a second at 512 x 512.
"""

import time
from collections.abc import Callable
from typing import Any

import torch

from gpu_stages.face.head import HeadRenderer
from gpu_stages.face.looks import LOOKS
from gpu_stages.face.parameters import FACE_PARAMETERS, Face

_NEEDED_FPS = {256: 150.0, 512: 60.0}
_SECONDS = 1.5


def speaking(count: int) -> torch.Tensor:
    """Face vectors as in speech: the mouth is busy, the head turns a little."""
    made = torch.rand(count, FACE_PARAMETERS, generator=torch.Generator().manual_seed(3))
    head = slice(Face.HEAD_YAW, Face.HEAD_Y + 1)
    made[:, head] = made[:, head] * 0.3 - 0.15
    return made


def frames_per_s(draw: Callable[[], object], frames: int) -> float:
    """Frames of one second of this process's own time on its core, other processes left out.

    The best of many short runs: what the code needs, not what a busy machine leaves.
    """
    for _ in range(5):
        draw()
    best = float("inf")
    end = time.perf_counter() + _SECONDS
    while time.perf_counter() < end:
        began = time.process_time()
        for _ in range(3):
            draw()
        best = min(best, (time.process_time() - began) / (3 * frames))
    return 1.0 / best


def _row(name: str, value: float, against: str, against_value: float) -> dict[str, Any]:
    return {
        "name": name,
        "value": round(value, 1),
        "unit": "frames/s",
        "against": against,
        "against_value": round(against_value, 1),
        "ratio": round(value / against_value, 2),
    }


def rows() -> list[dict[str, Any]]:
    """One live alone, six in a batch, and 512 x 512; each on one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        renderer = HeadRenderer()
        got: list[dict[str, Any]] = []
        for size, batch, name in (
            (256, 1, "render_fps_per_core_256"),
            (256, 6, "render_fps_per_core_256_batch6"),
            (512, 1, "render_fps_per_core_512"),
            (512, 6, "render_fps_per_core_512_batch6"),
        ):
            looks = [i % len(LOOKS) for i in range(batch)]
            vectors = speaking(batch)
            fps = frames_per_s(
                lambda v=vectors, k=looks, s=size: renderer.render(v, k, s, s), batch
            )
            needed = f"needed: {_NEEDED_FPS[size]:.0f} a second"
            got.append(_row(name, fps, needed, _NEEDED_FPS[size]))
        return got
    finally:
        torch.set_num_threads(threads)
