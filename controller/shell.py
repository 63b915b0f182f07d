"""`Worker`: the Infer-Controller of one process, over any number of incarnations.

It runs unchanged on a loop with virtual time: everything from outside comes in by `WorkerWorld`,
waiting is asyncio's, there are no threads and no globals.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import structlog

from controller.counters import Counters
from controller.heartbeat import Superseded
from controller.incarnation import (
    Incarnation,
    WorkerOptions,
    WorkerWorld,
    open_connections,
)
from controller.limits import Limits
from controller.session import Session
from gpu_stages.runtime_contract import StageTrouble
from schemas.media import MediaTick

__all__ = ["Worker", "WorkerOptions", "WorkerWorld"]

_log = structlog.get_logger(__name__)


class Worker:
    """`run` until `stop`, or until something breaks."""

    def __init__(
        self,
        options: WorkerOptions,
        world: WorkerWorld,
        limits: Limits | None = None,
        may_begin_anew: Callable[[str], Awaitable[None]] | None = None,
    ) -> None:
        """`may_begin_anew` is asked with the id of an incarnation that was marked dead, at once and
        again right before the next one begins; it raises what ends the worker instead.
        """
        self.options = options
        self._may_begin_anew = may_begin_anew
        self.limits = (limits or Limits()).check()
        self.counters = Counters()
        self.incarnation: Incarnation | None = None
        """The present one; None before the first and between two."""
        self.lag: Mapping[int, int] = {}
        """Records from watermark to log end, by partition in custody: see `controller.lag`."""
        self._world = world
        self._stop = asyncio.Event()
        self._marked_dead: str | None = None
        self.stages_ready = False

    async def run(self) -> None:
        """Starts the stages and serves lives. Returns after `stop`; raises what broke."""
        runtime = self._world.runtime
        await runtime.start(self._tick, self._trouble)
        self.stages_ready = True
        try:
            while not await self._live_once():
                pass
        finally:
            self.stages_ready = False
            self._world.media.close()
            await runtime.close()

    def stop(self) -> None:
        """Drain, then return from `run`."""
        self._stop.set()

    @property
    def stopping(self) -> bool:
        return self._stop.is_set()

    @property
    def ready(self) -> bool:
        """Whether lives may come here."""
        incarnation = self.incarnation
        return incarnation is not None and incarnation.ready and not incarnation.draining

    def session(self, live_id: str) -> Session | None:
        """The session of a live that this worker may have authority over."""
        incarnation = self.incarnation
        session = None if incarnation is None else incarnation.lives.sessions.get(live_id)
        return session if session is not None and session.machine.active else None

    async def _live_once(self) -> bool:
        """One incarnation; whether it ended because it was asked to."""
        connections = await open_connections(self._world, self.options.group)
        incarnation = Incarnation(
            self.options, self.limits, self._world, self.counters, connections
        )
        self.incarnation = incarnation
        try:
            # The broker may have let us wait, and somebody may have taken our place meanwhile.
            await self._ask_to_begin_anew()
            await incarnation.begin()
            return await self._until_stopped(incarnation)
        except Superseded as error:
            # Its generations are advanced past it, or will be. Begin anew under another id.
            _log.warning("superseded", worker_id=error.worker_id)
            self._marked_dead = error.worker_id
            await self._ask_to_begin_anew()
            return self.stopping
        finally:
            self.incarnation = None
            await incarnation.close()

    async def _ask_to_begin_anew(self) -> None:
        dead, asked = self._marked_dead, self._may_begin_anew
        if dead is not None and asked is not None and not self.stopping:
            await asked(dead)

    async def _until_stopped(self, incarnation: Incarnation) -> bool:
        broken = asyncio.ensure_future(incarnation.run())
        asked = asyncio.ensure_future(self._stop.wait())
        leaving: asyncio.Future[None] | None = None
        try:
            await asyncio.wait({broken, asked}, return_when=asyncio.FIRST_COMPLETED)
            if not broken.done():
                leaving = asyncio.ensure_future(incarnation.leave())
                await asyncio.wait({broken, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if broken.done():
                broken.result()
            if leaving is not None:
                leaving.result()
            return True
        finally:
            for task in (broken, asked, leaving):
                if task is not None:
                    task.cancel()

    def _tick(self, tick: MediaTick) -> None:
        if self.incarnation is not None:
            self.incarnation.lives.tick(tick)

    def _trouble(self, trouble: StageTrouble) -> None:
        if self.incarnation is not None:
            self.incarnation.lives.trouble(trouble)

    def dump(self) -> dict[str, object]:
        """Everything that explains what this worker is doing, for people."""
        incarnation = self.incarnation
        if incarnation is None:
            return {"node": self.options.node, "incarnation": None}
        custody = incarnation.consumer.custody
        return {
            "node": self.options.node,
            "worker_id": incarnation.worker_id,
            "ready": self.ready,
            "draining": incarnation.draining,
            "releases_waiting": len(incarnation.batcher),
            "partitions": {
                partition: {
                    "source": feed.source.value,
                    "position": feed.position,
                    "watermark": custody.marks.get(partition),
                    "lives": len(feed.routes),
                }
                for partition, feed in sorted(incarnation.consumer.feeds.items())
            },
            "lives": {
                live_id: {
                    "epoch": session.generation.epoch,
                    "state": session.machine.state.value,
                    "partition": session.partition,
                    "cursor": session.machine.queue.cursor if session.machine.queue else None,
                    "story": session.machine.story.lines(),
                }
                for live_id, session in sorted(incarnation.lives.sessions.items())
            },
        }
