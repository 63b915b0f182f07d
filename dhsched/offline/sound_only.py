"""Render and encode stages that make no picture, for replays that only want to be heard.

PURE.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, Final

from gpu_stages.config import StagesConfig
from gpu_stages.header import MessageKind
from gpu_stages.stage import LiveRow, Message, Outbox, Stage


class NoPicture(Stage):
    """Hands the sound of every tick on, without a picture."""

    name: ClassVar[str] = "render"

    def load(self, settings: Mapping[str, object], device: str) -> None:
        """Nothing to load; the settings of the renderer that it stands for are not looked at."""

    def process(self, batch: Sequence[Message], rows: Sequence[LiveRow], out: Outbox) -> None:
        """One message for each."""
        for message in batch:
            header = replace(message.header, kind=MessageKind.TICK_PICTURE)
            out.send(header, (message.parts[0],))


class NoCodec(Stage):
    """Ends every tick: its samples were taken before."""

    name: ClassVar[str] = "encode"

    def load(self, settings: Mapping[str, object], device: str) -> None:
        """Nothing to load."""

    def process(self, batch: Sequence[Message], rows: Sequence[LiveRow], out: Outbox) -> None:
        """One message for each."""
        for message in batch:
            out.send(replace(message.header, kind=MessageKind.TICK_MEDIA), (b"", b"", b""))


_IN_PLACE_OF: Final = {"render": "NoPicture", "encode": "NoCodec"}


def without_pictures(config: StagesConfig) -> StagesConfig:
    """The same stages as far as sound and motion go."""
    return replace(
        config,
        stages=tuple(
            replace(one, class_path=f"{__name__}:{_IN_PLACE_OF[one.name]}", settings={})
            if one.name in _IN_PLACE_OF
            else one
            for one in config.stages
        ),
    )
