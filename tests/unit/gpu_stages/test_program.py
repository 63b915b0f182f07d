"""Exported programs: what is checked when one is loaded, and how it serves render and motion."""

import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from gpu_stages.config import PROGRAM_CLASSES, BadStagesConfig, load_stages_config
from gpu_stages.face.parameters import FACE_PARAMETERS, Face
from gpu_stages.header import Header, MessageKind
from gpu_stages.speech.voice_parts import PHONEME_DTYPE, VoiceParts
from gpu_stages.stage import Message
from gpu_stages.stages.exported import ExportedMotion, ExportedRender
from gpu_stages.stages.program import BadProgram, Program, read_signature
from schemas.media import TICK_SAMPLES
from tests.support.stage_fakes import FakeOutbox, live_row, part_view

FACE = {"face": {"shape": ["batch", FACE_PARAMETERS], "dtype": "float32"}}
PICTURE = {"picture": {"shape": ["batch", 8, 16, 3], "dtype": "uint8"}}


class Grey(nn.Module):
    """A picture as bright as the jaw is open; what the frame number adds is small."""

    def forward(self, face: Tensor, frame: Tensor) -> dict[str, Tensor]:
        level = (face[:, Face.JAW_OPEN] * 200 + frame % 7)[:, None, None, None]
        return {"picture": level.expand(-1, 8, 16, 3).to(torch.uint8).contiguous()}


class Planes(nn.Module):
    """The same as I420 of 16 x 8: luma by the jaw, chroma 128."""

    def forward(self, face: Tensor) -> Tensor:
        luma = (face[:, Face.JAW_OPEN] * 200)[:, None, None].expand(-1, 8, 16)
        return torch.cat([luma, torch.full_like(luma[:, :4], 128)], 1).to(torch.uint8)


class Loud(nn.Module):
    """The jaw follows the loudness; an open vowel rounds the lips."""

    def forward(self, loudness: Tensor, phoneme: Tensor) -> Tensor:
        jaw = loudness.mean(1).clamp(0, 1)
        rounded = (phoneme == ord("u")).any(1).to(torch.float32)
        rest = torch.zeros_like(jaw)
        columns = [rest] * FACE_PARAMETERS
        columns[Face.JAW_OPEN], columns[Face.LIPS_ROUND] = jaw, rounded
        return torch.stack(columns, 1)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """grey.pt2, planes.pt2 and loud.pt2 for any batch up to 6, one.pt2 for a batch of 1 only."""
    folder = tmp_path_factory.mktemp("programs")
    batch = torch.export.Dim("batch", min=1, max=6)
    face, number = torch.zeros(2, FACE_PARAMETERS), torch.zeros(2, dtype=torch.int64)
    four = torch.zeros(2, 4)
    made = {
        "grey": (Grey(), (face, number), ("face", "frame")),
        "planes": (Planes(), (face,), ("face",)),
        "loud": (Loud(), (four, four.to(torch.int64)), ("loudness", "phoneme")),
    }
    for name, (module, arguments, names) in made.items():
        shapes = {argument: {0: batch} for argument in names}
        exported = torch.export.export(module, arguments, dynamic_shapes=shapes)
        torch.export.save(exported, folder / f"{name}.pt2")
    torch.export.save(torch.export.export(Planes(), (face[:1],)), folder / "one.pt2")
    return folder


FRAME = {"frame": {"shape": ["batch"], "dtype": "int64"}}


def load(path: Path, inputs: object = None, outputs: object = None) -> Program:
    signature = read_signature(inputs or {**FACE, **FRAME}, outputs or PICTURE)
    return Program(path, signature, "cpu")


def test_a_program_takes_batches_of_any_size_in_parts_that_it_was_exported_for(
    programs: Path,
) -> None:
    program = load(programs / "grey.pt2")
    faces = torch.zeros(15, FACE_PARAMETERS)
    faces[:, Face.JAW_OPEN] = torch.arange(15) / 20
    got = program({"face": faces, "frame": torch.arange(15), "unused": torch.zeros(15)})
    picture = got["picture"]
    assert picture.shape == (15, 8, 16, 3)
    for row in range(15):
        alone = program({"face": faces[row : row + 1], "frame": torch.tensor([row])})["picture"]
        assert torch.equal(alone[0], picture[row])


