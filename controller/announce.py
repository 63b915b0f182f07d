"""Events about lives on their way to the events topic. A report, never part of the protocol.

Nothing waits for it: what cannot be written in time is dropped and counted. Several sends are under
way at once, begun in order, so that one slow acknowledgement does not hold the others.
"""

import asyncio
from collections import deque

import structlog

from controller.counters import Counters
from controller.tasks import Tasks
from schemas.events import LiveEvent
from schemas.topics import EVENTS_TOPIC
from stream.transport import BrokerAway, Producer, SendRefused, SendUnknown

_log = structlog.get_logger(__name__)


class Announcer:
    """A bounded queue and the task that empties it."""

    def __init__(
        self,
        producer: Producer,
        tasks: Tasks,
        counters: Counters,
        *,
        waiting_max: int,
        at_once: int,
    ) -> None:
        self._producer = producer
        self._tasks = tasks
        self._counters = counters
        self._waiting: deque[LiveEvent] = deque()
        self._waiting_max = waiting_max
        self._has_work = asyncio.Event()
        self._places = asyncio.Semaphore(at_once)
        self._sending = 0

    def say(self, event: LiveEvent) -> None:
        """Queue an event."""
        if len(self._waiting) >= self._waiting_max:
            self._counters.events_dropped += 1
            return
        self._waiting.append(event)
        self._has_work.set()

    async def run(self) -> None:
        """Sends until cancelled."""
        while True:
            await self._has_work.wait()
            while self._waiting:
                await self._places.acquire()
                self._sending += 1
                event = self._waiting.popleft()
                self._tasks.spawn(self._send(event), f"event of {event.live_id}")
            self._has_work.clear()

    async def flush(self, timeout_ms: int) -> None:
        """Wait until everything is sent, or the time is over."""
        deadline_s = asyncio.get_running_loop().time() + timeout_ms / 1000
        while self._waiting or self._sending:
            if asyncio.get_running_loop().time() >= deadline_s:
                return
            await asyncio.sleep(0.01)

    async def _send(self, event: LiveEvent) -> None:
        try:
            await self._producer.send(
                EVENTS_TOPIC, key=event.live_id.encode(), value=event.encode()
            )
        except (SendRefused, SendUnknown, BrokerAway) as error:
            self._counters.events_dropped += 1
            _log.warning("event_not_written", kind=event.kind.value, error=str(error))
        else:
            self._counters.events_sent += 1
        finally:
            self._sending -= 1
            self._places.release()
