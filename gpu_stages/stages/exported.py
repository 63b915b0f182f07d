"""Render and motion by an exported torch program that is named in the stages' TOML.

    [render]
    program = "face.pt2"
    [render.inputs]
    face = { shape = ["batch", 24], dtype = "float32" }
    [render.outputs]
    picture = { shape = ["batch", 256, 256, 3], dtype = "uint8" }

Inputs are any of those in the tables below, in the order of the program's arguments. A row of the
batch is a tick: of many lives for render, of one piece of voice for motion. `docs/own-models.md`
is the guide.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import interpolate

from gpu_stages.face.parameters import FACE_PARAMETERS
from gpu_stages.header import Header, MessageKind
from gpu_stages.live_table import LiveRow
from gpu_stages.speech.voice_parts import LOUDNESS_HOP, VoiceParts
from gpu_stages.stage import Message, Outbox, Stage
from gpu_stages.stage_loop import now_us
from gpu_stages.stages.motion import MotionStage
from gpu_stages.stages.program import BadProgram, Program, TensorSpec, read_signature
from schemas.media import TICK_SAMPLES

_HOPS: Final = TICK_SAMPLES // LOUDNESS_HOP
_PCM_SCALE: Final = 1.0 / 32_768

RENDER_INPUTS: Final = (
    TensorSpec("face", (FACE_PARAMETERS,), torch.float32),  # `gpu_stages.face.parameters.Face`
    TensorSpec("sound", (TICK_SAMPLES,), torch.float32),  # the tick's samples, -1..1
    TensorSpec("look", (), torch.int64),  # `live_table.name_code` of LiveOptions.look
    TensorSpec("seed", (), torch.int64),  # the live's
    TensorSpec("frame", (), torch.int64),  # ticks since the live began
)
MOTION_INPUTS: Final = (
    TensorSpec("sound", (TICK_SAMPLES,), torch.float32),  # the tick's samples, -1..1
    TensorSpec("loudness", (_HOPS,), torch.float32),  # per 10 ms, about 1 in a stressed vowel
    TensorSpec("phoneme", (_HOPS,), torch.int64),  # code point heard in each 10 ms, 0: none
    TensorSpec("stress", (_HOPS,), torch.int64),  # of that phoneme: 0, 1, 2
    TensorSpec("seed", (), torch.int64),  # the segment's
)
_FACE: Final = TensorSpec("face", (FACE_PARAMETERS,), torch.float32)
_I64: Final = 1 << 63


def _load(
    settings: Mapping[str, object], device: str, offered: Sequence[TensorSpec], output: str
) -> Program:
    """The program of these settings: inputs among those offered, one output of this name."""
    known = {"program", "inputs", "outputs"}
    if unknown := sorted(set(settings) - known):
        raise BadProgram(f"unknown settings beside a program: {', '.join(unknown)}")
    path = settings.get("program")
    if not isinstance(path, str):
        raise BadProgram("`program` must be the path of a .pt2 file")
    signature = read_signature(settings.get("inputs"), settings.get("outputs"))
    for spec in signature.inputs:
        if spec not in offered:
            raise BadProgram(
                f"input {spec} is not what this stage gives; it has {'; '.join(map(str, offered))}"
            )
    names = [spec.name for spec in signature.outputs]
    if names != [output]:
        raise BadProgram(f"outputs must be just `{output}`, not {', '.join(names)}")
    return Program(Path(path), signature, device)


class ExportedRender(Stage):
    """TICK_MOTION in, TICK_PICTURE out, drawn by a program of one size.

    A live of another size gets the picture scaled, and is told so once: the viewer's stream must
    stay whole.
    """

    name: ClassVar[str] = "render"

    def __init__(self) -> None:
        self._told: set[int] = set()
        self._frames = 0
        self._busy_us = 0

    def load(self, settings: Mapping[str, object], device: str) -> None:
        """Load and check the program. Raises `BadProgram`."""
        if device == "cpu":
            torch.set_num_threads(1)
        self._program = _load(settings, device, RENDER_INPUTS, "picture")
        (picture,) = self._program.signature.outputs
        sizes = picture.sizes
        self._rgb = len(sizes) == 3 and sizes[2] == 3
        if picture.dtype != torch.uint8 or not (self._rgb or len(sizes) == 2):
            raise BadProgram(
                f"{picture} is no picture: uint8 [batch, height, width, 3] (RGB) or"
                " [batch, height * 3 / 2, width] (I420, BT.601, limited range)"
            )
        height = sizes[0] if self._rgb else sizes[0] * 2 // 3
        if height % 2 or sizes[1] % 2 or (not self._rgb and sizes[0] * 2 % 3):
            raise BadProgram(f"{picture}: width and height must be even")
        self._height_px, self._width_px = height, sizes[1]

    def process(self, batch: Sequence[Message], rows: Sequence[LiveRow], out: Outbox) -> None:
        """Draw every tick of the batch at once and send them in order; hand on what is no tick."""
        began_us = now_us()
        ticks = [m for m in batch if m.header.kind is MessageKind.TICK_MOTION]
        pairs = zip(batch, rows, strict=True)
        bound = [row for message, row in pairs if message.header.kind is MessageKind.TICK_MOTION]
        drawn = iter(self._draw(ticks, bound) if ticks else ())
        for message, row in zip(batch, rows, strict=True):
            if message.header.kind is not MessageKind.TICK_MOTION:
                out.send(message.header, message.parts)
                continue
            picture = self._fitted(next(drawn), message, row, out)
            fed, voiced, _, _ = message.header.stamps_us
            header = replace(
                message.header,
                kind=MessageKind.TICK_PICTURE,
                stamps_us=(fed, voiced, now_us(), 0),
            )
            out.send(header, (message.parts[0], picture.numpy()))
        self._frames += len(ticks)
        self._busy_us += now_us() - began_us

    def _draw(self, ticks: Sequence[Message], rows: Sequence[LiveRow]) -> Tensor:
        sounds = [np.frombuffer(m.parts[0], np.int16) for m in ticks]
        faces = [np.frombuffer(m.parts[1], np.float32) for m in ticks]
        given = {
            "face": torch.from_numpy(np.stack(faces)),
            "sound": torch.from_numpy(np.stack(sounds) * np.float32(_PCM_SCALE)),
            "look": torch.tensor([row.look for row in rows]),
            "seed": torch.tensor([_signed(row.seed) for row in rows]),
            "frame": torch.tensor([m.header.frame_index for m in ticks]),
        }
        return self._program(given)["picture"].cpu().contiguous()

    def _fitted(self, picture: Tensor, message: Message, row: LiveRow, out: Outbox) -> Tensor:
        if (row.width_px, row.height_px) == (self._width_px, self._height_px):
            return picture
        if row.live_slot not in self._told:
            self._told.add(row.live_slot)
            reason = (
                f"this worker's renderer draws {self._width_px}x{self._height_px} px; the picture"
                f" is scaled to {row.width_px}x{row.height_px}"
            )
            failed = replace(message.header, kind=MessageKind.SEGMENT_FAILED)
            out.send(failed, (reason.encode(),))
        return _scaled(picture, row.height_px, row.width_px, rgb=self._rgb)

    def forget(self, live_slot: int) -> None:
        """A new live in this slot may have another size again."""
        self._told.discard(live_slot)

    def stats(self) -> Mapping[str, float]:
        """Frames drawn and the time that took."""
        return {"render_frames": self._frames, "render_busy_s": self._busy_us / 1e6}


def _scaled(picture: Tensor, height_px: int, width_px: int, *, rgb: bool) -> Tensor:
    """One picture in another size, by area or bilinear; I420's planes one by one."""

    def to(planes: Tensor, height: int, width: int) -> Tensor:
        smooth = interpolate(
            planes[None].float(), (height, width), mode="bilinear", antialias=True
        )[0]
        return smooth.round_().clamp_(0, 255).to(torch.uint8)

    if rgb:
        return to(picture.permute(2, 0, 1), height_px, width_px).permute(1, 2, 0).contiguous()
    height, width = picture.shape[0] * 2 // 3, picture.shape[1]
    luma = to(picture[None, :height], height_px, width_px)
    chroma = to(picture[height:].reshape(2, height // 2, width // 2), height_px // 2, width_px // 2)
    return torch.cat([luma.reshape(-1), chroma.reshape(-1)])


class ExportedMotion(MotionStage):
    """The bundled motion stage, its mouth and head moved by a program."""

    def load(self, settings: Mapping[str, object], device: str) -> None:
        """Load and check the program. Raises `BadProgram`."""
        super().load({}, device)
        if device == "cpu":
            torch.set_num_threads(1)
        self._program = _load(settings, device, MOTION_INPUTS, "face")
        (face,) = self._program.signature.outputs
        if face != _FACE:
            raise BadProgram(f"{face} is declared; the motion stage needs {_FACE}")

    def curve_of(self, header: Header, parts: VoiceParts, ticks: int) -> NDArray[np.float32]:
        """See `MotionStage`: the program's answer for all ticks of the piece at once."""
        sound = np.zeros(ticks * TICK_SAMPLES, np.float32)
        sound[: len(parts.pcm)] = parts.pcm * np.float32(_PCM_SCALE)
        loudness = np.zeros(ticks * _HOPS, np.float32)
        heard = parts.loudness[: len(loudness)]
        loudness[: len(heard)] = heard
        at = header.sample_start + np.arange(ticks * _HOPS) * LOUDNESS_HOP + LOUDNESS_HOP // 2
        phoneme, stress = _heard_at(parts.phonemes, at)
        given = {
            "sound": torch.from_numpy(sound.reshape(ticks, TICK_SAMPLES)),
            "loudness": torch.from_numpy(loudness.reshape(ticks, _HOPS)),
            "phoneme": torch.from_numpy(phoneme.reshape(ticks, _HOPS)),
            "stress": torch.from_numpy(stress.reshape(ticks, _HOPS)),
            "seed": torch.full((ticks,), _signed(header.seed)),
        }
        return self._program(given)["face"].cpu().numpy()


def _heard_at(
    phonemes: NDArray[np.void], at: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Phoneme and stress at these segment samples; 0 where there is none."""
    if not len(phonemes):
        return np.zeros(len(at), np.int64), np.zeros(len(at), np.int64)
    which = np.searchsorted(phonemes["start"], at, side="right") - 1
    inside = (which >= 0) & (at < phonemes["end"][which])
    phoneme = np.where(inside, phonemes["phoneme"][which].astype(np.int64), 0)
    return phoneme, np.where(inside, phonemes["stress"][which].astype(np.int64), 0)


def _signed(seed: int) -> int:
    """A u64 as the int64 of the same bits."""
    return seed - 2 * _I64 if seed >= _I64 else seed
