"""The stages around the renderer: speech, motion, encode, each as it runs in its process.

One thread, processor time rather than wall time, so that a busy machine does not change the
figures much. Against: what one would take from the shelf, the voice package called directly and
aiortc's own H.264 encoder (one per viewer, where ours is one per live).
"""

import time
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import av
import numpy as np
import torch
from aiortc.codecs.h264 import H264Encoder
from hibari import Hibari

from gpu_stages.face.head import HeadRenderer
from gpu_stages.face.idle_life import idle_frames
from gpu_stages.face.parameters import Face
from gpu_stages.header import Header, MessageKind
from gpu_stages.stage import Message
from gpu_stages.stages.encode import EncodeStage
from gpu_stages.stages.motion import MotionStage
from gpu_stages.stages.speech import SpeechStage
from schemas.media import FRAMES_PER_S, SAMPLE_RATE_HZ, TICK_SAMPLES
from tests.support.stage_fakes import FakeOutbox, live_row, part_view, speak_all, text_message

TEXT = (
    "The quick brown fox jumps over the lazy dog. She sells sea shells by the sea shore. "
    "On a clear day you can see the mountains from here, and sometimes even the lake."
)
FRAMES = 100
ROUNDS = 3


def rows() -> list[dict[str, Any]]:
    """Best of three rounds each."""
    speech, voices = _speech()
    sizes = ((256, 1), (256, 6), (512, 1), (512, 6))
    return [speech, _motion(voices), *(_encode(size_px, lives) for size_px, lives in sizes)]


def _best_s(work: Callable[[], object]) -> float:
    times: list[float] = []
    for _ in range(ROUNDS):
        began = time.process_time()
        work()
        times.append(time.process_time() - began)
    return min(times)


def _row(name: str, value: float, unit: str, against: str, rival: float | None) -> dict[str, Any]:
    return {
        "name": name,
        "value": round(value, 2),
        "unit": unit,
        "against": against,
        "against_value": None if rival is None else round(rival, 2),
        "ratio": None if rival is None else round(value / rival, 3),
    }


def _speech() -> tuple[dict[str, Any], list[Message]]:
    stage = SpeechStage()
    stage.load({"voices": ["heart"]}, "cpu")
    row = live_row()

    def speak() -> list[Message]:
        return speak_all(stage, [text_message(row, TEXT)], [row]).sent

    voices = speak()
    audio_s = sum(message.header.speech_samples for message in voices) / SAMPLE_RATE_HZ
    ours_s = _best_s(speak)
    bare = Hibari()
    bare(TEXT, seed=1)
    rival_s = _best_s(lambda: bare(TEXT, seed=1))
    row_ = _row(
        "speech_speed_vs_realtime",
        audio_s / ours_s,
        "s of speech per s",
        "hibari-tts called directly with the same text",
        audio_s / rival_s,
    )
    return row_, voices


def _motion(voices: list[Message]) -> dict[str, Any]:
    lives = 20
    ticks = 200

    def move() -> None:
        stage = MotionStage()
        stage.load({}, "cpu")
        out = FakeOutbox()
        table = [live_row(slot) for slot in range(lives)]
        for row in table:
            stage.process(voices, [row] * len(voices), out)
        for credit in range(ticks):
            stage.on_tick([live_row(slot, credit_frame=credit) for slot in range(lives)], 0, out)
            out.take()

    per_s = lives * ticks / _best_s(move)
    return _row("motion_lives_per_core", per_s / FRAMES_PER_S, "lives", "", None)


def _pictures(size_px: int) -> list[memoryview]:
    """A face that talks, as the renderer draws it: I420."""
    torch.set_num_threads(1)
    faces = idle_frames(3, 0, FRAMES)
    faces[:, Face.JAW_OPEN] = 0.4 + 0.4 * np.sin(np.arange(FRAMES) * 1.3)
    renderer = HeadRenderer("cpu")
    drawn = [
        renderer.render(torch.from_numpy(faces[i : i + 10]), [0] * 10, size_px, size_px)
        for i in range(0, FRAMES, 10)
    ]
    return [part_view(picture.numpy()) for batch in drawn for picture in batch]


def _encode(size_px: int, lives: int) -> dict[str, Any]:
    """One live alone, or a tick of each of `lives` in every batch; one thread."""
    pictures = _pictures(size_px)
    table = [live_row(slot, width_px=size_px, height_px=size_px) for slot in range(lives)]
    rng = np.random.default_rng(1)
    sounds = [part_view((rng.standard_normal(TICK_SAMPLES) * 2000).astype(np.int16)) for _ in "ab"]

    def encode() -> None:
        stage = EncodeStage()
        stage.load({"threads": 1}, "cpu")
        out = FakeOutbox()
        for index, picture in enumerate(pictures):
            batch = [
                Message(
                    Header(MessageKind.TICK_PICTURE, r.live_slot, r.binding, 1, frame_index=index),
                    (sounds[index % 2], picture),
                )
                for r in table
            ]
            stage.process(batch, table, out)

    def rival() -> None:
        encoder = H264Encoder()
        for index, picture in enumerate(pictures):
            planes = np.frombuffer(picture, np.uint8).reshape(size_px * 3 // 2, size_px)
            frame = av.VideoFrame.from_ndarray(planes, format="yuv420p")
            frame.pts, frame.time_base = index * 3600, Fraction(1, 90_000)
            encoder.encode(frame)

    return _row(
        f"encode_fps_per_core_{size_px}" + (f"_batch{lives}" if lives > 1 else ""),
        lives * FRAMES / _best_s(encode),
        "ticks per s (picture and sound)",
        "aiortc's H.264 encoder (picture only)",
        FRAMES / _best_s(rival),
    )
