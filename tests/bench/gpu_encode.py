"""How many 512x512 pictures a second each H.264 encoder takes from device memory, one live alone.

Where an encoder does not work on this machine its reason is kept instead of a figure. Those that
read host memory have the copy down in their time, as they have it in the pipeline.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from gpu_stages.encode.choice import ORDER, choose, open_encoder
from gpu_stages.encode.video import VideoCodec, VideoSettings
from gpu_stages.face.head import HeadRenderer
from gpu_stages.face.idle_life import idle_frames
from gpu_stages.stage import DevicePart
from tests.bench.figures import row

SIZE_PX = 512
PICTURES = 50
ROUNDS = 4


@dataclass(frozen=True, slots=True)
class Found:
    """Pictures per second by encoder, and why an encoder has no figure."""

    per_s: dict[str, float] = field(default_factory=dict[str, float])
    refused: dict[str, str] = field(default_factory=dict[str, str])

    def rows(self) -> list[dict[str, Any]]:
        """Each encoder in hardware beside the one in software."""
        software = self.per_s.get("libx264")
        return [
            row(f"encode_fps_512_{name}", per_s, "pictures per s", "libx264", software)
            for name, per_s in self.per_s.items()
            if name != "libx264"
        ]


def drawn(device: str) -> Any:
    """Pictures of a face on the device: uint8 [PICTURES, I420 bytes]."""
    faces = torch.from_numpy(idle_frames(3, 0, PICTURES))
    return HeadRenderer(device).render(faces, [0] * PICTURES, SIZE_PX, SIZE_PX).flatten(1)


def measure(device: str, pictures: Sequence[Any]) -> Found:
    """Every encoder of H.264 that this machine might have, by name."""
    found = Found()
    parts = [DevicePart(picture.data_ptr(), picture.numel()) for picture in pictures]
    for name in ORDER[VideoCodec.H264]:
        chosen = choose(VideoSettings(encoder=name), device)
        if chosen.settings.encoder != name:
            found.refused[name] = chosen.refused[0]
            continue
        encoder = open_encoder(chosen.settings, SIZE_PX, SIZE_PX)
        try:
            encoder.encode(parts[0], keyframe=True)
            began_s = time.monotonic()
            for _ in range(ROUNDS):
                for part in parts:
                    encoder.encode(part, keyframe=False)
            found.per_s[name] = ROUNDS * len(parts) / (time.monotonic() - began_s)
        finally:
            encoder.close()
    return found
