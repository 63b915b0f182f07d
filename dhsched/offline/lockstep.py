"""The stages of one controller in this process, in step with a virtual clock.

Rings, live table, authority checks and stage classes are those of production; only the processes
are missing: `pump` runs each stage's loop until it waits for something, and again until none has
anything left to do. So what the stages make depends on the order of what they are given alone.

    feed -> [text] speech [voice] motion [motion] render [picture] encode [media] -> on_tick
                          |                               |
                        on_voice                      on_picture        (taps: what went by)
"""

import asyncio
import os
import select
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast

from gpu_stages.config import RING_NAMES, StagesConfig
from gpu_stages.control import SegmentNotMade
from gpu_stages.header import Header
from gpu_stages.live_table import LiveTableReader
from gpu_stages.memory import create_bell
from gpu_stages.ring import RingProducer
from gpu_stages.rings import open_consumer, open_producer
from gpu_stages.runtime import PipelineRuntime
from gpu_stages.runtime_contract import Segment, StageTrouble
from gpu_stages.stage import Part, Stage
from gpu_stages.stage_loop import Ends, StageKeepsFailing, StageLoop
from gpu_stages.stage_main import load_class
from schemas.media import MediaTick

WORKED_S: Final = 0.01
"""A stage that took longer than this in one turn may have stopped for time, with work left."""

_NO_TICK_S: Final = 0.5
"""Longer waits than this are not for the stage's next tick."""


class StagesNotLoaded(RuntimeError):
    """A stage's class, model or settings do not work here; the message names the stage."""


Tap = Callable[[Header, Sequence[Part]], None]
"""Looks at a message as it goes by; must not keep the parts."""


def _ignore(_header: Header, _parts: Sequence[Part]) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Taps:
    """What is told of the messages between the stages, and of the segments that go in."""

    on_voice: Tap = _ignore
    on_picture: Tap = _ignore
    on_segment: Callable[[Segment], None] = field(default=lambda _segment: None)
    on_interrupt: Callable[[int], None] = field(default=lambda _utterance: None)


class LoadedStages:
    """The four stages, loaded once and used by one runtime after another.

    `forget_all` must be called between two runtimes: their bindings are numbered alike.
    """

    def __init__(self, config: StagesConfig, device: str) -> None:
        """Raises `StagesNotLoaded`."""
        self.config = replace(config, live_slots=min(config.live_slots, 4))
        self.stages: list[Stage] = []
        for one in config.on_device(device).stages:
            try:
                stage = load_class(one.class_path)()
                if one.batch_max is not None:
                    stage.batch_max = one.batch_max
                stage.wait_us_max = 0  # Nothing else comes within an instant.
                stage.load(one.settings, one.device or device)
            except Exception as error:
                raise StagesNotLoaded(f"{one.name}: {type(error).__name__}: {error}") from error
            self.stages.append(stage)

    def forget_all(self) -> None:
        """Drop what the stages keep of any live."""
        for stage in self.stages:
            for live_slot in range(self.config.live_slots):
                stage.forget(live_slot)


class _TappedProducer:
    """A ring's sending side that tells of each message, and counts them."""

    def __init__(self, producer: RingProducer, tap: Tap) -> None:
        self._producer = producer
        self._tap = tap
        self.published = 0

    def room(self) -> int:
        return self._producer.room()

    def publish(self, header: Header, parts: Sequence[Part]) -> int:
        hosted = [_on_host(part) for part in parts]
        slot = self._producer.publish(header, hosted)
        self.published += 1
        self._tap(header, hosted)
        return slot

    def keeps_on_device(self) -> bool:
        return False

    def space_fd(self) -> int:
        return self._producer.space_fd()

    def quiet(self) -> None:
        self._producer.quiet()

    def close(self) -> None:
        self._producer.close()


def _on_host(part: Part) -> Part:
    """Device memory has no shared handle within one process: its bytes go through the host."""
    return part.cpu().numpy() if hasattr(part, "__cuda_array_interface__") else part  # type: ignore[union-attr]


