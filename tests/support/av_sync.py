"""A live's minutes of speech through the real stages at the speed that they have, and how far
picture and sound are apart in what a viewer would get.

Two measures, against what the voice itself gave:

- `sound`: the decoded sound against the samples that the voice made, by cross-correlation;
- `mouth`: where the lips of the face parameters close, against the p, b and m of the phoneme table,
  and how far the mouth in the decoded pictures runs behind those parameters.

Their difference is the skew that can be seen. Presentation times come out of the container.
"""

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import av
import numpy as np
from numpy.typing import NDArray

from gpu_stages.face.parameters import Face
from gpu_stages.face.phonemes import Viseme, visemes_of
from gpu_stages.header import MessageKind
from gpu_stages.speech.voice_parts import read_voice_parts
from gpu_stages.stage import Message
from gpu_stages.stages.encode import EncodeStage
from gpu_stages.stages.motion import MotionStage
from gpu_stages.stages.render import RenderStage
from gpu_stages.stages.speech import SpeechStage
from rtc_output.fragments import Fragmenter
from rtc_output.units import UNIT_US
from schemas.media import FRAMES_PER_S, SAMPLE_RATE_HZ, TICK_SAMPLES, TickFlag
from tests.support.stage_fakes import FakeOutbox, live_row, speak_all, text_message

TEXTS: Final = (
    "Papa put a big map upon the table, but Bob may move it.",
    "My mama may buy a pump, a bumper and a pair of brown boots.",
    "The people of Bombay bring maple and bamboo by boat.",
    "Maybe a member of the club can help Pam to pack her bag.",
    "Stop at the bridge; the boat may be deeper than we hoped.",
    "Number five was empty, and nobody believed in bumblebees.",
)
STEP_MS: Final = 10
_STEP: Final = SAMPLE_RATE_HZ * STEP_MS // 1000
_REACH_MS: Final = 200
_BATCH: Final = 8


@dataclass(slots=True)
class Spoken:
    """What the stages made. `closed` are p, b and m as [start, end) samples of the time line."""

    pcm: list[NDArray[np.int16]] = field(default_factory=list[NDArray[np.int16]])
    faces: list[NDArray[np.float32]] = field(default_factory=list[NDArray[np.float32]])
    closed: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    container: bytes = b""

    @property
    def seconds(self) -> float:
        return len(self.pcm) * TICK_SAMPLES / SAMPLE_RATE_HZ


def voices(texts: Sequence[str] = TEXTS) -> list[Message]:
    """What the bundled voice makes of these, a segment each."""
    stage = SpeechStage()
    stage.load({"voices": ["heart"]}, "cpu")
    row = live_row()
    messages = [text_message(row, text, segment_id=1 + i, seed=i) for i, text in enumerate(texts)]
    return speak_all(stage, messages, [row] * len(messages)).sent