def test_a_program_of_a_fixed_batch_is_filled_up_and_cut(programs: Path) -> None:
    planes = {"picture": {"shape": ["batch", 12, 16], "dtype": "uint8"}}
    program = load(programs / "one.pt2", FACE, planes)
    faces = torch.rand(3, FACE_PARAMETERS)
    by_batch = load(programs / "planes.pt2", FACE, planes)({"face": faces})["picture"]
    assert torch.equal(program({"face": faces})["picture"], by_batch)


@pytest.mark.parametrize(
    ("inputs", "outputs", "says"),
    [
        (FACE, PICTURE, "it takes face, frame; declared are face"),
        ({**FRAME, **FACE}, PICTURE, "it takes face, frame; declared are frame, face"),
        (
            {**FRAME, "face": {"shape": ["batch", 25], "dtype": "float32"}},
            PICTURE,
            "it takes face, frame",
        ),
        (
            {"face": {"shape": ["batch", 25], "dtype": "float32"}, **FRAME},
            PICTURE,
            r"face: float32 \[batch, 25\] is declared; it takes face: float32 \[any, 24\]",
        ),
        (
            {**FACE, "frame": {"shape": ["batch"], "dtype": "int32"}},
            PICTURE,
            r"frame: int32 \[batch\] is declared; it takes frame: int64 \[any\]",
        ),
        (
            {**FACE, "frame": {"shape": ["batch", 1], "dtype": "int64"}},
            PICTURE,
            r"frame: int64 \[batch, 1\] is declared",
        ),
        (
            {**FACE, **FRAME},
            {"picture": {"shape": ["batch", 16, 8, 3], "dtype": "uint8"}},
            r"\[batch, 16, 8, 3\] is declared; it gives picture: uint8 \[1, 8, 16, 3\]",
        ),
        (
            {**FACE, **FRAME},
            {"picture": {"shape": ["batch", 8, 16, 3], "dtype": "float32"}},
            "it gives picture: uint8",
        ),
        (
            {**FACE, **FRAME},
            {"image": {"shape": ["batch", 8, 16, 3], "dtype": "uint8"}},
            "it returns picture; declared are image",
        ),
        ({**FACE, **FRAME}, {**PICTURE, **FACE}, "it returns picture; declared are picture, face"),
    ],
)
def test_a_signature_that_is_not_the_program_s_is_told(
    programs: Path, inputs: object, outputs: object, says: str
) -> None:
    with pytest.raises(BadProgram, match=says) as refused:
        load(programs / "grey.pt2", inputs, outputs)
    assert "grey.pt2" in str(refused.value)


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ({}, "`inputs` must be a table"),
        ([], "`inputs` must be a table"),
        ({"face": 3}, r"inputs.face must be \{ shape"),
        ({"face": {"shape": ["batch"]}}, r"inputs.face must be \{ shape"),
        ({"face": {"shape": [24], "dtype": "float32"}}, 'first dimension must be "batch"'),
        ({"face": {"shape": ["batch", "x"], "dtype": "float32"}}, "whole numbers"),
        ({"face": {"shape": ["batch", 0], "dtype": "float32"}}, "whole numbers"),
        ({"face": {"shape": ["batch"], "dtype": "float33"}}, "'float33' is no dtype"),
        ({"face": {"shape": ["batch"], "dtype": "nn"}}, "'nn' is no dtype"),
    ],
)
def test_a_signature_that_is_none_is_named(table: object, says: str) -> None:
    with pytest.raises(BadProgram, match=says):
        read_signature(table, PICTURE)


