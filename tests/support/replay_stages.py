"""Stages that cost nothing, for replays: noise for a voice, one grey for a picture.

What they make depends on seed, text and frame alone, as it has to.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np

from gpu_stages.header import MessageKind
from gpu_stages.live_table import LiveRow
from gpu_stages.speech.voice_parts import LOUDNESS_HOP, PHONEME_DTYPE, VoiceParts
from gpu_stages.stage import Message, Outbox, Stage
from schemas.media import TICK_SAMPLES, TickFlag

TICKS_PER_CHARACTER = 1
LOUDEST = 8_000


def voice_of(text: str, seed: int, loudest: int = LOUDEST) -> VoiceParts:
    """40 ms of noise for each character; a word is heard as one sound."""
    length = len(text) * TICKS_PER_CHARACTER * TICK_SAMPLES
    pcm = np.random.default_rng(seed).integers(-loudest, loudest, length, np.int16)
    rows = [
        (at * TICK_SAMPLES, (at + 1) * TICK_SAMPLES, ord(sign) if sign.isalpha() else 32, 0, 0)
        for at, sign in enumerate(text)
    ]
    loudness = np.full(length // LOUDNESS_HOP, 0.5, np.float32)
    return VoiceParts(pcm, np.array(rows, PHONEME_DTYPE), loudness)


class NoiseVoice(Stage):
    """Settings: `loudest`, so that two configurations can differ."""

    name: ClassVar[str] = "speech"

    def load(self, settings: Mapping[str, object], device: str) -> None:
        self._loudest = int(str(settings.get("loudest", LOUDEST)))
        if self._loudest <= 0:
            raise ValueError("`loudest` must be above nothing")

    def process(self, batch: Sequence[Message], rows: Sequence[LiveRow], out: Outbox) -> None:
        for message in batch:
            header = message.header
            text = bytes(message.parts[0]).decode()
            whole = voice_of(text, header.seed, self._loudest)
            skip = max(0, header.sample_start)
            voice = whole.cut(skip, len(whole.pcm), 0)
            flags = TickFlag.FIRST_OF_SEGMENT | TickFlag.LAST_OF_SEGMENT
            out.send(
                replace(
                    header,
                    kind=MessageKind.SEGMENT_VOICE,
                    sample_start=skip,
                    speech_samples=len(voice.pcm),
                    flags=flags,
                ),
                voice.parts(),
            )


class BrokenVoice(NoiseVoice):
    """Speaks no text with the word "unspeakable", and nothing at all when `loudest` is 1."""

    def process(self, batch: Sequence[Message], rows: Sequence[LiveRow], out: Outbox) -> None:
        texts = [bytes(message.parts[0]).decode() for message in batch]
        if self._loudest == 1 or any("unspeakable" in text for text in texts):
            raise RuntimeError("no voice for this")
        super().process(batch, rows, out)


class GreyPicture(Stage):
    """I420 of the live's size, a little brighter with each frame."""

    name: ClassVar[str] = "render"

    def load(self, settings: Mapping[str, object], device: str) -> None:
        pass

    def process(self, batch: Sequence[Message], rows: Sequence[LiveRow], out: Outbox) -> None:
        for message, row in zip(batch, rows, strict=True):
            size = row.width_px * row.height_px * 3 // 2
            grey = 16 + message.header.frame_index % 200
            header = replace(message.header, kind=MessageKind.TICK_PICTURE)
            out.send(header, (message.parts[0], np.full(size, grey, np.uint8)))