def moved(spoken: Sequence[Message], seconds: float) -> Iterator[Message]:
    """TICK_MOTION for so long: these voices over and over, a second of idling after each round."""
    stage, out = MotionStage(), FakeOutbox()
    stage.load({}, "cpu")
    frame = 0
    while frame * TICK_SAMPLES < seconds * SAMPLE_RATE_HZ:
        stage.process(spoken, [live_row()] * len(spoken), out)
        samples = sum(-(-m.header.speech_samples // TICK_SAMPLES) for m in spoken)
        end = frame + samples + 25
        while frame < end:
            stage.on_tick([live_row(credit_frame=frame + 7)], 0, out)
            for tick in out.take():
                yield tick
                frame += 1


def closures(spoken: Sequence[Message]) -> dict[int, list[tuple[int, int]]]:
    """By segment: where p, b and m are, in its samples. Doubles through pieces are left out."""
    found: dict[int, set[tuple[int, int]]] = {}
    for message in spoken:
        table = read_voice_parts(message.parts).phonemes
        for entry in table:
            if Viseme.PP in visemes_of(int(entry["phoneme"])):
                at = (int(entry["start"]), int(entry["end"]))
                found.setdefault(message.header.segment_id, set()).add(at)
    return {segment: sorted(at) for segment, at in found.items()}


def speak(seconds: float, size_px: int = 0) -> Spoken:
    """All of it; `size_px` 0 leaves out the picture and the container."""
    said = voices()
    where = closures(said)
    made = Spoken()
    ticks: list[Message] = []
    for tick in moved(said, seconds):
        header = tick.header
        at = len(made.pcm) * TICK_SAMPLES
        assert header.frame_index == len(made.pcm), "no tick is left out"
        if header.flags & TickFlag.FIRST_OF_SEGMENT:
            first = at - header.sample_start
            made.closed += [(first + a, first + b) for a, b in where.get(header.segment_id, [])]
        made.pcm.append(np.frombuffer(tick.parts[0], np.int16).copy())
        made.faces.append(np.frombuffer(tick.parts[1], np.float32).copy())
        ticks.append(tick)
    if size_px:
        made.container = _container(ticks, size_px)
    return made


def _container(ticks: Sequence[Message], size_px: int) -> bytes:
    row = live_row(width_px=size_px, height_px=size_px)
    render, encode, fragmenter = RenderStage(), EncodeStage(), Fragmenter(1_000_000)
    render.load({"warm_sizes_px": [[size_px, size_px]]}, "cpu")
    encode.load({"threads": 1}, "cpu")
    written: list[bytes] = []
    pictures, media = FakeOutbox(), FakeOutbox()
    for begin in range(0, len(ticks), _BATCH):
        batch = ticks[begin : begin + _BATCH]
        render.process(batch, [row] * len(batch), pictures)
        drawn = pictures.take()
        encode.process(drawn, [row] * len(drawn), media)
        for tick in media.take():
            assert tick.header.kind is MessageKind.TICK_MEDIA
            keyframe = bool(tick.header.flags & TickFlag.KEYFRAME)
            at_us = tick.header.frame_index * 2 * UNIT_US
            first, second, video = map(bytes, tick.parts[:3])
            written.append(fragmenter.add(at_us, opus=first, video=video, keyframe=keyframe))
            written.append(fragmenter.add(at_us + UNIT_US, opus=second, video=b"", keyframe=False))
    written.append(fragmenter.flush())
    return b"".join(written)


@dataclass(frozen=True, slots=True)
class Seen:
    """What a player finds: mouth openness by picture, samples, and their presentation times."""

    opened: NDArray[np.float64]
    picture_s: NDArray[np.float64]
    samples: NDArray[np.float32]
    sound_s: float


def watch(container: bytes) -> Seen:
    """Decode all of it. `opened` is how much darker the mouth's box is than when it is shut."""
    boxes: list[NDArray[np.float32]] = []
    picture_s: list[float] = []
    with av.open(io.BytesIO(container)) as file:
        for frame in file.decode(video=0):
            grey = frame.to_ndarray(format="gray")
            size = grey.shape[0]
            rows = slice(int(size * 0.55), int(size * 0.80))
            boxes.append(grey[rows, int(size * 0.35) : int(size * 0.65)].astype(np.float32))
            picture_s.append(float(frame.time or 0.0))
    sound: list[NDArray[np.float32]] = []
    start: float | None = None
    with av.open(io.BytesIO(container)) as file:
        resampler = av.AudioResampler(format="fltp", layout="mono", rate=SAMPLE_RATE_HZ)
        for frame in file.decode(audio=0):
            start = float(frame.time or 0.0) if start is None else start
            sound += [piece.to_ndarray()[0] for piece in resampler.resample(frame)]
    rest = np.percentile(np.stack(boxes[:: max(1, len(boxes) // 500)]), 75, axis=0)
    opened = np.array([float(np.clip(rest - box, 0, None).mean()) for box in boxes])
    return Seen(opened, np.array(picture_s), np.concatenate(sound), start or 0.0)


def mouth_lag_ms(
    faces: Sequence[NDArray[np.float32]],
    closed: Sequence[tuple[int, int]],
    begin_s: float,
    end_s: float,
) -> float:
    """By how much the lips' closing runs behind the p, b and m of this stretch of time.

    By correlation of the parameter that presses the lips with where the table has p, b and m. A
    tick's face is taken for the middle of the time for which it is shown.
    """
    step_s = STEP_MS / 1000
    grid_s = np.arange(begin_s, end_s, step_s)
    pressed = np.array([face[Face.LIPS_CLOSED] for face in faces], np.float64)
    middle_s = (np.arange(len(pressed)) + 0.5) * TICK_SAMPLES / SAMPLE_RATE_HZ
    shape = np.interp(grid_s, middle_s, pressed)
    said = np.zeros(len(grid_s))
    for start, end in closed:
        first, last = (round((at / SAMPLE_RATE_HZ - begin_s) / step_s) for at in (start, end))
        said[max(first, 0) : max(last, 0)] = 1.0
    return _lag(shape, said, _REACH_MS // STEP_MS) * STEP_MS


def _lag(late: NDArray[np.float64], early: NDArray[np.float64], reach: int) -> float:
    """By how many steps one curve runs behind the other: the top of a parabola through the best
    correlation. Raises `ValueError` for curves that have nothing to do with each other."""
    a = (early - early.mean()) / early.std()
    b = (late - late.mean()) / late.std()
    inside = a[reach : len(a) - reach]
    score = {
        lag: float(np.mean(b[reach + lag : len(b) - reach + lag] * inside))
        for lag in range(-reach, reach + 1)
    }
    best = max(range(1 - reach, reach), key=lambda lag: score[lag])
    if score[best] < 0.4:
        raise ValueError(f"the curves have nothing to do with each other: {score}")
    before, top, after = (score[best + step] for step in (-1, 0, 1))
    return best + 0.5 * (before - after) / (before - 2 * top + after)


def lips_of(faces: Sequence[NDArray[np.float32]]) -> NDArray[np.float64]:
    """How open the mouth of each tick's parameters is."""
    stacked = np.stack(faces).astype(np.float64)
    return stacked[:, Face.JAW_OPEN] * (1 - stacked[:, Face.LIPS_CLOSED])


def picture_lag_ms(opened: NDArray[np.float64], lips: NDArray[np.float64]) -> float:
    """By how much the pictures run behind the parameters that they were drawn from."""
    return _lag(opened, lips, 5) * TICK_SAMPLES * 1000 / SAMPLE_RATE_HZ


def sound_lag_ms(
    pcm: NDArray[np.int16], samples: NDArray[np.float32], sound_s: float, begin_s: float
) -> float:
    """By how much the decoded sound runs behind what the voice made, from a second on."""
    first = round(begin_s * SAMPLE_RATE_HZ)
    made = pcm[first : first + SAMPLE_RATE_HZ].astype(np.float64)
    reach = SAMPLE_RATE_HZ * _REACH_MS // 1000
    at = first - round(sound_s * SAMPLE_RATE_HZ)
    around = np.pad(samples.astype(np.float64), reach)[at : at + SAMPLE_RATE_HZ + 2 * reach]
    if not made.any():
        raise ValueError(f"silence at {begin_s} s")
    size = 1 << (len(around) + len(made)).bit_length()
    spectrum = np.fft.rfft(around, size) * np.conj(np.fft.rfft(made, size))
    score = np.fft.irfft(spectrum)[: 2 * reach + 1]
    return float(np.argmax(score) - reach) * 1000 / SAMPLE_RATE_HZ


@dataclass(frozen=True, slots=True)
class Skew:
    """Of each stretch, in ms: the mouth behind the voice, the sound behind the voice."""

    mouth_ms: tuple[float, ...]
    sound_ms: tuple[float, ...]
    pts_ms: float
    """The largest difference between a picture's presentation time and that of its samples."""

    @property
    def worst_ms(self) -> float:
        """The mouth against the sound, where they are furthest apart."""
        return max(abs(m - s) for m, s in zip(self.mouth_ms, self.sound_ms, strict=True))


def skew(spoken: Spoken, stretch_s: float) -> Skew:
    """The skew in each stretch of this length."""
    seen = watch(spoken.container)
    pcm = np.concatenate(spoken.pcm)
    frames = np.arange(len(seen.picture_s)) * TICK_SAMPLES / SAMPLE_RATE_HZ
    pts_ms = float(np.abs(seen.picture_s - frames).max()) * 1000
    lips = lips_of(spoken.faces)
    mouth: list[float] = []
    sound: list[float] = []
    begin_s = 0.0
    while begin_s + stretch_s <= spoken.seconds + 0.1:
        end_s = begin_s + stretch_s
        stretch = slice(round(begin_s * FRAMES_PER_S), round(end_s * FRAMES_PER_S))
        drawn_ms = picture_lag_ms(seen.opened[stretch], lips[stretch])
        mouth.append(mouth_lag_ms(spoken.faces, spoken.closed, begin_s, end_s) + drawn_ms)
        sound.append(sound_lag_ms(pcm, seen.samples, seen.sound_s, _loudest_second(pcm, begin_s)))
        begin_s = end_s
    return Skew(tuple(mouth), tuple(sound), pts_ms)


def _loudest_second(pcm: NDArray[np.int16], begin_s: float) -> float:
    """Where a second full of sound begins, within ten from here."""
    starts = begin_s + np.arange(0, 9)
    power = [
        float(
            np.square(
                pcm[int(s * SAMPLE_RATE_HZ) : int((s + 1) * SAMPLE_RATE_HZ)].astype(np.float64)
            ).sum()
        )
        for s in starts
    ]
    return float(starts[int(np.argmax(power))])
