"""The way out of a run: what is heard, and what is refused as made for another binding."""

from typing import Any

from rtc_output.egress import SentPosition, TickRefusal
from schemas.media import MediaTick, TickFlag
from tests.sim import history as h
from tests.sim.loop import SimProcess, VirtualLoop
from tests.sim.recorder import Recorder
from tests.sim.standins import SimRuntime

UNLIMITED = 1 << 40


class SimEgress:
    """Sends a tick when it comes, unless it was made for another binding or a lower epoch."""

    checks = True
    """The rule that the mutant without it leaves out."""

    def __init__(self, media: "SimMedia", live_id: str, made: dict[str, Any]) -> None:
        self.media = media
        self.live_id = live_id
        self.binding: int = made["binding"]
        self.epoch: int = made["epoch"]
        self.on_sent = made["on_sent"]
        self.set_credit = made["set_credit"]
        self.utterance = 0
        self.next_frame: int = made["start_frame"]
        self.frozen = False
        self.closed = False
        self.held: list[MediaTick] = []

    @property
    def position(self) -> SentPosition:
        return SentPosition(self.next_frame, 0, 0, self.utterance, 0)

    def push(self, tick: MediaTick) -> TickRefusal | None:
        rec = self.media.recorder
        if self.checks and (self.closed or tick.binding != self.binding or tick.epoch < self.epoch):
            rec.windows["tick_refused_below"] += 1
            rec.note(
                h.TickRefused(
                    rec.now_ms, self.media.process.name, self.live_id, self.epoch, tick.epoch
                )
            )
            return TickRefusal.WRONG_BINDING
        if self.frozen:
            self.held.append(tick)
            return None
        self._send(tick)
        return None

    def _send(self, tick: MediaTick) -> None:
        self.next_frame = tick.frame_index + 1
        media = self.media
        if tick.utterance < self.utterance:
            object.__setattr__(tick, "flags", tick.flags | TickFlag.MUTED)
        elif tick.segment_id:
            rec, live = media.recorder, media.runtime.made_for[tick.binding]
            rec.note(
                h.Heard(
                    rec.now_ms,
                    media.process.name,
                    self.live_id,
                    self.epoch,
                    tick.segment_id,
                    tick.sample_start,
                    tick.sample_start + tick.speech_samples,
                    bool(tick.flags & TickFlag.LAST_OF_SEGMENT),
                    live.live_id,
                    live.epoch,
                    tick.binding,
                )
            )
        self.on_sent(tick, 0)

    def interrupt(self, utterance: int) -> SentPosition:
        self.utterance = max(self.utterance, utterance)
        return self.position

    def freeze(self) -> SentPosition:
        self.frozen = True
        return self.position

    def thaw(self) -> None:
        self.frozen = False
        held, self.held = self.held, []
        for tick in held:
            self._send(tick)


class SimMedia:
    """Egresses without pacing; the stub's own clock paces."""

    def __init__(
        self, recorder: Recorder, process: SimProcess, runtime: SimRuntime, loop: VirtualLoop
    ) -> None:
        self.recorder = recorder
        self.process = process
        self.runtime = runtime
        self.loop = loop

    def open(self, *, live_id: str, **made: Any) -> SimEgress:
        egress = SimEgress(self, live_id, made)
        egress.set_credit(UNLIMITED)
        return egress

    def rebind(self, egress: Any, *, binding: int, epoch: int, start_frame: int) -> None:
        egress.binding, egress.epoch = binding, epoch
        egress.frozen = False
        egress.held.clear()
        egress.set_credit(UNLIMITED)

    def shut(self, egress: Any) -> None:
        egress.closed = True

    def close(self) -> None:
        """Nothing runs here by itself."""
