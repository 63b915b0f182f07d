"""Server-sent events: one subscription written to one client until either ends."""

import asyncio
import json

import structlog
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from dispatch.events_feed import FeedEnded, FeedEvent, FeedGap, Subscription
from schemas.events import LiveEvent
from stream.transport import BrokerAway, UnknownTopic

RETRY_MS = 2_000
AWAY_PAUSE_S = 0.5

_log = structlog.get_logger(__name__)


def event_json(event: LiveEvent) -> str:
    """The `data` of an event."""
    return json.dumps(
        {
            "kind": event.kind.value,
            "event_id": event.event_id,
            "source_event_id": event.source_event_id,
            "live_id": event.live_id,
            "worker_id": event.worker_id,
            "epoch": event.epoch,
            "at_ms": event.at_ms,
            "offset": event.offset,
            "data": dict(event.data),
        },
        ensure_ascii=True,
        separators=(",", ":"),
    )


def sse(data: str, *, event_id: str | None = None, name: str | None = None) -> bytes:
    """One message. `data` holds no line break: it is JSON."""
    lines = [f"id: {event_id}"] if event_id is not None else []
    if name is not None:
        lines.append(f"event: {name}")
    lines.append(f"data: {data}")
    return ("\n".join(lines) + "\n\n").encode()


class EventStream(Response):
    """Events are unnamed messages, so `onmessage` gets them; `notice` messages tell of the stream
    itself: `gap` (events were deleted), `lagged` and `stopping` (come back with the last id).

    The first block sets the last id, so a client that heard nothing yet resumes as well.
    """

    media_type = "text/event-stream"

    def __init__(
        self, subscription: Subscription | None = None, heartbeat_s: float = 10, write_s: float = 20
    ) -> None:
        super().__init__(
            headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
            media_type=self.media_type,
        )
        del self.headers["content-length"]
        self._subscription = subscription
        self._heartbeat_s = heartbeat_s
        self._write_s = write_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._subscription is None:
            raise RuntimeError("an event stream needs a subscription")
        pumping = asyncio.create_task(self._pump(self._subscription, send))
        leaving = asyncio.create_task(_until_gone(receive))
        try:
            await asyncio.wait((pumping, leaving), return_when=asyncio.FIRST_COMPLETED)
            if pumping.done():
                pumping.result()
        except TimeoutError:
            _log.info("stream_reader_blocked", path=scope["path"])
        finally:
            self._subscription.close()
            for task in (pumping, leaving):
                task.cancel()
            await asyncio.gather(pumping, leaving, return_exceptions=True)

    async def _pump(self, subscription: Subscription, send: Send) -> None:
        async def write(body: bytes, *, more: bool = True) -> None:
            async with asyncio.timeout(self._write_s):
                await send({"type": "http.response.body", "body": body, "more_body": more})

        await send(
            {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        )
        await write(f"retry: {RETRY_MS}\nid: {subscription.resume_id}\n\n".encode())
        while True:
            try:
                item = await subscription.next(self._heartbeat_s)
            except (BrokerAway, UnknownTopic):
                await write(b": the broker is away\n\n")
                await asyncio.sleep(AWAY_PAUSE_S)
                continue
            match item:
                case None:
                    await write(b": heartbeat\n\n")
                case FeedEvent(event, resume_id):
                    await write(sse(event_json(event), event_id=resume_id))
                case FeedGap(partition, from_offset, to_offset):
                    gap = {"notice": "gap", "partition": partition}
                    gap |= {"from_offset": from_offset, "to_offset": to_offset}
                    await write(sse(json.dumps(gap), name="notice"))
                case FeedEnded(reason, resume_id):
                    last = {"notice": reason.value, "last_event_id": resume_id}
                    await write(
                        sse(json.dumps(last), event_id=resume_id, name="notice"), more=False
                    )
                    return


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
