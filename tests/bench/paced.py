"""Lives that speak without a pause through the real stages, paced as an egress paces them.

No broker, no store, no viewer: what is measured is the pipeline. Credit for a frame is given
`LEAD_FRAMES` before it is to be played, as the egress does; a tick that is there later than that
is late.
"""

import asyncio
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from gpu_stages.config import BUNDLED, StagesConfig
from gpu_stages.runtime import BoundLive, PipelineRuntime, Segment, SegmentFailed, StageTrouble
from schemas.media import FRAMES_PER_S, TICK_MS, MediaTick, TickFlag
from schemas.options import LiveOptions
from tests.bench.figures import percentile
from tests.bench.live_texts import SPEECH

LEAD_FRAMES = 4
AHEAD_SEGMENTS = 2
START_S_MAX = 120
SENTENCES = [sentence + "." for sentence in SPEECH.split(". ") if sentence]
LOOKS = ("clay", "studio", "aurora")
_TICK_S = TICK_MS / 1000
_HERTZ = os.sysconf("SC_CLK_TCK")


@dataclass(slots=True)
class _Live:
    """One speaking live and how late its ticks were, in ms (negative: early)."""

    slot: int
    began_s: float
    fed: int = 0
    spoken: int = 0
    ticks: int = 0
    speech_ticks: int = 0
    late_ms: list[float] = field(default_factory=list[float])


@dataclass(frozen=True, slots=True)
class Held:
    """What a stretch of speaking gave. `cpu_s` is processor time by stage over the stretch."""

    lives: int
    seconds: float
    ticks: int
    speech_ticks: int
    worst_p95_ms: float
    cpu_s: Mapping[str, float]
    figures: Mapping[str, Mapping[str, float]]

    @property
    def cores_per_live(self) -> float:
        """Cores that one live takes at 25 frames a second."""
        return sum(self.cpu_s.values()) / (self.ticks / FRAMES_PER_S)


class PacedLives:
    """A pipeline and the lives on it. Use as an asynchronous context manager."""

    def __init__(
        self, lives: int, size_px: int, device: str = "cpu", config: StagesConfig = BUNDLED
    ) -> None:
        self._size_px = size_px
        self.troubles: list[StageTrouble] = []
        self._runtime = PipelineRuntime(
            replace(
                config,
                live_slots=max(lives, 1),
                width_px_max=size_px,
                height_px_max=size_px,
            ),
            device=device,
        )
        self._lives: dict[int, _Live] = {}

    async def __aenter__(self) -> "PacedLives":
        await self._runtime.start(self._on_tick, self.troubles.append)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runtime.close()

    def add(self, count: int) -> None:
        """Bind so many more; they begin to speak at once."""
        for _ in range(count):
            number = len(self._lives)
            options = LiveOptions(
                look=LOOKS[number % len(LOOKS)], width_px=self._size_px, height_px=self._size_px
            )
            live = BoundLive(f"live-{number}", 1, options, seed=number, start_frame=0)
            slot = self._runtime.bind(live).live_slot
            self._lives[slot] = _Live(slot, time.monotonic())

    def _on_tick(self, tick: MediaTick) -> None:
        live = self._lives[tick.live_slot]
        due_s = live.began_s + (tick.frame_index + LEAD_FRAMES) * _TICK_S
        live.late_ms.append((time.monotonic() - due_s) * 1000)
        live.ticks += 1
        live.speech_ticks += tick.segment_id != 0
        live.spoken += bool(tick.flags & TickFlag.LAST_OF_SEGMENT)

    async def speak(self, seconds: float) -> Held:
        """Pace all lives for so long, the first word of each awaited before.

        Raises RuntimeError when a stage died or a segment failed.
        """
        began_s = time.monotonic()
        while not all(live.speech_ticks for live in self._lives.values()):
            await self._step()
            if time.monotonic() - began_s > START_S_MAX:
                raise RuntimeError("no first word")
        for live in self._lives.values():
            live.late_ms.clear()
            live.ticks = live.speech_ticks = 0
        cpu_s, began_s = self._cpu_s(), time.monotonic()
        while time.monotonic() - began_s < seconds:
            await self._step()
        spent_s = time.monotonic() - began_s
        after = self._cpu_s()
        lives = list(self._lives.values())
        stages = self._runtime.stats()["stages"]
        assert isinstance(stages, Mapping)
        return Held(
            len(lives),
            spent_s,
            sum(live.ticks for live in lives),
            sum(live.speech_ticks for live in lives),
            max(self._p95_ms(live, spent_s) for live in lives),
            {name: after[name] - cpu_s[name] for name in after},
            {str(name): dict(figures) for name, figures in stages.items()},
        )

    @staticmethod
    def _p95_ms(live: _Live, spent_s: float) -> float:
        """Frames that never came count as late as the whole stretch."""
        missing = max(0, round(spent_s * FRAMES_PER_S) - len(live.late_ms) - 2 * LEAD_FRAMES)
        return percentile([*live.late_ms, *[spent_s * 1000] * missing], 0.95)

    async def _step(self) -> None:
        failed = [t for t in self.troubles if not isinstance(t, SegmentFailed)] or self.troubles
        if failed:
            raise RuntimeError(f"the stages are in trouble: {failed[0]}")
        now_s = time.monotonic()
        for live in self._lives.values():
            due = int((now_s - live.began_s) / _TICK_S) + LEAD_FRAMES
            self._runtime.set_credit(live.slot, due)
            while live.fed - live.spoken < AHEAD_SEGMENTS and self._runtime.room(live.slot):
                live.fed += 1
                text = SENTENCES[(live.fed + live.slot) % len(SENTENCES)]
                self._runtime.feed(live.slot, Segment(live.fed, 0, text, 0, seed=live.fed))
        await asyncio.sleep(_TICK_S / 4)

    def _cpu_s(self) -> dict[str, float]:
        """Processor time of every stage's process so far, and of this one."""
        used = {name: _cpu_of(pid) for name, pid in self._runtime.pids().items()}
        return {**used, "worker": time.process_time()}


def _cpu_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _HERTZ


def with_encoders(threads: int) -> StagesConfig:
    """The bundled stages, so many lives encoded side by side."""
    stages = (
        replace(stage, threads=threads) if stage.name == "encode" else stage
        for stage in BUNDLED.stages
    )
    return replace(BUNDLED, stages=tuple(stages))


async def most_lives(
    counts: Sequence[int], size_px: int, device: str, seconds: float, deadline_s: float
) -> tuple[int, dict[str, float]]:
    """The largest of `counts` at which every live's P95 is within 40 ms, and what was seen.

    Stops at the first that is late, and where the next one would end after `deadline_s` (of
    `time.monotonic`).
    """
    held, seen = 0, dict[str, float]()
    encoders = with_encoders(max(1, len(os.sched_getaffinity(0)) // 2))
    async with PacedLives(max(counts), size_px, device, encoders) as lives:
        for count in counts:
            if time.monotonic() + 2 * seconds > deadline_s:
                break
            lives.add(count - held)
            got = await lives.speak(seconds)
            seen[str(count)] = round(got.worst_p95_ms, 1)
            if got.worst_p95_ms > TICK_MS:
                break
            held = count
    return held, seen
