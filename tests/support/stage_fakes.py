"""Stand-ins for the rings around a stage, and short ways to make its messages."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from gpu_stages.header import Header, MessageKind
from gpu_stages.live_table import LiveRow, name_code
from gpu_stages.stage import Message, NoRoom, Part, Stage


def part_view(part: Part) -> memoryview:
    """A part as it lies in a ring: read-only bytes."""
    raw = part.tobytes() if isinstance(part, np.ndarray) else bytes(part)
    return memoryview(raw)


@dataclass
class FakeOutbox:
    """Keeps what was sent. `free` is the ring's room; failures need none, as in the real one."""

    free: int = 1_000_000
    sent: list[Message] = field(default_factory=list)
    failed: list[tuple[Header, str]] = field(default_factory=list)

    def room(self) -> int:
        return self.free

    def send(self, header: Header, parts: Sequence[Part]) -> None:
        views = tuple(part_view(part) for part in parts)
        if header.kind is MessageKind.SEGMENT_FAILED:
            self.failed.append((header, bytes(views[0]).decode()))
            return
        if self.free <= 0:
            raise NoRoom
        self.free -= 1
        lengths = tuple(len(view) for view in views)
        self.sent.append(Message(replace(header, part_bytes=lengths), views))

    def take(self) -> list[Message]:
        """What was sent since the last time; the ring is empty again."""
        out, self.sent = self.sent, []
        self.free += len(out)
        return out


def live_row(live_slot: int = 0, **changes: object) -> LiveRow:
    """A bound live at 256 x 256 with the bundled voice."""
    row = LiveRow(
        live_slot=live_slot,
        binding=live_slot + 1,
        epoch=1,
        utterance=0,
        keyframe_requests=0,
        credit_frame=-1,
        start_frame=0,
        seed=1234 + live_slot,
        look=name_code("clay"),
        voice=name_code("heart"),
        width_px=256,
        height_px=256,
        speed=1.0,
        flags=0,
    )
    return replace(row, **changes)


def text_message(
    row: LiveRow,
    text: str,
    *,
    segment_id: int = 1,
    seed: int = 7,
    skip_samples: int = 0,
    utterance: int = 0,
) -> Message:
    """A SEGMENT_TEXT as the runtime makes it."""
    header = Header(
        MessageKind.SEGMENT_TEXT,
        row.live_slot,
        row.binding,
        row.epoch,
        utterance=utterance,
        segment_id=segment_id,
        sample_start=skip_samples,
        seed=seed,
        stamps_us=(1_000, 0, 0, 0),
    )
    return Message(header, (memoryview(text.encode()),))


def speak_all(stage: Stage, messages: Sequence[Message], rows: Sequence[LiveRow]) -> FakeOutbox:
    """Everything that a speech stage makes of these texts, however many turns it takes."""
    out = FakeOutbox()
    stage.process(messages, rows, out)
    while stage.stats()["waiting"]:
        stage.on_tick(rows, 0, out)
    return out
