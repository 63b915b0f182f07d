"""The head that everybody sees: face parameters in, I420 frames out, batched over lives."""

from collections.abc import Sequence

import torch
from torch import Tensor

from gpu_stages.face.backdrop import Backdrop
from gpu_stages.face.foreground import Foreground, Item, Person
from gpu_stages.face.looks import LOOKS
from gpu_stages.face.model import back_hair_of
from gpu_stages.face.pose import clean
from gpu_stages.face.textures import Frame, Sheet, back_sheet, frame_of, head_sheet

_TOGETHER = 8  # items drawn at once: it bounds the scratch memory that is kept
SIZE_MIN_PX = 64
SIZE_MAX_PX = 1024


class BadSize(ValueError):
    """A frame size that the renderer does not draw."""


def check_size(width_px: int, height_px: int) -> None:
    """Raises `BadSize` unless both are even and within 64..1024."""
    for name, value in (("width_px", width_px), ("height_px", height_px)):
        if value % 2 or not SIZE_MIN_PX <= value <= SIZE_MAX_PX:
            raise BadSize(f"{name}={value}: must be even, {SIZE_MIN_PX}..{SIZE_MAX_PX}")


class _Size:
    """Everything that is kept for one frame size."""

    def __init__(self, frame: Frame, device: torch.device) -> None:
        self.frame = frame
        self._backdrops = [Backdrop(frame, hair, device) for hair in (False, True)]
        self.foreground = Foreground(frame, device)
        self.sheets: dict[int, tuple[Sheet, Sheet, Tensor, Backdrop]] = {}

    def add(self, index: int, person: Person) -> None:
        """Prepare a look's textures, unless they are there."""
        if index not in self.sheets:
            head = head_sheet(person.baked, self.frame)
            back = back_sheet(person.baked, person.look, self.frame)
            backdrop = self._backdrops[back_hair_of(person.look) is not None]
            self.sheets[index] = head, back, backdrop.still(back), backdrop


class HeadRenderer:
    """Draws heads on one device. Reuses its scratch memory, so one thread at a time.

    The same parameters, look and size give the same bytes on one device, alone or in any batch.
    """

    def __init__(self, device: str = "cpu") -> None:
        self._device = torch.device(device)
        self._people: dict[int, Person] = {}
        self._sizes: dict[tuple[int, int], _Size] = {}

    def warm_up(self, width_px: int, height_px: int) -> None:
        """Prepare every look for this size, so that the first frame is not late."""
        check_size(width_px, height_px)
        with torch.inference_mode():
            self._prepare(range(len(LOOKS)), width_px, height_px)

    def _prepare(self, looks: Sequence[int], width_px: int, height_px: int) -> _Size:
        size = self._sizes.get((width_px, height_px))
        if size is None:
            size = _Size(frame_of(width_px, height_px), self._device)
            self._sizes[width_px, height_px] = size
        for index in looks:
            if index not in size.sheets:
                if index not in self._people:
                    self._people[index] = Person(LOOKS[index], self._device)
                size.add(index, self._people[index])
        return size

    def render(
        self, parameters: Tensor, looks: Sequence[int], width_px: int, height_px: int
    ) -> Tensor:
        """Frames uint8 [B, height*3/2, width]: I420, BT.601 limited range.

        `parameters` is float32 [B, FACE_PARAMETERS], `looks` B indexes of LOOKS. Raises `BadSize`,
        and ValueError for vectors of another length.
        """
        check_size(width_px, height_px)
        with torch.inference_mode():
            size = self._prepare(looks, width_px, height_px)
            items = [
                Item.of(clean(row), self._people[look], size.sheets[look][0])
                for row, look in zip(parameters.tolist(), looks, strict=True)
            ]
            out = torch.empty(
                len(items), height_px * width_px * 3 // 2, dtype=torch.uint8, device=self._device
            )
            for frame, item, look in zip(out.unbind(0), items, looks, strict=True):
                _, back, still, backdrop = size.sheets[look]
                backdrop.draw(frame, item.pose, back, still)
            for at in range(0, len(items), _TOGETHER):
                part = slice(at, at + _TOGETHER)
                size.foreground.draw(items[part], out[part])
            return out.view(len(items), height_px * 3 // 2, width_px)
