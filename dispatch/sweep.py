"""Limits of lives: idle timeout, maximum length, absent viewer.

Any replica may sweep; a stamp in the store lets one of them do it per round, and two at once do no
harm, because closing a closed live changes nothing. A live is read when it was first seen and then
not before its earliest possible end: activity only ever puts that off.
"""

from dataclasses import dataclass

import structlog

from dispatch.activity import Stamps, Watched, forget_stamps, read_stamps
from dispatch.clock import Clock
from dispatch.fleet import Fleet
from dispatch.limits import Limits
from dispatch.lives import LiveService
from ownership import keys
from ownership.generations import owned_by
from ownership.kv import Database, Reads, Transaction, int64
from ownership.model import Closed, Generation
from ownership.tuple_layer import pack
from schemas.store_values import (
    Checkpoint,
    GenerationValue,
    LiveState,
    LiveStatus,
    WorkerState,
)

_SWEPT = pack(("swept",))

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Due:
    """When (Unix ms) a live ends by itself if nothing happens, and why."""

    at_ms: int
    reason: str


def due_of(
    live: LiveState,
    generation: GenerationValue | None,
    checkpoint: Checkpoint | None,
    stamps: Stamps,
) -> Due:
    """The earliest of the limits that the live has.

    Speaking counts as use, and so does a new owner: text that waited for one is spoken first.
    """
    options = live.options
    created_ms = live.created_at_ms
    used_ms = max(
        created_ms,
        stamps.used_at_ms,
        generation.at_ms if generation is not None else 0,
        checkpoint.at_ms if checkpoint is not None else 0,
    )
    dues = [
        Due(used_ms + options.idle_timeout_ms, "idle_timeout"),
        Due(created_ms + options.length_ms_max, "length_max"),
    ]
    watched = stamps.watched
    if watched is None or watched.at_ms < created_ms:  # of an earlier live of this id
        watched = Watched(created_ms, 0)
    if options.absent_viewer_ms > 0 and watched.viewers == 0:
        dues.append(Due(watched.at_ms + options.absent_viewer_ms, "absent_viewer"))
    return min(dues, key=lambda due: due.at_ms)


@dataclass(slots=True)
class _Known:
    """Invariant: the live does not end by itself before `due_ms`, while its epoch is `epoch`."""

    epoch: int
    due_ms: int


@dataclass(frozen=True, slots=True)
class _Looked:
    live: LiveState
    due: Due


class Sweep:
    """One replica's part. `step` is called every few seconds, after the fleet was read."""

    def __init__(
        self, db: Database, fleet: Fleet, lives: LiveService, clock: Clock, limits: Limits
    ) -> None:
        self._db = db
        self._fleet = fleet
        self._lives = lives
        self._clock = clock
        self._limits = limits
        self._known: dict[str, _Known] = {}
        self.closed: dict[str, int] = {}

    async def step(self) -> None:
        """One round, unless another replica just did one. Raises StoreError."""
        if not await self._begin():
            return
        owned: dict[str, Generation] = {}
        for view in self._fleet.views:
            if view.value.state is WorkerState.DEAD:
                continue  # its lives wait for recovery, which is no idling of theirs
            owned.update(await owned_by(self._db, view.value.worker_id))
        self._known = {live_id: known for live_id, known in self._known.items() if live_id in owned}
        for live_id, generation in owned.items():
            await self._look(live_id, generation.epoch)

    async def _begin(self) -> bool:
        """Whether this round is ours: the last one is older than half a round, or in the future."""
        now_ms = self._clock.wall_ms()
        fresh_ms = self._limits.sweep_ms // 2

        def body(tr: Transaction) -> bool:
            age_ms = now_ms - int64(tr.get(_SWEPT))
            if 0 <= age_ms < fresh_ms:
                return False
            tr.set(_SWEPT, now_ms.to_bytes(8, "little", signed=True))
            return True

        return await self._db.run(body)

    async def _look(self, live_id: str, epoch: int) -> None:
        now_ms = self._clock.wall_ms()
        known = self._known.get(live_id)
        if known is not None and known.epoch == epoch and now_ms < known.due_ms:
            return
        looked = await self._db.read(lambda tr: _read(tr, live_id))
        if looked is None:
            return
        if looked.due.at_ms <= now_ms:
            await self._end(live_id, looked.due.reason)
            return
        again_ms = looked.due.at_ms
        absent_ms = looked.live.options.absent_viewer_ms
        if absent_ms > 0:  # the one limit that comes closer: when the last viewer leaves
            again_ms = min(again_ms, now_ms + absent_ms)
        self._known[live_id] = _Known(epoch, again_ms)

    async def _end(self, live_id: str, reason: str) -> None:
        if isinstance(await self._lives.close(live_id, reason), Closed):
            self.closed[reason] = self.closed.get(reason, 0) + 1
            _log.info("live_reached_its_limit", live_id=live_id, reason=reason)
        await forget_stamps(self._db, live_id)


def _read(tr: Reads, live_id: str) -> _Looked | None:
    raw, gen, progress = tr.get_many(
        [keys.live(live_id), keys.gen(live_id), keys.progress(live_id)]
    )
    if raw is None:
        return None
    live = LiveState.decode(raw)
    if live.state is not LiveStatus.OPEN:
        return None
    generation = GenerationValue.decode(gen) if gen is not None else None
    checkpoint = Checkpoint.decode(progress) if progress is not None else None
    return _Looked(live, due_of(live, generation, checkpoint, read_stamps(tr, live_id)))
