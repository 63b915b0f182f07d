"""The bundled render stage: face parameters to pictures, many lives in one batch.

In comes TICK_MOTION (PCM, face parameters float32), out goes TICK_PICTURE (the same PCM, the frame
as I420 of the live's size). Whatever else comes is handed on as it is.

On a GPU the frames stay there where the next stage takes them there; else a batch's come down in
one copy. Face parameters always come through host memory: they are 96 bytes.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, cast

import numpy as np
import torch

from gpu_stages.face.head import BadSize, HeadRenderer, check_size
from gpu_stages.face.looks import LOOK_NAMES, BadLook
from gpu_stages.face.parameters import FACE_PARAMETERS
from gpu_stages.header import MessageKind
from gpu_stages.live_table import name_code
from gpu_stages.stage import LiveRow, Message, Outbox, Part, Stage

_PARAMETER_BYTES = FACE_PARAMETERS * 4
_LOOK_OF_CODE = {name_code(name): index for index, name in enumerate(LOOK_NAMES)}


class RenderStage(Stage):
    """Settings: `warm_sizes_px`, a list of [width, height] prepared before the stage is ready."""

    name: ClassVar[str] = "render"
    batch_max: int = 8
    wait_us_max: int = 0

    def __init__(self) -> None:
        self._renderer: HeadRenderer | None = None
        self._on_device = False
        self._told: set[int] = set()  # live slots whose wrong look or size was reported
        self._frames = 0
        self._busy_us = 0

    def load(self, settings: Mapping[str, object], device: str) -> None:
        """Build the looks. Raises ValueError for a setting that is not there or not right."""
        sizes = _sizes(settings)
        if device == "cpu":
            torch.set_num_threads(1)
        self._renderer = HeadRenderer(device)
        self._on_device = torch.device(device).type != "cpu"
        for width_px, height_px in sizes:
            self._renderer.warm_up(width_px, height_px)

    def process(self, batch: Sequence[Message], rows: Sequence[LiveRow], out: Outbox) -> None:
        """Draw the ticks of the batch, those of one size together, and send them in order."""
        if self._renderer is None:
            raise RuntimeError("process() before load()")
        began_us = time.monotonic_ns() // 1000
        by_size: dict[tuple[int, int], list[int]] = {}
        for i, (message, row) in enumerate(zip(batch, rows, strict=True)):
            if message.header.kind is MessageKind.TICK_MOTION:
                by_size.setdefault(self._size(message, row, out), []).append(i)
        stay = self._on_device and out.keeps_on_device()
        frames: dict[int, Part] = {}
        for (width_px, height_px), members in by_size.items():
            vectors = np.stack([_vector(batch[i]) for i in members])
            looks = [self._look(batch[i], rows[i], out) for i in members]
            drawn = self._renderer.render(torch.from_numpy(vectors), looks, width_px, height_px)
            pictures = list(drawn) if stay else _on_host(drawn)
            frames.update(zip(members, cast(Sequence[Part], pictures), strict=True))
        now_us = time.monotonic_ns() // 1000
        for i, message in enumerate(batch):
            if i not in frames:
                out.send(message.header, message.parts)
                continue
            fed, voiced, _, _ = message.header.stamps_us
            header = replace(
                message.header,
                kind=MessageKind.TICK_PICTURE,
                stamps_us=(fed, voiced, now_us, 0),
            )
            out.send(header, (message.parts[0], frames[i]))
        self._frames += len(frames)
        self._busy_us += now_us - began_us

    def forget(self, live_slot: int) -> None:
        """A new live in this slot may have a wrong look again."""
        self._told.discard(live_slot)

    def stats(self) -> Mapping[str, float]:
        """Frames drawn and the time that took."""
        return {"render_frames": self._frames, "render_busy_s": self._busy_us / 1e6}

    def _look(self, message: Message, row: LiveRow, out: Outbox) -> int:
        index = _LOOK_OF_CODE.get(row.look)
        if index is None:
            self._tell(message, out, str(BadLook(f"with the code {row.look:#010x}")))
            return 0
        return index

    def _size(self, message: Message, row: LiveRow, out: Outbox) -> tuple[int, int]:
        try:
            check_size(row.width_px, row.height_px)
        except BadSize as error:
            self._tell(message, out, str(error))
            return 256, 256
        return row.width_px, row.height_px

    def _tell(self, message: Message, out: Outbox, reason: str) -> None:
        """Report a wrong option once per live. The picture goes on, in the default look or size:
        the viewer's stream must stay whole."""
        slot = message.header.live_slot
        if slot not in self._told:
            self._told.add(slot)
            header = replace(message.header, kind=MessageKind.SEGMENT_FAILED)
            out.send(header, (reason.encode(),))


def _on_host(drawn: torch.Tensor) -> list[memoryview]:
    """The frames of a batch in host memory, by one copy."""
    return [picture.data for picture in drawn.cpu().numpy()]


def _vector(message: Message) -> "np.ndarray[tuple[int], np.dtype[np.float32]]":
    part = message.parts[1]
    if part.nbytes != _PARAMETER_BYTES:
        raise ValueError(f"face parameters: {part.nbytes} bytes, not {_PARAMETER_BYTES}")
    return np.frombuffer(part, dtype=np.float32)


def _sizes(settings: Mapping[str, object]) -> list[tuple[int, int]]:
    unknown = set(settings) - {"warm_sizes_px"}
    if unknown:
        raise ValueError(f"render: unknown settings {sorted(unknown)}")
    given = settings.get("warm_sizes_px", [[256, 256]])
    if not isinstance(given, list):
        raise ValueError(f"render: warm_sizes_px must be a list of [width, height], not {given!r}")
    sizes: list[tuple[int, int]] = []
    for pair in given:
        if not (isinstance(pair, list) and len(pair) == 2):
            raise ValueError(f"render: warm_sizes_px: {pair!r} is not [width, height]")
        width_px, height_px = pair
        if not (isinstance(width_px, int) and isinstance(height_px, int)):
            raise ValueError(f"render: warm_sizes_px: {pair!r} is not [width, height]")
        check_size(width_px, height_px)
        sizes.append((width_px, height_px))
    return sizes
