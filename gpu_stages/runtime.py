"""`PipelineRuntime`: the four stage processes and the rings between them, as one thing.

    feed -> [text] speech [voice] motion [motion] render [picture] encode [media] -> on_tick

The controller's process holds both ends that lead out of the pipeline, and is the only writer of
the live table. See `runtime_contract` for what a caller may rely on.
"""

import asyncio
import os
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import replace

from gpu_stages.config import CREDIT_STAGE, RING_NAMES, StageConfig, StagesConfig
from gpu_stages.control import Plan, SegmentNotMade
from gpu_stages.header import Header, MessageKind
from gpu_stages.host_ring import HostConsumer, HostProducer
from gpu_stages.live_table import LiveRow, LiveTableWriter, create_table, empty_row, name_code
from gpu_stages.memory import create_bell, ring_bell
from gpu_stages.rings import make_ring
from gpu_stages.runtime_contract import (
    Binding,
    BoundLive,
    NoLiveSlot,
    NotBound,
    RingFull,
    Segment,
    SegmentFailed,
    StageGaveUp,
    StageLost,
    StageRuntime,
    StageTrouble,
    VideoTooLarge,
)
from gpu_stages.supervisor import (
    Progress,
    StageFailedToStart,
    StageProcess,
    Supervisor,
    SupervisorLimits,
)
from schemas.media import MediaTick

__all__ = [
    "Binding",
    "BoundLive",
    "NoLiveSlot",
    "NotBound",
    "PipelineRuntime",
    "RingFull",
    "Segment",
    "SegmentFailed",
    "StageFailedToStart",
    "StageGaveUp",
    "StageLost",
    "StageRuntime",
    "StageTrouble",
    "VideoTooLarge",
]

_TICKS_PER_WAKE_MAX = 64


