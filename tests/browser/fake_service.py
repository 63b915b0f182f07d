"""The service as the viewer page sees it, over synthetic media: same paths, same shapes.

Everything behind HTTP is imitated; the WebRTC connection and its media are real.
"""

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse

from dispatch.viewer_page import load_assets, viewer_router
from rtc_output.mp4 import stream_mp4
from rtc_output.offer import OfferRefused
from rtc_output.pacing_loop import PacingLoop
from rtc_output.whep import WhepServer, WhepSettings
from schemas.media import MediaTick, TickFlag
from tests.browser.synthetic import SyntheticLive

SECONDS_PER_CHARACTER = 0.06


def problem(status: int, title: str, detail: str, **members: Any) -> JSONResponse:
    body = {"type": "about:blank", "title": title, "status": status, "detail": detail, **members}
    headers = {"Retry-After": str(members["retry_after_s"])} if "retry_after_s" in members else {}
    return JSONResponse(body, status, headers, media_type="application/problem+json")


@dataclass
class FakeLive:
    """One live: synthetic media, and the events that a controller would publish."""

    live_id: str
    options: dict[str, Any]
    pacing: PacingLoop
    worker: str = "node-a-01K9FAKE"
    epoch: int = 1
    state: str = "open"
    close_reason: str = ""
    created_at_ms: int = field(default_factory=lambda: int(time.time() * 1000))
    offset: int = 0
    texts: list[tuple[int, str, str]] = field(default_factory=list)
    current: tuple[int, str, str] | None = None
    listeners: list[asyncio.Queue[str]] = field(default_factory=list)
    event_count: int = 0

    def __post_init__(self) -> None:
        self.media = self._made(start_frame=0)

    def _made(self, start_frame: int) -> SyntheticLive:
        media = SyntheticLive(epoch=self.epoch, binding=self.epoch, start_frame=start_frame)
        media.on_sent = self.on_sent
        self.pacing.add(media.egress)
        return media

    def push(self, text: str) -> dict[str, Any]:
        offset, event_id = self.offset, f"event-{self.offset}"
        self.offset += 1
        self.texts.append((offset, text, event_id))
        self._next()
        return {"partition": 3, "offset": offset, "event_id": event_id, "end_turn_offset": None}

    def _next(self) -> None:
        if self.current is None and self.texts:
            self.current = self.texts.pop(0)
            self.media.speak(len(self.current[1]) * SECONDS_PER_CHARACTER)

    def on_sent(self, tick: MediaTick, _now_us: int) -> None:
        if self.current is None or tick.sample_start < 0 or tick.flags & TickFlag.MUTED:
            return
        offset, text, event_id = self.current
        if tick.sample_start == 0:
            self.tell("speak_started", event_id, offset, char=0, text=text)
        if self.media.speech_ticks == 0 and tick.frame_index == self.media.last_speech_frame:
            self.tell("speak_ended", event_id, offset, char=0, samples=tick.sample_start)
            self.current = None
            self._next()

    def interrupt(self) -> None:
        offset = self.offset
        self.offset += 1
        self.texts.clear()
        self.current = None
        self.media.interrupt()
        self.tell("interrupted", f"event-{offset}", offset, spoken_samples=0)

    def move(self) -> None:
        """The live goes on at another worker; the old one ends its viewers a little later."""
        old, self.epoch, self.worker = self.media, self.epoch + 1, "node-b-01K9FAKE"
        start = old.egress.freeze().next_frame
        self.media = self._made(start)
        self.media.speech_ticks, self.media.spoken_ticks = old.speech_ticks, old.spoken_ticks
        self.tell("moved", "", None, to_worker_id=self.worker, to_epoch=self.epoch)
        asyncio.get_running_loop().call_later(1.0, old.close)

    def tell(self, kind: str, source: str, offset: int | None, **data: Any) -> None:
        self.event_count += 1
        event = {
            "kind": kind,
            "event_id": f"fake-{self.event_count}",
            "source_event_id": source,
            "live_id": self.live_id,
            "worker_id": self.worker,
            "epoch": self.epoch,
            "at_ms": int(time.time() * 1000),
            "offset": offset,
            "data": data,
        }
        frame = f"id: 0:{self.event_count}\ndata: {json.dumps(event)}\n\n"
        for listener in self.listeners:
            listener.put_nowait(frame)

    def view(self) -> dict[str, Any]:
        return {
            "live_id": self.live_id,
            "state": self.state,
            "partition": 3,
            "generation": {"worker_id": self.worker, "epoch": self.epoch},
            "claimed": True,
            "options": self.options,
            "next_offset": self.offset,
            "created_at_ms": self.created_at_ms,
            "closed_at_ms": None,
            "close_reason": self.close_reason,
            "worker_url": None,
        }

    def close(self, reason: str) -> None:
        self.state, self.close_reason = "closed", reason
        self.tell("state_updated", "", None, state="closed", reason=reason)
        self.media.close()


