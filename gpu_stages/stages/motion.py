"""The motion stage: SEGMENT_VOICE in, one TICK_MOTION per 40 ms of every live out.

A tick is made when the egress has given credit for it and there is room downstream: of speech if
some waits, else of idle life. Each tick holds samples of one segment only; a tick in which a
segment ends is filled up with silence.

A model of one's own is a class derived from `MotionStage` that overrides `curve_of`, and `load` for
its settings; `docs/own-models.md` shows one. A voice that it cannot move fails alone.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final

import numpy as np
import structlog
from numpy.typing import NDArray

from gpu_stages.face.idle_life import idle_frames
from gpu_stages.face.parameters import FACE_PARAMETERS
from gpu_stages.face.voiced import Settling, face_of, voiced_curve
from gpu_stages.header import Header, MessageKind
from gpu_stages.live_table import LiveRow
from gpu_stages.speech.voice_parts import LOUDNESS_HOP, VoiceParts, read_voice_parts
from gpu_stages.stage import Message, Outbox, Stage
from schemas.media import TICK_SAMPLES, TickFlag

IDLE_BLOCK_FRAMES: Final = 64
CATCH_UP_TICKS: Final = 8
"""How many ticks of one live are made in one turn, so that a live that is far behind (its viewer's
clock jumped) does not keep the others waiting."""

_SILENCE: Final = np.zeros(TICK_SAMPLES, np.int16)
_NOTHING_SAID: Final = np.zeros(FACE_PARAMETERS, np.float32)
_IDLE_SOURCE: Final = 0

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Voice:
    """One SEGMENT_VOICE in the queue. `said` samples of it went out already."""

    header: Header
    pcm: NDArray[np.int16]
    curve: NDArray[np.float32]
    source: int
    said: int = 0


@dataclass(slots=True)
class _Live:
    """The state of one binding. `open_segment` has begun and not ended (0: none)."""

    binding: int
    seed: int
    next_frame: int
    utterance: int
    voices: deque[_Voice] = field(default_factory=deque)
    settling: Settling = field(default_factory=Settling)
    idle: NDArray[np.float32] = field(default_factory=lambda: np.zeros((0, FACE_PARAMETERS), "f4"))
    idle_first: int = 0
    open_segment: int = 0

    def idle_face(self) -> NDArray[np.float32]:
        """Of the next frame; made in blocks, which is ten times cheaper than one by one."""
        at = self.next_frame - self.idle_first
        if not 0 <= at < len(self.idle):
            self.idle = idle_frames(self.seed, self.next_frame, IDLE_BLOCK_FRAMES)
            self.idle_first, at = self.next_frame, 0
        return self.idle[at]


class MotionStage(Stage):
    """No settings. NumPy only: the process is small and starts quickly."""

    name: ClassVar[str] = "motion"
    outputs_per_message_max: ClassVar[int] = 1
    batch_max: int = 16

    def __init__(self) -> None:
        self._lives: dict[int, _Live] = {}
        self._voices_seen = _IDLE_SOURCE
        self._counts = dict.fromkeys(("ticks", "speech_ticks", "muted_voices", "starved_ticks"), 0)

    def load(self, settings: Mapping[str, object], device: str) -> None:
        """Warm up. Raises `ValueError` for any setting."""
        if settings:
            raise ValueError(f"unknown settings of the motion stage: {', '.join(sorted(settings))}")
        idle_frames(0, 0, IDLE_BLOCK_FRAMES)

    def process(self, batch: Sequence[Message], rows: Sequence[LiveRow], out: Outbox) -> None:
        """Queue the voices; ticks are made in `on_tick` only.

        Raises only when no voice of the batch could be moved.
        """
        broken: list[tuple[Header, Exception]] = []
        for message, row in zip(batch, rows, strict=True):
            try:
                self._take(message, row)
            except Exception as error:
                broken.append((message.header, error))
        for header, error in broken:
            if len(broken) == len(batch):
                raise error
            log.error("voice_not_moved", segment_id=header.segment_id, exc_info=error)
            reason = f"motion: {type(error).__name__}: {error}"
            out.send(replace(header, kind=MessageKind.SEGMENT_FAILED), (reason.encode(),))

    def _take(self, message: Message, row: LiveRow) -> None:
        header = message.header
        if header.kind is not MessageKind.SEGMENT_VOICE:
            return
        live = self._live_of(row)
        if header.utterance < live.utterance:
            self._counts["muted_voices"] += 1
            return
        parts = read_voice_parts(message.parts)
        ticks = max(1, -(-len(parts.pcm) // TICK_SAMPLES))
        curve = self.curve_of(header, parts, ticks)
        if curve.shape != (ticks, FACE_PARAMETERS) or curve.dtype != np.float32:
            raise ValueError(
                f"curve_of gave {curve.dtype} {list(curve.shape)} for {ticks} ticks; it must be"
                f" float32 [{ticks}, {FACE_PARAMETERS}]"
            )
        self._voices_seen += 1
        live.voices.append(_Voice(header, parts.pcm, curve, self._voices_seen))

    def curve_of(self, header: Header, parts: VoiceParts, ticks: int) -> NDArray[np.float32]:
        """What this voice asks of the face, tick by tick: float32 [ticks, FACE_PARAMETERS], added
        to the idle face.

        Tick k begins with segment sample `header.sample_start + k * TICK_SAMPLES`, which is sample
        `k * TICK_SAMPLES` of `parts.pcm`. The same arguments must give the same curve:
        `header.seed` is for whatever is to look like chance.
        """
        return voiced_curve(
            parts.phonemes,
            parts.loudness,
            loudness_hop=LOUDNESS_HOP,
            sample_start=header.sample_start,
            ticks=ticks,
            seed=header.seed,
        )

    def on_tick(self, rows: Sequence[LiveRow], now_us: int, out: Outbox) -> None:
        """Make what there is credit and room for, whoever is furthest behind first."""
        due: list[tuple[int, LiveRow, _Live]] = []
        for row in rows:
            if row.binding:
                live = self._live_of(row)
                behind = row.credit_frame - live.next_frame + 1
                if behind > 0:
                    due.append((-behind, row, live))
        due.sort(key=lambda entry: entry[0])
        room = out.room()
        for _ in range(CATCH_UP_TICKS):
            for _behind, row, live in due:
                if room <= 0:
                    return
                if live.next_frame <= row.credit_frame:
                    self._make_tick(row, live, out)
                    room -= 1

    def forget(self, live_slot: int) -> None:
        """Drop the binding's queue and clock."""
        self._lives.pop(live_slot, None)

    def stats(self) -> Mapping[str, float]:
        """`starved_ticks` were silent because the rest of a segment was not there yet."""
        return {name: float(count) for name, count in self._counts.items()}

    def _live_of(self, row: LiveRow) -> _Live:
        """The binding's state, with everything of a lower utterance dropped."""
        live = self._lives.get(row.live_slot)
        if live is None or live.binding != row.binding:
            live = _Live(row.binding, row.seed, row.start_frame, row.utterance)
            self._lives[row.live_slot] = live
        if row.utterance > live.utterance:
            live.utterance = row.utterance
            kept = [voice for voice in live.voices if voice.header.utterance >= row.utterance]
            self._counts["muted_voices"] += len(live.voices) - len(kept)
            live.voices = deque(kept)
            live.open_segment = 0
        return live

    def _make_tick(self, row: LiveRow, live: _Live, out: Outbox) -> None:
        voice = live.voices[0] if live.voices else None
        self._counts["ticks"] += 1
        if voice is None:
            self._counts["starved_ticks"] += live.open_segment != 0
            face = face_of(live.idle_face(), live.settling.step(_IDLE_SOURCE, _NOTHING_SAID))
            header = Header(
                MessageKind.TICK_MOTION,
                row.live_slot,
                row.binding,
                row.epoch,
                utterance=live.utterance,
                frame_index=live.next_frame,
            )
            out.send(header, (_SILENCE, face))
            live.next_frame += 1
            return
        header, pcm = _speech_tick(row, live, voice)
        wanted = voice.curve[voice.said // TICK_SAMPLES]
        face = face_of(live.idle_face(), live.settling.step(voice.source, wanted))
        out.send(header, (pcm, face))
        self._counts["speech_ticks"] += 1
        live.next_frame += 1
        voice.said += header.speech_samples
        live.open_segment = voice.header.segment_id
        if voice.said >= len(voice.pcm):
            live.voices.popleft()
            if voice.header.flags & TickFlag.LAST_OF_SEGMENT:
                live.open_segment = 0


def _speech_tick(row: LiveRow, live: _Live, voice: _Voice) -> tuple[Header, NDArray[np.int16]]:
    """The next tick's header and samples; nothing changes here."""
    pcm = voice.pcm[voice.said : voice.said + TICK_SAMPLES]
    samples = len(pcm)
    if samples < TICK_SAMPLES:
        pcm = np.concatenate([pcm, _SILENCE[samples:]])
    flags = TickFlag.NONE
    if voice.said == 0:
        flags |= voice.header.flags & TickFlag.FIRST_OF_SEGMENT
    if voice.said + samples >= len(voice.pcm):
        flags |= voice.header.flags & TickFlag.LAST_OF_SEGMENT
    header = Header(
        MessageKind.TICK_MOTION,
        row.live_slot,
        row.binding,
        row.epoch,
        utterance=voice.header.utterance,
        frame_index=live.next_frame,
        segment_id=voice.header.segment_id,
        sample_start=voice.header.sample_start + voice.said,
        speech_samples=samples,
        flags=flags,
        stamps_us=voice.header.stamps_us,
    )
    return header, pcm
