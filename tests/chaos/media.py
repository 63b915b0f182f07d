"""Stub stages and the production egress, which write down what goes in and what comes out."""

from collections.abc import Callable
from typing import Any

import controller.media
from controller.clock import Clock
from controller.media import PacedMedia
from rtc_output.egress import LiveEgress, TickRefusal
from schemas.media import MediaTick, TickFlag
from tests.chaos.levers import Lever, Levers
from tests.sim import history as h
from tests.sim.standins import SimRuntime

LOOK_S = 0.2
_BELOW = (TickRefusal.WRONG_BINDING, TickRefusal.LOWER_EPOCH)


class LoggedRuntime(SimRuntime):
    """The simulator's stub, with a lever that makes a stage crash."""

    levers: Levers

    async def start(self, on_tick: Any, on_trouble: Any) -> None:
        await super().start(on_tick, on_trouble)
        self._lost = self.levers.get(Lever.LOSE_STAGE)
        self._look = self._loop.call_later(LOOK_S, self._look_at_lever)

    def _look_at_lever(self) -> None:
        asked = self.levers.get(Lever.LOSE_STAGE)
        if asked != self._lost:
            self._lost = asked
            note = self.recorder.note
            note(h.Fault(self.recorder.now_ms, "lose_stage", self.process.name))
            self.lose_stage()
        self._look = self._loop.call_later(LOOK_S, self._look_at_lever)

    async def close(self) -> None:
        self._look.cancel()
        await super().close()


class LoggedEgress(LiveEgress):
    """Production's egress; what it refuses as made for another binding is written down."""

    def push(self, tick: MediaTick) -> TickRefusal | None:
        refusal = super().push(tick)
        if refusal in _BELOW:
            runtime = LoggedMedia.runtime
            runtime.recorder.note(
                h.TickRefused(
                    runtime.recorder.now_ms,
                    runtime.process.name,
                    self.live_id,
                    self.epoch,
                    tick.epoch,
                )
            )
        return refusal


class LoggedMedia(PacedMedia):
    """Production's pacing; every tick with speech that was sent is written down."""

    runtime: LoggedRuntime

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        controller.media.LiveEgress = LoggedEgress  # type: ignore[misc]

    def open(
        self, *, live_id: str, epoch: int, on_sent: Callable[[MediaTick, int], None], **more: Any
    ) -> LiveEgress:
        runtime = self.runtime
        rec, name = runtime.recorder, runtime.process.name

        def sent(tick: MediaTick, now_us: int) -> None:
            if tick.segment_id and not tick.flags & TickFlag.MUTED:
                live = runtime.made_for[tick.binding]
                rec.note(
                    h.Heard(
                        rec.now_ms,
                        name,
                        live_id,
                        epoch,
                        tick.segment_id,
                        tick.sample_start,
                        tick.sample_start + tick.speech_samples,
                        bool(tick.flags & TickFlag.LAST_OF_SEGMENT),
                        live.live_id,
                        live.epoch,
                        tick.binding,
                    )
                )
            on_sent(tick, now_us)

        return super().open(live_id=live_id, epoch=epoch, on_sent=sent, **more)
