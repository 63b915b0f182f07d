"""Writing to the topics: text that a client hands in, and events about what this replica did.

Text is answered only when every in-sync replica has it, and its three outcomes stay three: in the
log (Published), certainly not (SendRefused, BrokerAway, TooBusy), unknown (SendUnknown, which
only a `seq` lets a client repeat safely). Events are a report, no part of the protocol: they are
written behind the request's back, and what cannot be written in time is dropped and counted.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import structlog

from dispatch.clock import Clock
from schemas.events import EventKind, LiveEvent
from schemas.store_values import Generation
from schemas.text_record import RecordKind, TextRecord, encode_text_record
from schemas.topics import EVENTS_TOPIC, TEXT_TOPIC
from stream.transport import BrokerAway, Producer, SendRefused, SendUnknown, Transport

EVENTS_WAITING_MAX = 4_096
EVENTS_AT_ONCE_MAX = 64

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Published:
    """Where a record lies, and the id that events caused by it name."""

    partition: int
    offset: int
    event_id: str


class TooBusy(Exception):
    """So many sends wait for the broker that no further one is begun. Nothing was written."""


class Publisher:
    """The one producer of a replica; made at the first use, shared by all requests."""

    def __init__(
        self,
        transport: Transport,
        clock: Clock,
        mint_id: Callable[[], str],
        *,
        sends_in_flight_max: int = 4_096,
    ) -> None:
        self._transport = transport
        self._clock = clock
        self._mint_id = mint_id
        self._sends_in_flight_max = sends_in_flight_max
        self._in_flight = 0
        self._producer: Producer | None = None
        self._making = asyncio.Lock()
        self._events: deque[LiveEvent] = deque()
        self._has_events = asyncio.Event()
        self.events_dropped = 0

    async def text(
        self,
        live_id: str,
        partition: int,
        kind: RecordKind,
        *,
        text: str = "",
        seq: int | None = None,
    ) -> Published:
        """Appends one record to the live's input.

        Raises BadRecord (the caller's fault), SendRefused, SendUnknown, BrokerAway, TooBusy.
        """
        event_id = self._mint_id()
        record = TextRecord(kind, text, seq, event_id, self._clock.wall_ms())
        value = encode_text_record(record)
        if self._in_flight >= self._sends_in_flight_max:
            raise TooBusy
        self._in_flight += 1
        try:
            producer = await self._ready_producer()
            sent = await producer.send(
                TEXT_TOPIC, key=live_id.encode(), value=value, partition=partition
            )
        finally:
            self._in_flight -= 1
        return Published(sent.partition, sent.offset, event_id)

    def report(
        self,
        kind: EventKind,
        live_id: str,
        generation: Generation,
        data: Mapping[str, str | int | float | bool | None],
        source_event_id: str = "",
    ) -> None:
        """Queues an event for `run`; never waits."""
        if len(self._events) >= EVENTS_WAITING_MAX:
            self.events_dropped += 1
            return
        self._events.append(
            LiveEvent(
                kind=kind,
                event_id=self._mint_id(),
                source_event_id=source_event_id,
                live_id=live_id,
                worker_id=generation.worker_id,
                epoch=generation.epoch,
                at_ms=self._clock.wall_ms(),
                data=dict(data),
            )
        )
        self._has_events.set()

    async def run(self) -> None:
        """Writes the queued events until cancelled."""
        while True:
            while self._events:
                some = [
                    self._events.popleft()
                    for _ in range(min(EVENTS_AT_ONCE_MAX, len(self._events)))
                ]
                await asyncio.gather(*(self._write_event(event) for event in some))
            self._has_events.clear()
            await self._has_events.wait()

    async def _write_event(self, event: LiveEvent) -> None:
        try:
            producer = await self._ready_producer()
            await producer.send(EVENTS_TOPIC, key=event.live_id.encode(), value=event.encode())
        except (SendRefused, SendUnknown, BrokerAway) as error:
            self.events_dropped += 1
            _log.warning("event_not_written", kind=event.kind.value, reason=str(error))

    async def _ready_producer(self) -> Producer:
        async with self._making:
            if self._producer is None:
                self._producer = await self._transport.producer()
            return self._producer

    async def close(self) -> None:
        """After `run` was cancelled."""
        if self._producer is not None:
            await self._producer.close()
            self._producer = None
