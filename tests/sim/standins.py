"""What stands in for the outside in a run: store and stages, each with a recorder.

The contracts are production's own (`MemoryDatabase`, `StubRuntime`; the broker is in `broker`);
here they are told which process they belong to, are cut off, lose and delay watches, deliver ticks
late, and write down what an outside observer would see.
"""

import asyncio
from collections.abc import Callable, Generator
from dataclasses import replace
from random import Random
from types import coroutine
from typing import Any, TypeVar

from gpu_stages.runtime_contract import Binding, BoundLive, Segment, StageTrouble
from gpu_stages.stub import StubRuntime
from ownership import keys, memory
from ownership.kv import Reads, StoreAway
from ownership.memory import Faults, MemoryDatabase
from ownership.memory_store import MemoryStore
from ownership.memory_transaction import MemoryReads, MemoryTransaction
from ownership.watching import HintWatch
from schemas.media import MediaTick
from tests.sim import history as h
from tests.sim.loop import WAKERS, SimProcess
from tests.sim.recorder import Recorder

T = TypeVar("T")

WAKERS.add(memory._tell)

_AWAY_S = 0.02
"""How long a process that is cut off waits for an answer."""


@coroutine
def _turn() -> Generator[None]:
    """`asyncio.sleep(0)` without a coroutine around it."""
    yield


class WatchFaults:
    """`lost` and `late` are chances per firing, `late_s_max` the longest delay."""

    __slots__ = ("late", "late_s_max", "lost")

    def __init__(self, lost: float = 0.0, late: float = 0.0, late_s_max: float = 0.2) -> None:
        self.lost = lost
        self.late = late
        self.late_s_max = late_s_max


class SimWatch(HintWatch):
    """A watch that may miss a change or hear of it late."""

    __slots__ = ("_db",)

    def __init__(self, key: bytes, on_close: Callable[[HintWatch], None], db: "SimDatabase"):
        super().__init__(key, on_close)
        self._db = db

    def fire(self) -> None:
        if self._db.cut:
            return
        faults = self._db.watch_faults
        if faults is not None:
            chance = self._db.rng.random()
            if chance < faults.lost:
                self._db.recorder.windows["watch_lost"] += 1
                return
            if chance < faults.lost + faults.late:
                self._db.recorder.windows["watch_late"] += 1
                delay_s = self._db.rng.random() * faults.late_s_max
                self.loop.call_later(delay_s, HintWatch.fire, self)
                return
        HintWatch.fire(self)


class SimDatabase(MemoryDatabase):
    """One process's handle: every commit bears its name."""

    def __init__(
        self,
        store: MemoryStore,
        rng: Random,
        faults: Faults | None,
        watch_faults: WatchFaults | None,
        process: SimProcess,
        recorder: Recorder,
    ) -> None:
        super().__init__(store, rng, faults)
        self.rng = rng
        self.watch_faults = watch_faults
        self.process = process
        self.recorder = recorder
        self._sleep = process.loop.sleep
        self.unknown_move = 0.0
        self._calm = faults
        """The faults while it is not cut off."""
        self.cut = False
        self.on_applied: Callable[[SimProcess, MemoryTransaction], None] | None = None

    def watch(self, key: bytes) -> HintWatch:
        watch = SimWatch(key, self._forget, self)
        self.store.watches.setdefault(key, []).append(watch)
        self._watches.add(watch)
        return watch

    def cut_off(self) -> None:
        """Nothing reaches the store from here, and no answer comes back, until `reach`."""
        self.cut = True
        self.faults = replace(self._calm, away=1.0) if self._calm else Faults(away=1.0)

    def reach(self) -> None:
        """The way to the store is free again."""
        self.cut = False
        self.faults = self._calm

    def end_faults(self) -> None:
        """The store's troubles are over; one that is cut off stays so until `reach`."""
        self._calm = self.watch_faults = None
        self.faults = Faults(away=1.0) if self.cut else None

    async def read(self, body: Callable[[Reads], T]) -> T:
        """See `MemoryDatabase.read`; a delay of nothing costs no turn of the loop."""
        faults = self.faults
        if faults is None:
            await _turn()
            return body(MemoryReads(self.store.contents))
        if faults.away:
            await self._no_answer()
        begin_s, reply_s = self._draw(faults.begin_s), self._draw(faults.reply_s)
        if begin_s:
            await self._sleep(begin_s)
        elif not reply_s:
            await _turn()
        value = body(MemoryReads(self.store.contents))
        if reply_s:
            await self._sleep(reply_s)
        return value

    async def _no_answer(self) -> None:
        self.recorder.windows["store_call_failed"] += 1
        await self._sleep(_AWAY_S)
        raise StoreAway("cut off")

    async def _begin(self, faults: Faults) -> None:
        if faults.away:
            await self._no_answer()
        begin_s = self._draw(faults.begin_s)
        if begin_s:
            await self._sleep(begin_s)

    def _draw(self, span: tuple[float, float]) -> float:
        """Half of all ways to the store and back take no time worth mentioning."""
        if not span[1]:
            return 0.0
        chance = self.rng.random()
        return 0.0 if chance < 0.5 else span[1] * (2 * chance - 1)

    def _send(
        self, loop: Any, faults: Faults, tr: MemoryTransaction, told: "asyncio.Future[bool | None]"
    ) -> None:
        """Commits that move a live may be lost on the way back more often than others."""
        if self.unknown_move and any(key.startswith(keys.GEN) for key in tr.writes):
            chance = self.rng.random()
            if chance < self.unknown_move:
                self.recorder.windows["unknown_move"] += 1
                fates = (self._commit_untold, self._commit_late, self._lose)
                fate = fates[int(chance / self.unknown_move * 3)]
                after_s, context = self._draw(faults.commit_s), self.store.context
                loop.call_later(after_s, fate, tr, told, context=context)
                return
        super()._send(loop, faults, tr, told)

    def _commit(self, tr: MemoryTransaction, told: Any, reply_s: float = 0.0) -> None:
        if self.cut:
            # It was on its way when the way was cut.
            fate = self._lose if self.rng.random() < 0.5 else self._commit_untold
            fate(tr, told)
            return
        version = self.store.version
        self.recorder.committer = self.process.name
        super()._commit(tr, told, reply_s)
        if self.store.version == version:
            if tr.writes:
                self._conflicted(tr)
        elif self.on_applied is not None:
            self.on_applied(self.process, tr)

    def _conflicted(self, tr: MemoryTransaction) -> None:
        windows = self.recorder.windows
        windows["conflict_real"] += 1
        if any(key.startswith(keys.SLOT) for key in tr.writes):
            windows["overshoot_attempt"] += 1

    def _refuse(self, tr: MemoryTransaction, told: Any) -> None:
        self.recorder.windows["conflict_injected"] += 1
        super()._refuse(tr, told)

    def _lose(self, tr: MemoryTransaction, told: Any) -> None:
        self.recorder.windows["unknown_dropped"] += 1
        super()._lose(tr, told)

    def _commit_untold(self, tr: MemoryTransaction, told: Any) -> None:
        self.recorder.windows["unknown_applied"] += 1
        self.recorder.committer = self.process.name
        super()._commit_untold(tr, told)

    def _land(self, tr: MemoryTransaction) -> None:
        self.recorder.windows["unknown_late"] += 1
        self.recorder.committer = self.process.name
        super()._land(tr)


