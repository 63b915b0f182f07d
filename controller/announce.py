"""Events about lives on their way to the events topic. A report, never part of the protocol.

Nothing waits for it: what cannot be written in time is dropped and counted. Events gather while
others are being sent and go together, as releases do, so that telling what happened costs little
beside doing it. A few sends are under way at once: one slow partition does not hold the others.
"""

import asyncio
from collections import deque
from collections.abc import Sequence

import structlog

from controller.counters import Counters
from controller.tasks import Tasks
from schemas.bad_record import BadRecord
from schemas.events import LiveEvent
from schemas.topics import EVENTS_TOPIC
from stream.transport import Producer

_log = structlog.get_logger(__name__)

SENDS_MAX = 4
ENCODED_AT_ONCE = 256


class Announcer:
    """A bounded queue and the task that empties it. `at_once`: events in one send."""

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
        self._at_once = at_once
        self._has_work = asyncio.Event()
        self._places = asyncio.Semaphore(SENDS_MAX)
        self._sending = 0

    def __len__(self) -> int:
        """Events that are not written yet."""
        return len(self._waiting) + self._sending

    def refuses(self) -> bool:
        """Whether there is no room for an event: it is dropped, and counted, before it is made."""
        if len(self._waiting) < self._waiting_max:
            return False
        self._counters.events_dropped += 1
        return True

    def say(self, event: LiveEvent) -> None:
        """Queue an event, or drop it. Who makes many asks `refuses` before making one."""
        if not self.refuses():
            self._waiting.append(event)
            self._has_work.set()

    async def run(self) -> None:
        """Sends until cancelled."""
        while True:
            await self._has_work.wait()
            await self._places.acquire()
            count = min(len(self._waiting), self._at_once)
            events = [self._waiting.popleft() for _ in range(count)]
            if not self._waiting:
                self._has_work.clear()
            self._sending += count
            # Here and not in the task below, where few events would overtake many.
            records = await self._records_of(events)
            self._tasks.spawn(self._send(records, count), "events")

    async def _records_of(self, events: Sequence[LiveEvent]) -> list[tuple[bytes, bytes]]:
        """After some of them others have their turn: there are ticks to be sent."""
        records: list[tuple[bytes, bytes]] = []
        for begin in range(0, len(events), ENCODED_AT_ONCE):
            if begin:
                await asyncio.sleep(0)
            some = events[begin : begin + ENCODED_AT_ONCE]
            records += [record for event in some if (record := _encoded(event)) is not None]
        return records

    async def flush(self, timeout_ms: int) -> None:
        """Wait until everything is sent, or the time is over."""
        deadline_s = asyncio.get_running_loop().time() + timeout_ms / 1000
        while len(self):
            if asyncio.get_running_loop().time() >= deadline_s:
                return
            await asyncio.sleep(0.01)

    async def _send(self, records: list[tuple[bytes, bytes]], count: int) -> None:
        written = 0
        try:
            written = await self._producer.send_all(EVENTS_TOPIC, records)
        finally:
            self._counters.events_sent += written
            self._counters.events_dropped += count - written
            self._sending -= count
            self._places.release()


def _encoded(event: LiveEvent) -> tuple[bytes, bytes] | None:
    try:
        return event.live_id.encode(), event.encode()
    except BadRecord as error:
        _log.error("event_not_written", kind=event.kind.value, error=str(error))
        return None