class _Turns:
    """One stage's loop, run turn by turn: it stops where it would wait."""

    def __init__(self, stage: Stage, ends: Ends, report: Callable[[SegmentNotMade], None]) -> None:
        self._ends = ends
        self._out = cast(_TappedProducer, ends.outgoing)
        self._local_us = 0
        self._seen = -1
        self._asked_s = 0.0
        self._ticked = False
        self.loop = StageLoop(
            stage, ends, _nothing, report, clock=lambda: self._local_us, wait=self._wait
        )

    def run(self, now_us: int) -> bool:
        """Until it waits; whether it sent something."""
        before = self._out.published
        self._local_us = max(self._local_us, now_us)
        self._seen, self._ticked = -1, False
        self.loop.stopped = False
        self.loop.run()
        return self._out.published != before

    def _wait(self, watched: Sequence[int], timeout_s: float) -> Sequence[int]:
        """What is readable now. Without anything the stage's next tick comes at once; a tick that
        brought nothing, in hardly any time, was the last."""
        took_s = time.monotonic() - self._asked_s
        readable: Sequence[int] = select.select(watched, (), (), 0)[0]
        progress = self._out.published != self._seen or took_s > WORKED_S
        self._seen = self._out.published
        if not readable and timeout_s > 0:
            if self._ticked and not progress:
                self.loop.stop()
            elif timeout_s < _NO_TICK_S:
                self._local_us += int(timeout_s * 1e6) + 1
                self._ticked = True
            elif not progress:
                self.loop.stop()
        self._asked_s = time.monotonic()
        return readable

    def close(self) -> None:
        self._ends.incoming.close()
        self._ends.outgoing.close()
        self._ends.table.close()


def _nothing() -> None:
    pass


class LockstepRuntime(PipelineRuntime):
    """The `StageRuntime` of a replay. `pump` is called whenever the loop has nothing ready."""

    def __init__(
        self, loaded: LoadedStages, taps: Taps, now_us: Callable[[], int], *, side_px_max: int
    ) -> None:
        config = replace(
            loaded.config,
            width_px_max=max(loaded.config.width_px_max, side_px_max),
            height_px_max=max(loaded.config.height_px_max, side_px_max),
            stages=tuple(replace(stage, device=None) for stage in loaded.config.stages),
        )
        super().__init__(config, device="cpu")
        self._loaded = loaded
        self._taps = taps
        self._virtual_us = now_us
        self._turns: list[_Turns] = []
        self._given_up = False

    async def start(
        self,
        on_tick: Callable[[MediaTick], None],
        on_trouble: Callable[[StageTrouble], None],
    ) -> None:
        """See `StageRuntime`. The stages were loaded before."""
        self._loop = asyncio.get_running_loop()
        self._on_tick = on_tick
        self._on_trouble = on_trouble
        self._open_memory()
        self._control_fd = create_bell()
        taps = {"voice": self._taps.on_voice, "picture": self._taps.on_picture}
        for at, stage in enumerate(self._loaded.stages):
            incoming, outgoing = self._rings[at], self._rings[at + 1]
            tap = taps.get(RING_NAMES[at + 1], _ignore)
            ends = Ends(
                incoming=open_consumer(incoming.as_json()),
                outgoing=_TappedProducer(open_producer(outgoing.as_json()), tap),
                table=LiveTableReader(self._table_fd),
                bell_fd=self._bells[self._config.stages[at].name],
                control_fd=self._control_fd,
            )
            self._turns.append(_Turns(stage, ends, self.on_segment_not_made))

    async def close(self) -> None:
        """See `StageRuntime`. The loaded stages stay, and know no live any more."""
        if not self._opened:
            return
        for turns in self._turns:
            turns.close()
        self._turns.clear()
        self._close_memory()
        os.close(self._control_fd)
        self._loaded.forget_all()

    def pump(self) -> bool:
        """Let the stages do all they can now; whether the controller was told of anything."""
        if not self._opened or self._given_up:
            return False
        before = self._counts.total()
        now_us = self._virtual_us()
        try:
            while any([turns.run(now_us) for turns in self._turns]):
                pass
        except StageKeepsFailing as error:
            # There is no process to start anew that could do better: the same would happen again.
            self._given_up = True
            self.on_gave_up("stages", str(error))
            return True
        self._read_ticks()
        return self._counts.total() != before

    def feed(self, live_slot: int, segment: Segment) -> None:
        """See `StageRuntime`."""
        super().feed(live_slot, segment)
        self._taps.on_segment(segment)

    def interrupt(self, live_slot: int, utterance: int) -> None:
        """See `StageRuntime`."""
        super().interrupt(live_slot, utterance)
        self._taps.on_interrupt(utterance)

    def _wake_tickers(self) -> None:
        """They are all looked at in every instant."""

    def stats(self) -> Mapping[str, object]:
        """See `StageRuntime`."""
        stages: dict[str, Any] = {
            stage.name: turns.loop.stats()
            for stage, turns in zip(self._config.stages, self._turns, strict=True)
        }
        return {
            "live_slots": self._config.live_slots,
            "bound": len(self._rows),
            **self._counts,
            "stages": stages,
        }
