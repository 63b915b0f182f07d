"""The speech stage: SEGMENT_TEXT in, one SEGMENT_VOICE for each piece of it out.

Lives take turns piece by piece, so that a long segment does not keep another live's first word
waiting; within a live, segments keep their order. Text is taken out of the ring at once and waits
here (the controller feeds few segments ahead), so an interrupt drops it before it costs anything.
"""

import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final

import structlog

from gpu_stages.header import Header, MessageKind
from gpu_stages.live_table import LiveRow, name_code
from gpu_stages.speech.synthesis import Plan, at_sample, plan, speak_piece
from gpu_stages.speech.voice_model import VoiceModel
from gpu_stages.speech.voice_parts import EMPTY, VoiceParts
from gpu_stages.speech.voices import VoiceNotHere, find_voice, voices_here
from gpu_stages.stage import Message, Outbox, PartTooLarge, Stage
from schemas.media import SAMPLE_RATE_HZ, TICK_SAMPLES, TickFlag

VOICE_BYTES_MAX: Final = 1_800_000
"""Samples of one message, in bytes: 37 s, which leaves a 2 MiB slot room for the tables."""

JOBS_PER_LIVE_MAX: Final = 32
TURN_S_MAX: Final = 0.05
"""How long one call may go on before the process looks at its ring again."""

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Job:
    """One segment on its way. `begin` is the segment sample at which the next piece starts."""

    header: Header
    text: str
    voice: int
    speed: float
    plan: Plan | None = None
    next_piece: int = 0
    begin: int = 0
    sent: bool = False
    ready: deque[tuple[Header, VoiceParts]] = field(default_factory=deque)

    def made(self) -> bool:
        return self.plan is not None and self.next_piece >= len(self.plan.pieces)


