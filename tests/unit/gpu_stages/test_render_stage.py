"""The render stage: messages in, messages out."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from gpu_stages.face.head import HeadRenderer
from gpu_stages.face.parameters import FACE_PARAMETERS, Face
from gpu_stages.header import Header, MessageKind
from gpu_stages.live_table import LiveRow, name_code
from gpu_stages.stage import Message, Part
from gpu_stages.stages.render import RenderStage
from schemas.media import TICK_SAMPLES, TickFlag

SIZE = 64


class Kept:
    """An outbox that keeps what is sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[Header, list[bytes]]] = []

    def room(self) -> int:
        return 100

    def send(self, header: Header, parts: Sequence[Part]) -> None:
        self.sent.append((header, [bytes(part) for part in parts]))


@pytest.fixture(scope="module")
def stage() -> RenderStage:
    made = RenderStage()
    made.load({"warm_sizes_px": [[SIZE, SIZE]]}, "cpu")
    return made


def row(slot: int, look: str = "clay", width: int = SIZE, height: int = SIZE) -> LiveRow:
    return LiveRow(
        live_slot=slot, binding=1, epoch=1, utterance=0, keyframe_requests=0, credit_frame=9,
        start_frame=0, seed=0, look=name_code(look), voice=0, width_px=width, height_px=height,
        speed=1.0, flags=0,
    )  # fmt: skip


def tick(slot: int, frame: int = 3, **values: float) -> Message:
    vector = np.zeros(FACE_PARAMETERS, np.float32)
    for name, value in values.items():
        vector[Face[name]] = value
    pcm = np.arange(TICK_SAMPLES, dtype=np.int16)
    header = Header(
        MessageKind.TICK_MOTION, slot, 1, 1, frame_index=frame, segment_id=5, sample_start=960,
        speech_samples=960, flags=TickFlag.LAST_OF_SEGMENT, stamps_us=(11, 12, 0, 0),
    )  # fmt: skip
    return Message(header, (memoryview(pcm).cast("B"), memoryview(vector).cast("B")))


def test_a_tick_becomes_a_picture_with_the_same_sound(stage: RenderStage) -> None:
    out = Kept()
    message = tick(0, JAW_OPEN=0.5)
    stage.process([message], [row(0)], out)
    [(header, (pcm, picture))] = out.sent
    assert pcm == bytes(message.parts[0])
    assert header.kind is MessageKind.TICK_PICTURE
    assert (header.frame_index, header.segment_id, header.sample_start) == (3, 5, 960)
    assert header.flags == TickFlag.LAST_OF_SEGMENT
    assert header.stamps_us[:2] == (11, 12)
    assert header.stamps_us[2] > 0
    vector = torch.zeros(1, FACE_PARAMETERS)
    vector[0, Face.JAW_OPEN] = 0.5
    expected = HeadRenderer().render(vector, [0], SIZE, SIZE)
    assert picture == expected.numpy().tobytes()


def test_lives_of_many_sizes_keep_their_order(stage: RenderStage) -> None:
    out = Kept()
    rows = [row(0), row(1, "studio", 96, 64), row(2, "aurora"), row(3, "clay", 96, 64), row(0)]
    batch = [tick(r.live_slot, frame=n) for n, r in enumerate(rows)]
    stage.process(batch, rows, out)
    assert [header.live_slot for header, _ in out.sent] == [0, 1, 2, 3, 0]
    assert [header.frame_index for header, _ in out.sent] == [0, 1, 2, 3, 4]
    assert [len(parts[1]) for _, parts in out.sent] == [
        r.width_px * r.height_px * 3 // 2 for r in rows
    ]
    assert out.sent[0][1][1] != out.sent[2][1][1]


def test_other_messages_go_on_as_they_are(stage: RenderStage) -> None:
    out = Kept()
    failed = Message(
        Header(MessageKind.SEGMENT_FAILED, 2, 1, 1, segment_id=8), (memoryview(b"no voice"),)
    )
    stage.process([failed, tick(1)], [row(2), row(1)], out)
    assert out.sent[0] == (failed.header, [b"no voice"])
    assert out.sent[1][0].kind is MessageKind.TICK_PICTURE


def test_a_wrong_look_is_told_once_and_drawn_as_the_default(stage: RenderStage) -> None:
    out = Kept()
    for _ in range(3):
        stage.process([tick(4)], [row(4, "marble")], out)
    kinds = [header.kind for header, _ in out.sent]
    assert kinds == [MessageKind.SEGMENT_FAILED] + [MessageKind.TICK_PICTURE] * 3
    assert b"clay, studio, aurora" in out.sent[0][1][0]
    stage.process([tick(5)], [row(5)], out)
    assert out.sent[-1][1][1] == out.sent[1][1][1]
    stage.forget(4)
    stage.process([tick(4)], [row(4, "marble")], out)
    assert [header.kind for header, _ in out.sent].count(MessageKind.SEGMENT_FAILED) == 2


def test_a_wrong_size_is_told_and_drawn_at_256(stage: RenderStage) -> None:
    out = Kept()
    stage.process([tick(6)], [row(6, width=2048)], out)
    assert out.sent[0][0].kind is MessageKind.SEGMENT_FAILED
    assert b"width_px=2048" in out.sent[0][1][0]
    assert len(out.sent[1][1][1]) == 256 * 256 * 3 // 2


def test_a_vector_of_another_length_is_an_error(stage: RenderStage) -> None:
    good = tick(0)
    short = Message(good.header, (good.parts[0], good.parts[1][:-4]))
    with pytest.raises(ValueError, match="face parameters"):
        stage.process([short], [row(0)], Kept())


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"sizes": []}, "unknown settings"),
        ({"warm_sizes_px": 256}, "must be a list"),
        ({"warm_sizes_px": [[256]]}, "is not"),
        ({"warm_sizes_px": [["256", 256]]}, "is not"),
        ({"warm_sizes_px": [[256, 255]]}, "must be even"),
    ],
)
def test_wrong_settings_stop_the_start(settings: dict[str, object], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        RenderStage().load(settings, "cpu")


def test_frames_and_time_are_counted(stage: RenderStage) -> None:
    before = stage.stats()["render_frames"]
    stage.process([tick(0), tick(1)], [row(0), row(1)], Kept())
    assert stage.stats()["render_frames"] == before + 2
    assert stage.stats()["render_busy_s"] > 0.0
