"""The same live and segment give the same bits: alone, among others, and taken up in the middle.

All four bundled stages, one after the other in this process, their messages in batches as the loop
forms them. What leaves each stage is hashed.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from gpu_stages.live_table import LiveRow, name_code
from gpu_stages.stage import Message, Stage
from gpu_stages.stages.encode import EncodeStage
from gpu_stages.stages.motion import MotionStage
from gpu_stages.stages.render import RenderStage
from gpu_stages.stages.speech import SpeechStage
from schemas.media import TICK_SAMPLES
from tests.support.stage_fakes import FakeOutbox, live_row, text_message

SIZE_PX = 64
TEXTS = ("Papa put a map up.", "The quick brown fox.", "Bring a warm coat, because it is cold.")
LOOKS = ("clay", "studio", "aurora")
SKIP_TICKS = 12


@dataclass
class Pipeline:
    """Four stages, warm, used by one test after the other with fresh bindings."""

    speech: SpeechStage = field(default_factory=SpeechStage)
    render: RenderStage = field(default_factory=RenderStage)

    def __post_init__(self) -> None:
        self.speech.load({"voices": ["heart"]}, "cpu")
        self.render.load({"warm_sizes_px": [[SIZE_PX, SIZE_PX]]}, "cpu")

    def run(self, lives: Sequence[LiveRow], skip_ticks: int = 0) -> "Made":
        """Speak each live's text to its end; hashes by live of what left each stage."""
        motion, encode = MotionStage(), EncodeStage()
        motion.load({}, "cpu")
        encode.load({"threads": 1}, "cpu")
        made = Made()
        texts = [
            text_message(
                row,
                TEXTS[row.live_slot],
                seed=100 + row.live_slot,
                skip_samples=skip_ticks * TICK_SAMPLES,
            )
            for row in lives
        ]
        voices = self._speak(texts, lives)
        rows = {row.live_slot: row for row in lives}
        out = FakeOutbox()
        motion.process(voices, [rows[m.header.live_slot] for m in voices], out)
        frames = max(_ticks(voices, row.live_slot) for row in lives) + 5
        for frame in range(0, frames, 4):
            due = [_with_credit(row, frame + 3) for row in lives]
            motion.on_tick(due, 0, out)
            ticks = out.take()
            pictures = _through(self.render, ticks, rows)
            media = _through(encode, pictures, rows)
            made.add("voice", voices if not frame else ())
            made.add("motion", ticks)
            made.add("picture", pictures)
            made.add("media", media)
        for row in lives:
            self.speech.forget(row.live_slot)
        return made

    def _speak(self, texts: Sequence[Message], rows: Sequence[LiveRow]) -> list[Message]:
        out = FakeOutbox()
        self.speech.process(texts, rows, out)
        while self.speech.stats()["waiting"]:
            self.speech.on_tick(rows, 0, out)
        return out.take()


def _ticks(voices: Sequence[Message], live_slot: int) -> int:
    mine = [m.header.speech_samples for m in voices if m.header.live_slot == live_slot]
    return sum(-(-samples // TICK_SAMPLES) for samples in mine)


def _with_credit(row: LiveRow, frames: int) -> LiveRow:
    return live_row(
        row.live_slot,
        look=row.look,
        width_px=SIZE_PX,
        height_px=SIZE_PX,
        start_frame=row.start_frame,
        credit_frame=row.start_frame + frames,
    )


def _through(stage: Stage, messages: Sequence[Message], rows: dict[int, LiveRow]) -> list[Message]:
    out = FakeOutbox()
    for begin in range(0, len(messages), stage.batch_max):
        batch = messages[begin : begin + stage.batch_max]
        stage.process(batch, [rows[m.header.live_slot] for m in batch], out)
    return out.take()


@dataclass
class Made:
    """Hashes by stage and live, a message each."""

    hashes: dict[tuple[str, int], list[str]] = field(default_factory=dict)

    def add(self, stage: str, messages: Sequence[Message]) -> None:
        for message in messages:
            digest = hashlib.sha256()
            header = message.header
            key = (header.frame_index, header.sample_start, header.speech_samples, header.flags)
            digest.update(repr(key).encode())
            for part in message.parts:
                digest.update(bytes(part))
            self.hashes.setdefault((stage, header.live_slot), []).append(digest.hexdigest())

    def of(self, live_slot: int) -> dict[str, list[str]]:
        return {stage: got for (stage, slot), got in self.hashes.items() if slot == live_slot}


def lives(start_frame: int = 0) -> list[LiveRow]:
    return [
        live_row(
            slot,
            look=name_code(LOOKS[slot]),
            width_px=SIZE_PX,
            height_px=SIZE_PX,
            start_frame=start_frame,
        )
        for slot in range(3)
    ]


@pytest.fixture(scope="module")
def pipeline() -> Pipeline:
    return Pipeline()


@pytest.fixture(scope="module")
def together(pipeline: Pipeline) -> Made:
    return pipeline.run(lives())


def test_a_live_is_the_same_alone_and_among_others(pipeline: Pipeline, together: Made) -> None:
    for row in lives():
        alone = pipeline.run([row]).of(row.live_slot)
        among = together.of(row.live_slot)
        for stage in ("voice", "motion", "picture", "media"):
            count = len(alone[stage])
            assert count > 10 or stage == "voice"
            assert alone[stage] == among[stage][:count], f"{stage} of live {row.live_slot}"
    assert together.of(0)["picture"] != together.of(1)["picture"]


def test_the_same_again_is_the_same(pipeline: Pipeline, together: Made) -> None:
    assert pipeline.run(lives()).hashes == together.hashes


def test_a_new_owner_draws_the_rest_of_the_segment_as_it_was(
    pipeline: Pipeline, together: Made
) -> None:
    """Its samples and pictures from where the other one stopped; the first ticks are faded in."""
    settled = 3
    resumed = pipeline.run(lives(start_frame=SKIP_TICKS), skip_ticks=SKIP_TICKS)
    for row in lives():
        for stage in ("motion", "picture"):
            mine = resumed.of(row.live_slot)[stage]
            speaking = _ticks(
                pipeline._speak(
                    [text_message(row, TEXTS[row.live_slot], seed=100 + row.live_slot)], [row]
                ),
                row.live_slot,
            )
            first, last = SKIP_TICKS + settled, speaking - 1
            whole = together.of(row.live_slot)[stage]
            assert last - first > 5
            assert mine[settled : last - SKIP_TICKS] == whole[first:last], f"{stage}"