def changed(path: Path, to: Path, change: Callable[[bytes], bytes]) -> Path:
    """A copy of an exported program whose graph was changed."""
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(to, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            new.writestr(name, change(data) if name.endswith("models/model.json") else data)
    return to


def test_what_is_no_exported_program_is_told(programs: Path, tmp_path: Path) -> None:
    with pytest.raises(BadProgram, match=r"none\.pt2: no such file"):
        load(tmp_path / "none.pt2")
    junk = tmp_path / "junk.pt2"
    junk.write_bytes(b"not a program")
    with pytest.raises(BadProgram, match=r"junk\.pt2 is no exported program: `torch.export.save`"):
        load(junk)
    torch.save({"weight": torch.zeros(3)}, tmp_path / "weights.pt2")
    with pytest.raises(BadProgram, match=r"weights\.pt2 is no exported program"):
        load(tmp_path / "weights.pt2")
    cut = tmp_path / "cut.pt2"
    cut.write_bytes((programs / "grey.pt2").read_bytes()[:-300])
    with pytest.raises(BadProgram, match=r"cut\.pt2 is no exported program"):
        load(cut)


def test_a_file_of_another_torch_is_told(programs: Path, tmp_path: Path) -> None:
    newer = changed(
        programs / "grey.pt2",
        tmp_path / "newer.pt2",
        lambda data: data.replace(
            b'"schema_version": {"major": ', b'"schema_version": {"major": 9'
        ),
    )
    with pytest.raises(BadProgram, match=r"newer\.pt2.*export it again with this version"):
        load(newer)


def test_an_operator_that_is_not_here_is_told(programs: Path, tmp_path: Path) -> None:
    foreign = changed(
        programs / "grey.pt2",
        tmp_path / "foreign.pt2",
        lambda data: data.replace(b"torch.ops.aten.mul.Tensor", b"torch.ops.elsewhere.mul.Tensor"),
    )
    with pytest.raises(BadProgram, match=r"foreign\.pt2.*operator that this torch does not have"):
        load(foreign)


# -- render ----------------------------------------------------------------------------------------


def tick(slot: int, jaw: float, frame: int = 0) -> Message:
    vector = np.zeros(FACE_PARAMETERS, np.float32)
    vector[Face.JAW_OPEN] = jaw
    header = Header(
        MessageKind.TICK_MOTION, slot, slot + 1, 1, frame_index=frame, stamps_us=(1, 2, 0, 0)
    )
    return Message(header, (part_view(np.arange(TICK_SAMPLES, dtype=np.int16)), part_view(vector)))


def renderer(path: Path, inputs: object = None, outputs: object = None) -> ExportedRender:
    stage = ExportedRender()
    settings = {
        "program": str(path),
        "inputs": inputs or {**FACE, **FRAME},
        "outputs": outputs or PICTURE,
    }
    stage.load(settings, "cpu")
    return stage


def test_a_batch_of_many_lives_is_drawn_at_once_and_leaves_in_order(programs: Path) -> None:
    stage, out = renderer(programs / "grey.pt2"), FakeOutbox()
    rows = [live_row(slot, width_px=16, height_px=8) for slot in (0, 1, 2)]
    other = Message(Header(MessageKind.SEGMENT_FAILED, 1, 2, 1, segment_id=8), (b"why",))  # type: ignore[arg-type]
    batch = [tick(0, 0.5), tick(1, 0.25, frame=3), other, tick(2, 1.0)]
    stage.process(batch, [rows[0], rows[1], rows[1], rows[2]], out)
    assert [m.header.live_slot for m in out.sent] == [0, 1, 2]
    assert [header.segment_id for header, _ in out.failed] == [8], "handed on"
    values = [set(np.frombuffer(m.parts[1], np.uint8)) for m in out.sent]
    assert values == [{100}, {53}, {200}]
    assert all(m.header.kind is MessageKind.TICK_PICTURE for m in out.sent)
    assert out.sent[0].header.stamps_us[:2] == (1, 2)
    assert bytes(out.sent[0].parts[0]) == bytes(batch[0].parts[0]), "the same sound"


@pytest.mark.parametrize("planes", [False, True])
def test_another_size_is_scaled_and_told_once(programs: Path, planes: bool) -> None:
    i420 = {"picture": {"shape": ["batch", 12, 16], "dtype": "uint8"}}
    stage = (
        renderer(programs / "planes.pt2", FACE, i420) if planes else renderer(programs / "grey.pt2")
    )
    out, row = FakeOutbox(), live_row(0, width_px=32, height_px=24)
    for _ in range(3):
        stage.process([tick(0, 0.5)], [row], out)
    assert len(out.failed) == 1
    assert "draws 16x8 px; the picture is scaled to 32x24" in out.failed[0][1]
    picture = np.frombuffer(out.sent[2].parts[1], np.uint8)
    assert len(picture) == 32 * 24 * 3 // (2 if planes else 1)
    assert set(picture[: 32 * 24]) == {100}
    assert set(picture[32 * 24 :]) == {128 if planes else 100}
    stage.forget(0)
    stage.process([tick(0, 0.5)], [row], out)
    assert len(out.failed) == 2


@pytest.mark.parametrize(
    ("inputs", "outputs", "says"),
    [
        ({"mood": {"shape": ["batch"], "dtype": "float32"}}, None, "this stage gives; it has face"),
        ({"face": {"shape": ["batch", 9], "dtype": "float32"}}, None, "not what this stage gives"),
        (FACE, {"face": FACE["face"]}, "outputs must be just `picture`"),
        (FACE, {"picture": {"shape": ["batch", 12, 16], "dtype": "float32"}}, "it gives picture"),
    ],
)
def test_a_renderer_with_other_tensors_is_refused(
    programs: Path, inputs: object, outputs: object, says: str
) -> None:
    with pytest.raises(BadProgram, match=says):
        renderer(programs / "planes.pt2", inputs, outputs)


# -- motion ----------------------------------------------------------------------------------------


def test_a_voice_is_moved_by_the_program_tick_by_tick(programs: Path) -> None:
    stage = ExportedMotion()
    heard = {
        "loudness": {"shape": ["batch", 4], "dtype": "float32"},
        "phoneme": {"shape": ["batch", 4], "dtype": "int64"},
    }
    stage.load({"program": str(programs / "loud.pt2"), "inputs": heard, "outputs": FACE}, "cpu")
    samples = 10 * TICK_SAMPLES - 100
    phonemes = np.array([(960, 2880, ord("u"), 2, 0), (2880, 9600, ord("ɑ"), 0, 0)], PHONEME_DTYPE)
    loudness = np.linspace(0, 1, -(-samples // 240)).astype(np.float32)
    parts = VoiceParts(np.zeros(samples, np.int16), phonemes, loudness)
    header = Header(MessageKind.SEGMENT_VOICE, 0, 1, 1, sample_start=960, seed=1 << 63)
    curve = stage.curve_of(header, parts, 10)
    assert curve.shape == (10, FACE_PARAMETERS)
    assert list(curve[:, Face.LIPS_ROUND]) == [1, 1] + [0] * 8, "samples 960 to 2880 of the segment"
    assert curve[0, Face.JAW_OPEN] == pytest.approx(loudness[:4].mean())
    assert np.all(np.diff(curve[:9, Face.JAW_OPEN]) > 0)


def test_a_motion_program_gives_a_face(programs: Path) -> None:
    settings = {
        "program": str(programs / "planes.pt2"),
        "inputs": {"loudness": {"shape": ["batch", 4], "dtype": "float32"}},
        "outputs": PICTURE,
    }
    with pytest.raises(BadProgram, match="outputs must be just `face`, not picture"):
        ExportedMotion().load(settings, "cpu")


# -- the TOML --------------------------------------------------------------------------------------


def test_a_toml_names_a_program_or_a_class_file_from_its_own_folder(tmp_path: Path) -> None:
    toml = tmp_path / "stages.toml"
    toml.write_text(
        '[motion]\nclass = "mine.py:Mine"\n[render]\nprogram = "a.pt2"\nbatch_max = 3\n'
        '[render.inputs]\nface = { shape = ["batch", 24], dtype = "float32" }\n'
        '[render.outputs]\npicture = { shape = ["batch", 8, 16, 3], dtype = "uint8" }\n'
    )
    _, motion, render, _ = load_stages_config(toml).stages
    assert motion.class_path == f"{tmp_path}/mine.py:Mine"
    assert render.class_path == PROGRAM_CLASSES["render"]
    assert render.settings == {
        "program": f"{tmp_path}/a.pt2",
        "inputs": FACE,
        "outputs": PICTURE,
    }
    assert render.batch_max == 3


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[speech]\nprogram = "a.pt2"', "a program serves motion or render; speech needs a class"),
        ('[render]\nprogram = "a.pt2"\nclass = "a:B"', "render has a program and a class"),
        (
            '[render]\nprogram = "a.pt2"\n[render.settings]\nx = 1',
            "render has a program and a table of settings",
        ),
        ("[render.inputs]\nx = 1", "render.inputs goes with render.program"),
    ],
)
def test_a_program_in_the_wrong_place_is_told(text: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "stages.toml").write_text(text)
    with pytest.raises(BadStagesConfig, match=says):
        load_stages_config(tmp_path / "stages.toml")
