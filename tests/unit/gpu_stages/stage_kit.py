"""Trivial stages for tests: no model, no numpy, and every way to misbehave on demand.

Texts steer them: "boom" raises, "die" ends the process, "hang" never returns.
"""

import os
import signal
import struct
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from gpu_stages.header import Header, MessageKind
from gpu_stages.live_table import LiveRow
from gpu_stages.stage import Message, Outbox, Stage
from schemas.media import TICK_SAMPLES, TickFlag


def misbehave(text: str) -> None:
    if text == "boom":
        raise ValueError("this text cannot be spoken")
    if text == "die":
        print("about to die", file=sys.stderr, flush=True)
        os._exit(9)
    if text == "hang":
        time.sleep(600)


class KitSpeech(Stage):
    """One SEGMENT_VOICE for each text; its single part is the text."""

    name: ClassVar[str] = "speech"

    def load(self, settings: Mapping[str, object], device: str) -> None:
        self.prefix = str(settings.get("prefix", ""))
        if settings.get("fail_load"):
            print("the model file is missing", file=sys.stderr, flush=True)
            raise FileNotFoundError("model.bin")
        if settings.get("slow_load"):
            time.sleep(600)
        if settings.get("stubborn"):
            signal.signal(signal.SIGTERM, signal.SIG_IGN)

    def process(self, batch: Sequence[Message], rows: Sequence[LiveRow], out: Outbox) -> None:
        for message, row in zip(batch, rows, strict=True):
            text = bytes(message.parts[0]).decode()
            misbehave(text)
            if message.header.utterance < row.utterance:
                continue
            if text == "unspeakable":
                failed = replace(message.header, kind=MessageKind.SEGMENT_FAILED)
                out.send(failed, [b"no such word"])
                continue
            voice = replace(message.header, kind=MessageKind.SEGMENT_VOICE)
            out.send(voice, [(self.prefix + text).encode()])


class KitMotion(Stage):
    """One tick for each character, paced by credits; idle ticks between."""

    name: ClassVar[str] = "motion"
    outputs_per_message_max: ClassVar[int] = 0

    def load(self, settings: Mapping[str, object], device: str) -> None:
        self.voices: dict[int, deque[tuple[Header, bytes, int]]] = {}
        self.frames: dict[int, int] = {}
        self.forgotten = 0

    def process(self, batch: Sequence[Message], rows: Sequence[LiveRow], out: Outbox) -> None:
        for message in batch:
            queue = self.voices.setdefault(message.header.live_slot, deque())
            queue.append((message.header, bytes(message.parts[0]), 0))

    def on_tick(self, rows: Sequence[LiveRow], now_us: int, out: Outbox) -> None:
        for row in rows:
            frame = self.frames.setdefault(row.live_slot, row.start_frame)
            while frame <= row.credit_frame and out.room():
                self._tick(row, frame, out)
                frame += 1
            self.frames[row.live_slot] = frame

    def _tick(self, row: LiveRow, frame: int, out: Outbox) -> None:
        header = Header(
            MessageKind.TICK_MOTION, row.live_slot, row.binding, row.epoch, frame_index=frame
        )
        queue = self.voices.get(row.live_slot)
        letter = b"."
        if queue:
            voice, text, at = queue.popleft()
            letter = text[at : at + 1]
            last = at + 1 == len(text)
            header = replace(
                header,
                utterance=voice.utterance,
                segment_id=voice.segment_id,
                sample_start=at * TICK_SAMPLES,
                speech_samples=TICK_SAMPLES,
                flags=TickFlag.LAST_OF_SEGMENT if last else TickFlag.NONE,
            )
            if not last:
                queue.appendleft((voice, text, at + 1))
        out.send(header, [letter, struct.pack("<q", row.keyframe_requests)])

    def forget(self, live_slot: int) -> None:
        self.voices.pop(live_slot, None)
        self.frames.pop(live_slot, None)
        self.forgotten += 1

    def stats(self) -> Mapping[str, float]:
        return {"forgotten": self.forgotten}


class KitRender(Stage):
    """The letter, written larger. `steal` keeps a view of a slot, which a stage must not."""

    name: ClassVar[str] = "render"

    def load(self, settings: Mapping[str, object], device: str) -> None:
        self.steal = bool(settings.get("steal"))
        self.stolen: memoryview | None = None

    def process(self, batch: Sequence[Message], rows: Sequence[LiveRow], out: Outbox) -> None:
        for message in batch:
            if self.stolen is not None:
                bytes(self.stolen)
            if self.steal:
                self.stolen = message.parts[0]
            picture = replace(message.header, kind=MessageKind.TICK_PICTURE)
            out.send(picture, [*message.parts[:2], bytes(message.parts[0]) * 1000])


class KitEncode(Stage):
    """The letter as sound and as picture."""

    name: ClassVar[str] = "encode"

    def load(self, settings: Mapping[str, object], device: str) -> None:
        pass

    def process(self, batch: Sequence[Message], rows: Sequence[LiveRow], out: Outbox) -> None:
        for message in batch:
            letter = bytes(message.parts[0])
            media = replace(message.header, kind=MessageKind.TICK_MEDIA)
            out.send(media, [letter, letter.upper(), bytes(message.parts[1])[:3]])


class NotAStage:
    pass