class PipelineRuntime:
    """The `StageRuntime` over real processes. Make, start, use and close it on one event loop."""

    def __init__(
        self,
        config: StagesConfig,
        *,
        device: str = "cpu",
        limits: SupervisorLimits | None = None,
        progress: Progress | None = None,
    ) -> None:
        self._config = config.on_device(device)
        self._limits = limits
        self._progress = progress
        self._counts: Counter[str] = Counter()
        self._bindings = 0
        self._rows: dict[int, LiveRow] = {}
        self._free = deque(range(config.live_slots))
        self._slot_owner: dict[int, int] = {}
        self._in_ring: Counter[int] = Counter()
        self._failed: dict[int, tuple[int, int]] = {}
        self._opened = False

    # -- start and close -------------------------------------------------------------------------

    async def start(
        self,
        on_tick: Callable[[MediaTick], None],
        on_trouble: Callable[[StageTrouble], None],
    ) -> None:
        """See `StageRuntime`. Raises `StageFailedToStart`; nothing is left behind then."""
        self._loop = asyncio.get_running_loop()
        self._on_tick = on_tick
        self._on_trouble = on_trouble
        self._open_memory()
        try:
            await self._supervisor.start()
        except BaseException:
            self._close_memory()
            raise
        self._loop.add_reader(self._ticks.data_fd(), self._read_ticks)

    def _open_memory(self) -> None:
        specs = self._config.ring_specs()
        devices = ["cpu", *(stage.device or "cpu" for stage in self._config.stages), "cpu"]
        self._rings = [
            make_ring(name, specs[name], devices[i], devices[i + 1])
            for i, name in enumerate(RING_NAMES)
        ]
        self._table_fd = create_table(self._config.live_slots)
        self._table = LiveTableWriter(self._table_fd)
        self._bells = {stage.name: create_bell() for stage in self._config.stages}
        self._segments = HostProducer(self._rings[0].handle, self._slot_came_back)
        self._ticks = HostConsumer(self._rings[-1].handle)
        processes = [self._process(i, stage) for i, stage in enumerate(self._config.stages)]
        self._supervisor = Supervisor(processes, self, self._limits, self._progress)
        self._opened = True

    def _process(self, index: int, stage: StageConfig) -> StageProcess:
        incoming, outgoing = self._rings[index], self._rings[index + 1]
        bell_fd = self._bells[stage.name]
        plan = Plan(
            stage=stage.name,
            class_path=stage.class_path,
            device=stage.device or "cpu",
            settings=stage.settings,
            batch_max=stage.batch_max,
            wait_us_max=stage.wait_us_max,
            threads=stage.threads,
            nice=stage.nice,
            parent_pid=os.getpid(),
            table_fd=self._table_fd,
            bell_fd=bell_fd,
            incoming=incoming.as_json(),
            outgoing=outgoing.as_json(),
        )
        fds = (*incoming.fds(), *outgoing.fds(), self._table_fd, bell_fd)
        return StageProcess(plan, fds, stage.ready_s_max)

    async def close(self) -> None:
        """See `StageRuntime`. May be called again, and without a start."""
        if not self._opened:
            return
        self._loop.remove_reader(self._ticks.data_fd())
        await self._supervisor.close()
        self._close_memory()

    def _close_memory(self) -> None:
        self._opened = False
        self._rows.clear()
        self._segments.close()
        self._ticks.close()
        self._table.close()
        for ring in self._rings:
            ring.close()
        for fd in (*self._bells.values(), self._table_fd):
            os.close(fd)

    # -- bindings --------------------------------------------------------------------------------

    def bind(self, live: BoundLive) -> Binding:
        """See `StageRuntime`."""
        options = live.options
        limits = (self._config.width_px_max, self._config.height_px_max)
        if options.width_px > limits[0] or options.height_px > limits[1]:
            raise VideoTooLarge(
                f"{options.width_px}x{options.height_px} px; this worker's rings hold up to"
                f" {limits[0]}x{limits[1]} px"
            )
        if not self._free:
            raise NoLiveSlot(f"all {self._config.live_slots} are bound")
        live_slot = self._free.popleft()
        self._bindings += 1
        row = LiveRow(
            live_slot=live_slot,
            binding=self._bindings,
            epoch=live.epoch,
            utterance=0,
            keyframe_requests=0,
            credit_frame=live.start_frame - 1,
            start_frame=live.start_frame,
            seed=live.seed,
            look=name_code(options.look),
            voice=name_code(options.voice),
            width_px=options.width_px,
            height_px=options.height_px,
            speed=options.speed,
            flags=0,
        )
        self._rows[live_slot] = row
        self._table.write(row)
        self._bindings_changed()
        return Binding(live_slot, row.binding)

    def unbind(self, live_slot: int) -> None:
        """See `StageRuntime`."""
        if live_slot in self._rows:
            self._void(live_slot)
            self._bindings_changed()

    def _void(self, live_slot: int) -> None:
        del self._rows[live_slot]
        self._table.write(empty_row(live_slot))
        self._free.append(live_slot)

    def _bindings_changed(self) -> None:
        self._table.bindings_changed()
        for bell_fd in self._bells.values():
            ring_bell(bell_fd)

    def _change(self, row: LiveRow) -> None:
        self._rows[row.live_slot] = row
        self._table.write(row)

    def _wake_tickers(self) -> None:
        for stage, bell_fd in self._bells.items():
            if self._supervisor.wants_ticks(stage):
                ring_bell(bell_fd)

    def interrupt(self, live_slot: int, utterance: int) -> None:
        """See `StageRuntime`."""
        row = self._rows.get(live_slot)
        if row is not None and utterance > row.utterance:
            self._change(replace(row, utterance=utterance))
            self._wake_tickers()

    def set_credit(self, live_slot: int, credit_frame: int) -> None:
        """See `StageRuntime`."""
        row = self._rows.get(live_slot)
        if row is not None and credit_frame > row.credit_frame:
            self._change(replace(row, credit_frame=credit_frame))
            ring_bell(self._bells[CREDIT_STAGE])  # 25 times a second and live: wake nobody else

    def request_keyframe(self, live_slot: int) -> None:
        """See `StageRuntime`."""
        row = self._rows.get(live_slot)
        if row is not None:
            self._change(replace(row, keyframe_requests=row.keyframe_requests + 1))
            self._wake_tickers()

    # -- segments in -----------------------------------------------------------------------------

    def room(self, live_slot: int) -> bool:
        """See `StageRuntime`. A live may fill its own share of the first ring and no more."""
        row = self._rows.get(live_slot)
        share = self._rings[0].spec.slots // self._config.live_slots if self._opened else 0
        return row is not None and self._segments.room() > 0 and self._in_ring[live_slot] < share

    def feed(self, live_slot: int, segment: Segment) -> None:
        """See `StageRuntime`. Raises `ValueError` for a segment that no ring slot can hold."""
        row = self._rows.get(live_slot)
        if row is None:
            raise NotBound(f"live slot {live_slot}")
        if not self.room(live_slot):
            raise RingFull(f"live slot {live_slot} has {self._in_ring[live_slot]} segments waiting")
        header = Header(
            kind=MessageKind.SEGMENT_TEXT,
            live_slot=live_slot,
            binding=row.binding,
            epoch=row.epoch,
            utterance=segment.utterance,
            segment_id=segment.segment_id,
            sample_start=segment.skip_samples,
            seed=segment.seed,
            stamps_us=(time.monotonic_ns() // 1000, 0, 0, 0),
        )
        slot = self._segments.publish(header, (segment.text.encode(),))
        self._slot_owner[slot] = live_slot
        self._in_ring[live_slot] += 1
        self._counts["segments_fed"] += 1

    def _slot_came_back(self, slot: int) -> None:
        live_slot = self._slot_owner.pop(slot, None)
        if live_slot is not None:
            self._in_ring[live_slot] -= 1

    # -- ticks out -------------------------------------------------------------------------------

    def _read_ticks(self) -> None:
        self._ticks.quiet()
        for _ in range(_TICKS_PER_WAKE_MAX):
            taken = self._ticks.take()
            if taken is None:
                return
            tick = self._tick(taken.header, taken.parts)
            self._ticks.release(taken)
            if tick is not None:
                self._on_tick(tick)
            if not self._opened:
                return
        ring_bell(self._ticks.data_fd())  # there may be more: after the loop's other work

    def _tick(self, header: Header, parts: tuple[memoryview, ...]) -> MediaTick | None:
        row = self._rows.get(header.live_slot)
        if row is None or header.binding != row.binding:
            self._counts["refused_binding"] += 1
            return None
        if header.epoch < row.epoch:
            self._counts["refused_epoch"] += 1
            return None
        self._counts["ticks"] += 1
        return MediaTick(
            live_slot=header.live_slot,
            binding=header.binding,
            epoch=header.epoch,
            utterance=header.utterance,
            frame_index=header.frame_index,
            segment_id=header.segment_id,
            sample_start=header.sample_start,
            speech_samples=header.speech_samples,
            flags=header.flags,
            opus=(bytes(parts[0]), bytes(parts[1])),
            video=bytes(parts[2]),
            stamps_us=header.stamps_us,
        )

    # -- troubles, told by the supervisor --------------------------------------------------------

    def on_lost(self, stage: str, reason: str) -> None:
        """Void every binding first, then drop what is in flight, then tell the controller."""
        self._counts["stages_lost"] += 1
        for live_slot in list(self._rows):
            self._void(live_slot)
        self._bindings_changed()
        for ring in self._rings:
            ring.reset()
        self._tell(StageLost(stage, reason))

    def on_gave_up(self, stage: str, reason: str) -> None:
        """Nothing more will come."""
        self._tell(StageGaveUp(stage, reason))

    def on_segment_not_made(self, failed: SegmentNotMade) -> None:
        """Told on once, and only while its binding stands."""
        row = self._rows.get(failed.live_slot)
        if row is None or row.binding != failed.binding:
            return
        if self._failed.get(failed.live_slot) == (failed.binding, failed.segment_id):
            return  # each tick of it that fails says so again
        self._failed[failed.live_slot] = (failed.binding, failed.segment_id)
        self._counts["segments_failed"] += 1
        self._tell(
            SegmentFailed(failed.live_slot, failed.binding, failed.segment_id, failed.reason)
        )

    def _tell(self, trouble: StageTrouble) -> None:
        """From the loop itself, so that a callback that raises does not end the supervision."""
        self._loop.call_soon(self._on_trouble, trouble)

    # -- figures ---------------------------------------------------------------------------------

    def stats(self) -> Mapping[str, object]:
        """See `StageRuntime`; `dump` shows a stage's whole state."""
        return {
            "live_slots": self._config.live_slots,
            "bound": len(self._rows),
            **self._counts,
            "stages": self._supervisor.stats() if self._opened else {},
        }

    async def dump(self) -> dict[str, Mapping[str, object]]:
        """Every stage's whole state, for people."""
        stages = self._supervisor.pids() if self._opened else {}
        return {stage: await self._supervisor.dump(stage) for stage in stages}

    def pids(self) -> dict[str, int]:
        """The process of each running stage, for tests that kill and tools that measure."""
        return self._supervisor.pids() if self._opened else {}