class SpeechStage(Stage):
    """Settings: `voices` (list of names; all that are on this machine when absent) and
    `voice_bytes_max` (samples of one message, in bytes; it must fit the ring's slots)."""

    name: ClassVar[str] = "speech"
    batch_max: int = 16

    def __init__(self) -> None:
        self._models: dict[int, VoiceModel] = {}
        self._jobs: dict[int, deque[_Job]] = {}
        self._utterances: dict[int, int] = {}
        self._voice_samples_max = VOICE_BYTES_MAX // 2 // TICK_SAMPLES * TICK_SAMPLES
        self._counts = dict.fromkeys(
            ("segments", "pieces", "failed", "muted", "audio_s", "synthesis_s"), 0.0
        )

    def load(self, settings: Mapping[str, object], device: str) -> None:
        """Load every voice and say something with it. Raises `VoiceNotHere`, `ValueError`."""
        known = {"voices", "voice_bytes_max"}
        if unknown := sorted(set(settings) - known):
            raise ValueError(f"unknown settings of the speech stage: {', '.join(unknown)}")
        names = settings.get("voices")
        if names is not None and (
            not isinstance(names, list) or not all(isinstance(name, str) for name in names)
        ):
            raise ValueError("the speech stage's `voices` is a list of names")
        size = settings.get("voice_bytes_max", VOICE_BYTES_MAX)
        if not isinstance(size, int) or size < 2 * SAMPLE_RATE_HZ:
            raise ValueError("`voice_bytes_max` holds at least a second of sound (48000 bytes)")
        self._voice_samples_max = size // 2 // TICK_SAMPLES * TICK_SAMPLES
        files = voices_here() if names is None else [find_voice(str(name)) for name in names]
        for file in files:
            model = VoiceModel(file)
            warm = plan(model, "Hello, how are you today?", speed=1.0, seed=0)
            speak_piece(model, warm, 0)
            self._models[name_code(file.name)] = model
        log.info("voices_loaded", voices=[model.name for model in self._models.values()])

    def process(self, batch: Sequence[Message], rows: Sequence[LiveRow], out: Outbox) -> None:
        """Take the texts in, then speak as far as time and room go."""
        for message, row in zip(batch, rows, strict=True):
            self._utterances[row.live_slot] = row.utterance
            if message.header.kind is MessageKind.SEGMENT_TEXT:
                self._take(message, row, out)
        self._work(out)

    def on_tick(self, rows: Sequence[LiveRow], now_us: int, out: Outbox) -> None:
        """Go on with what did not fit into the last turn."""
        for row in rows:
            self._utterances[row.live_slot] = row.utterance
        if self._jobs:
            self._work(out)

    def forget(self, live_slot: int) -> None:
        """Nothing more of this binding is spoken."""
        self._jobs.pop(live_slot, None)
        self._utterances.pop(live_slot, None)

    def stats(self) -> Mapping[str, float]:
        """`audio_s` / `synthesis_s` is the speed against real time."""
        return {**self._counts, "waiting": float(sum(map(len, self._jobs.values())))}

    def _take(self, message: Message, row: LiveRow, out: Outbox) -> None:
        jobs = self._jobs.setdefault(row.live_slot, deque())
        self._counts["segments"] += 1
        if len(jobs) >= JOBS_PER_LIVE_MAX:
            self._fail(message.header, f"{len(jobs)} segments of this live wait already", out)
            return
        text = bytes(message.parts[0]).decode("utf-8", "replace") if message.parts else ""
        jobs.append(_Job(message.header, text, row.voice, row.speed))

    def _work(self, out: Outbox) -> None:
        """One piece for each live in turn, until nothing is left, or no room, or no time."""
        deadline = time.monotonic() + TURN_S_MAX
        while self._jobs:
            slot = next(iter(self._jobs))
            if not self._step(slot, out):
                return
            if slot in self._jobs:
                self._jobs[slot] = self._jobs.pop(slot)
            if time.monotonic() > deadline:
                return

    def _step(self, slot: int, out: Outbox) -> bool:
        """One piece of one live. False when the ring downstream is full."""
        jobs = self._jobs[slot]
        current = self._utterances.get(slot, 0)
        while jobs and jobs[0].header.utterance < current:
            jobs.popleft()
            self._counts["muted"] += 1
        if not jobs:
            del self._jobs[slot]
            return True
        job = jobs[0]
        if not job.ready and not job.made():
            try:
                self._speak(job)
            except VoiceNotHere as refusal:
                jobs.popleft()
                self._fail(job.header, str(refusal), out)
                return True
            except Exception as trouble:  # one segment that cannot be spoken must not hurt another
                log.exception("segment_failed", segment_id=job.header.segment_id)
                jobs.popleft()
                self._fail(job.header, f"{type(trouble).__name__}: {trouble}", out)
                return True
        while job.ready:
            if out.room() <= 0:
                return False
            header, parts = job.ready.popleft()
            try:
                out.send(header, parts.parts())
            except PartTooLarge as refusal:
                jobs.popleft()
                self._fail(job.header, f"{refusal}; `voice_bytes_max` must fit the ring", out)
                return True
        if job.made():
            jobs.popleft()
        return True

    def _speak(self, job: _Job) -> None:
        """Make the next piece of `job` and lay its messages ready."""
        model = self._models.get(job.voice)
        if model is None:
            here = ", ".join(model.name for model in self._models.values())
            raise VoiceNotHere(f"the live's voice is not loaded here; there are: {here}")
        began = time.monotonic()
        if job.plan is None:
            job.plan = plan(model, job.text, speed=job.speed, seed=job.header.seed)
        piece = EMPTY
        if job.next_piece < len(job.plan.pieces):
            piece = at_sample(speak_piece(model, job.plan, job.next_piece), job.begin)
            job.next_piece += 1
            self._counts["pieces"] += 1
        self._counts["synthesis_s"] += time.monotonic() - began
        self._counts["audio_s"] += len(piece.pcm) / SAMPLE_RATE_HZ
        self._lay_ready(job, piece)
        job.begin += len(piece.pcm)

    def _lay_ready(self, job: _Job, piece: VoiceParts) -> None:
        skip = max(0, job.header.sample_start)
        length = len(piece.pcm)
        front = min(max(0, skip - job.begin), length)
        for begin in range(front, length, self._voice_samples_max):
            end = min(begin + self._voice_samples_max, length)
            parts = piece.cut(begin, end, job.begin)
            self._append(job, parts, job.begin + begin, last=job.made() and end == length)
        if job.made() and not (job.ready and job.ready[-1][0].flags & TickFlag.LAST_OF_SEGMENT):
            self._append(job, EMPTY, max(skip, job.begin + length), last=True)

    def _append(self, job: _Job, parts: VoiceParts, sample_start: int, *, last: bool) -> None:
        flags = TickFlag.NONE if job.sent else TickFlag.FIRST_OF_SEGMENT
        job.sent = True
        fed = job.header.stamps_us[0]
        header = replace(
            job.header,
            kind=MessageKind.SEGMENT_VOICE,
            sample_start=sample_start,
            speech_samples=len(parts.pcm),
            flags=flags | (TickFlag.LAST_OF_SEGMENT if last else TickFlag.NONE),
            stamps_us=(fed, time.monotonic_ns() // 1000, 0, 0),
        )
        job.ready.append((header, parts))

    def _fail(self, header: Header, reason: str, out: Outbox) -> None:
        self._counts["failed"] += 1
        out.send(replace(header, kind=MessageKind.SEGMENT_FAILED), (reason.encode(),))
