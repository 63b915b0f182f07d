"""The way out of a run: what is heard, and what is refused as made for another binding."""

from typing import Any

from schemas.media import MediaTick, TickFlag
from tests.sim import history as h
from tests.sim.loop import SimProcess, VirtualLoop
from tests.sim.recorder import Recorder
from tests.sim.standins import SimRuntime
from tests.support.unpaced_egress import UnpacedEgress

UNLIMITED = 1 << 40
_LAST = int(TickFlag.LAST_OF_SEGMENT)


class SimEgress(UnpacedEgress):
    """Writes down what is heard and what was refused."""

    def __init__(self, media: "SimMedia", live_id: str, made: dict[str, Any]) -> None:
        super().__init__(live_id, made)
        self.media = media

    def refused(self, tick: MediaTick) -> None:
        rec = self.media.recorder
        rec.windows["tick_refused_below"] += 1
        rec.note(
            h.TickRefused(rec.now_ms, self.media.process.name, self.live_id, self.epoch, tick.epoch)
        )

    def spoken(self, tick: MediaTick) -> None:
        rec, live = self.media.recorder, self.media.runtime.made_for[tick.binding]
        rec.note(
            h.Heard(
                rec.now_ms,
                self.media.process.name,
                self.live_id,
                self.epoch,
                tick.segment_id,
                tick.sample_start,
                tick.sample_start + tick.speech_samples,
                int(tick.flags) & _LAST != 0,
                live.live_id,
                live.epoch,
                tick.binding,
            )
        )

    def now_us(self) -> int:
        return 0


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