class FakeService:
    """`app` serves the page and the interface; `trouble` answers for a path, once."""

    def __init__(self) -> None:
        self.pacing = PacingLoop()
        self.whep = WhepServer(WhepSettings(look_every_s=0.2))
        self.lives: dict[str, FakeLive] = {}
        self.trouble: dict[str, JSONResponse] = {}
        self.offers = 0
        self.base_url = ""
        self.app = FastAPI()
        self._routes()

    def create(self, live_id: str, options: dict[str, Any] | None = None) -> FakeLive:
        live = FakeLive(live_id, options or {}, self.pacing)
        self.lives[live_id] = live
        return live

    def _routes(self) -> None:
        app = self.app
        app.include_router(viewer_router(load_assets()))

        @app.middleware("http")
        async def _trouble(request: Request, call: Any) -> Response:
            answer = self.trouble.pop(f"{request.method} {request.url.path}", None)
            return answer if answer is not None else await call(request)

        @app.get("/v1/lives")
        async def _list() -> Response:
            return JSONResponse(
                {"lives": [one.view() for one in self.lives.values()], "next": None}
            )

        @app.post("/v1/lives")
        async def _create(request: Request) -> Response:
            body = await request.json()
            live_id = body.get("live_id") or f"live-{len(self.lives) + 1}"
            if live_id in self.lives:
                return problem(409, "The live exists already", "Choose another id.")
            live = self.create(live_id, body.get("options", {}))
            return JSONResponse(live.view(), 201)

        @app.get("/v1/lives/{live_id}")
        async def _get(live_id: str) -> Response:
            live = self.lives.get(live_id)
            return JSONResponse(live.view()) if live else self._unknown()

        @app.post("/v1/lives/{live_id}/text")
        async def _text(live_id: str, request: Request) -> Response:
            live = self.lives.get(live_id)
            return (
                JSONResponse(live.push((await request.json())["text"]), 202)
                if live
                else (self._unknown())
            )

        @app.post("/v1/lives/{live_id}/interrupt")
        async def _interrupt(live_id: str) -> Response:
            self.lives[live_id].interrupt()
            return Response(status_code=202)

        @app.get("/v1/lives/{live_id}/events")
        async def _events(live_id: str) -> Response:
            return StreamingResponse(
                self._listen(self.lives[live_id]), media_type="text/event-stream"
            )

        @app.get("/v1/lives/{live_id}/stream.mp4")
        async def _mp4(live_id: str) -> Response:
            return StreamingResponse(
                stream_mp4(self.lives[live_id].media.egress), media_type="video/mp4"
            )

        @app.post("/v1/lives/{live_id}/whep")
        async def _whep(live_id: str, request: Request) -> Response:
            self.offers += 1
            live = self.lives.get(live_id)
            if live is None:
                return self._unknown()
            if live.state != "open":
                return problem(410, "The live is closed", "Create it again to go on.")
            try:
                sdp = (await request.body()).decode()
                resource, answer = await self.whep.offer(live.media.egress, sdp)
            except OfferRefused as refused:
                return problem(refused.reason.http_status, "The offer was refused", refused.detail)
            location = f"/v1/lives/{live_id}/whep/{resource}"
            headers = {"Location": location}
            return Response(answer, 201, headers, media_type="application/sdp")

        @app.delete("/v1/lives/{live_id}/whep/{resource}")
        async def _leave(live_id: str, resource: str) -> Response:
            await self.whep.delete(resource)
            return Response(status_code=204)

    @staticmethod
    def _unknown() -> JSONResponse:
        return problem(404, "No such live", "No live of this id was ever created.")

    @staticmethod
    async def _listen(live: FakeLive) -> AsyncIterator[str]:
        queue: asyncio.Queue[str] = asyncio.Queue()
        live.listeners.append(queue)
        try:
            yield ": hello\n\n"
            while True:
                yield await queue.get()
        finally:
            live.listeners.remove(queue)

    async def close(self) -> None:
        await self.whep.close()
        for live in self.lives.values():
            live.media.close()
        self.pacing.close()


@asynccontextmanager
async def fake_service() -> AsyncIterator[FakeService]:
    """Serve on a free port of the loopback until the block ends."""
    service = FakeService()
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    service.base_url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    config = uvicorn.Config(
        service.app, log_level="warning", lifespan="off", ws="none", timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    server.install_signal_handlers = lambda: None  # type: ignore[method-assign]
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        yield service
    finally:
        server.should_exit = server.force_exit = True
        with suppress(asyncio.CancelledError):
            await serving
        await service.close()
        listening.close()


async def _main() -> None:
    async with fake_service() as service:
        live = service.create("guide-7", {"look": "clay"})
        print(f"{service.base_url}/watch/{live.live_id}", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(_main())
