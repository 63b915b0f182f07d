"""One Dispatch replica without its HTTP: the parts put together, and the loops that drive them.

Everything comes in: the database, the transport, the clocks, the randomness. Only asyncio waits
here, so a replica runs as it is on an event loop with virtual time.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable

import structlog

from dispatch.activity import ActivityBook
from dispatch.clock import Clock
from dispatch.events_feed import EventsFeed
from dispatch.fleet import Fleet
from dispatch.ids import IdMint
from dispatch.limits import Limits
from dispatch.lives import LiveService
from dispatch.moves import Mover
from dispatch.publish import Publisher
from dispatch.recovery import Recovery
from dispatch.sweep import Sweep
from dispatch.text_input import TextInput
from ownership.kv import (
    CommitUnknown,
    Database,
    StoreAway,
    StoreClosed,
    StoreCorrupt,
    StoreMisconfigured,
)
from schemas.events import EventKind, LiveEvent
from stream.transport import Transport

_log = structlog.get_logger(__name__)


class DispatchService:
    """Peers share the store and the topics and know nothing of each other."""

    def __init__(
        self,
        db: Database,
        transport: Transport,
        clock: Clock,
        rng: random.Random,
        limits: Limits,
        partition_count: int,
    ) -> None:
        self.limits = limits.check()
        self.db = db
        self.transport = transport
        self.clock = clock
        self.partition_count = partition_count
        self.mint = IdMint(clock, rng)
        self.fleet = Fleet(db, clock, refresh_ms=limits.refresh_ms)
        self.activity = ActivityBook(db)
        self.publisher = Publisher(
            transport,
            clock,
            self.mint.new,
            sends_in_flight_max=limits.sends_in_flight_max,
        )
        self.lives = LiveService(
            db,
            self.fleet,
            self.publisher,
            self.activity,
            self.mint,
            clock,
            limits,
            partition_count,
        )
        self.text = TextInput(db, self.publisher, self.activity, clock)
        self.mover = Mover(db, self.fleet, self.mint, clock, limits)
        self.recovery = Recovery(
            db, self.fleet, self.publisher, self.mint, clock, limits, partition_count
        )
        self.sweep = Sweep(db, self.fleet, self.lives, clock, limits)
        self.feed = EventsFeed(
            transport,
            queue_events_max=limits.stream_queue_events_max,
            streams_max=limits.streams_max,
            on_event=self._on_event,
        )
        self.store_away = 0

    async def run(self) -> None:
        """Runs every loop until cancelled; raises when the store can no longer be trusted."""
        limits = self.limits
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._each(limits.refresh_ms, self._recover), name="recovery")
                group.create_task(self._each(limits.sweep_ms, self.sweep.step), name="sweep")
                group.create_task(
                    self._each(limits.activity_flush_ms, self.activity.flush), name="activity"
                )
                group.create_task(self.publisher.run(), name="publisher")
                group.create_task(self.feed.run(), name="feed")
        finally:
            await self.feed.close()
            await self.publisher.close()

    async def _recover(self) -> None:
        await self.fleet.refresh()
        await self.recovery.step()

    async def _each(self, pause_ms: int, step: Callable[[], Awaitable[None]]) -> None:
        """One round after the other; a round that failed is done again in the next."""
        while True:
            try:
                await step()
            except* (StoreAway, CommitUnknown) as group:
                self.store_away += 1
                _log.warning("store_away", reason=str(group.exceptions[0]))
            except* (StoreClosed, StoreCorrupt, StoreMisconfigured):
                raise
            except* Exception:
                _log.exception("round_failed")
            await asyncio.sleep(pause_ms / 1_000)

    def _on_event(self, event: LiveEvent) -> None:
        viewers = event.data.get("viewers")
        if isinstance(viewers, bool) or not isinstance(viewers, int):
            return
        if event.kind is EventKind.STATE_UPDATED:
            self.activity.watch(event.live_id, viewers, event.at_ms)