# -- stages ------------------------------------------------------------------------------------


class SimRuntime(StubRuntime):
    """The stub; what goes in is written down, what comes out is `late_s` on its way."""

    def __init__(
        self, recorder: Recorder, process: SimProcess, *, late_s: float, **settings: Any
    ) -> None:
        super().__init__(**settings)
        self.recorder = recorder
        self.process = process
        self.late_s = late_s
        self.made_for: dict[int, BoundLive] = {}
        """By binding."""
        self.places: dict[int, int] = {}
        """Slot to binding."""

    async def start(
        self,
        on_tick: Callable[[MediaTick], None],
        on_trouble: Callable[[StageTrouble], None],
    ) -> None:
        self._deliver = on_tick
        await super().start(self._out, on_trouble)

    def _out(self, tick: MediaTick) -> None:
        if self.late_s:
            self._loop.call_later(self.late_s, self._deliver, tick)
        else:
            self._deliver(tick)

    def bind(self, live: BoundLive) -> Binding:
        binding = super().bind(live)
        self.made_for[binding.binding] = live
        self.places[binding.live_slot] = binding.binding
        rec = self.recorder
        rec.note(h.Bound(rec.now_ms, self.process.name, live.live_id, live.epoch, binding.binding))
        return binding

    def unbind(self, live_slot: int) -> None:
        binding = self.places.pop(live_slot, None)
        super().unbind(live_slot)
        # The place is given away again at once: the unluckiest order for what is still on its way.
        self._free.rotate(1)
        if binding is not None:
            live, rec = self.made_for[binding], self.recorder
            rec.note(h.Unbound(rec.now_ms, self.process.name, live.live_id, live.epoch, binding))

    def lose_stage(self, stage: str = "render", reason: str = "lost on demand") -> None:
        """The observer sees the bindings end when the controller was told."""
        lost, self.places = self.places, {}
        super().lose_stage(stage, reason)
        self._loop.call_soon(self._note_lost, list(lost.values()))

    def _note_lost(self, bindings: list[int]) -> None:
        for binding in bindings:
            live, rec = self.made_for[binding], self.recorder
            rec.note(h.Unbound(rec.now_ms, self.process.name, live.live_id, live.epoch, binding))

    def feed(self, live_slot: int, segment: Segment) -> None:
        super().feed(live_slot, segment)
        binding = self.places[live_slot]
        live, rec = self.made_for[binding], self.recorder
        name = self.process.name
        rec.note(
            h.Fed(
                rec.now_ms,
                name,
                live.live_id,
                live.epoch,
                binding,
                segment.segment_id,
                segment.text,
            )
        )
