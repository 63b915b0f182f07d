"""A worker's HTTP interface: viewers handed over by Dispatch, metrics, health."""

import json
from collections.abc import Callable, Mapping
from typing import Annotated
from urllib.parse import quote

from fastapi import FastAPI, Header, Request, Response
from fastapi.responses import StreamingResponse

from controller.metrics import Metrics
from controller.problems import Problem, ProblemKind, respond
from controller.shell import Worker
from gpu_stages.runtime_contract import StageRuntime
from hosting.vigil import Fault
from rtc_output.egress import LiveEgress
from rtc_output.mp4 import stream_mp4
from rtc_output.whep import OfferRefusal, OfferRefused, WhepServer

SDP_MEDIA_TYPE = "application/sdp"
SDP_BYTES_MAX = 65_536

_REFUSED = {
    OfferRefusal.MALFORMED: ProblemKind.MALFORMED_SDP,
    OfferRefusal.NOT_ACCEPTABLE: ProblemKind.NOT_ACCEPTABLE,
    OfferRefusal.TOO_MANY_VIEWERS: ProblemKind.TOO_MANY_VIEWERS,
    OfferRefusal.EGRESS_CLOSED: ProblemKind.NOT_OWNER,
}


def create_app(
    worker: Worker,
    runtime: StageRuntime,
    whep: WhepServer,
    faults: Callable[[], Mapping[Fault, str]] = dict,
) -> FastAPI:
    """The application of one worker."""
    app = FastAPI(title="DHSched worker", docs_url=None, redoc_url=None)
    app.add_exception_handler(Problem, respond)
    _add_media(app, worker, whep)
    _add_health(app, worker, Metrics(worker, runtime, whep, faults))
    return app


def _egress_of(worker: Worker, live_id: str, epoch: int | None = None) -> LiveEgress:
    """The egress of a live that is owned here (under this epoch). Raises Problem."""
    session = worker.session(live_id)
    if session is None or (epoch is not None and session.generation.epoch != epoch):
        raise Problem(
            ProblemKind.NOT_OWNER,
            "Ask Dispatch who owns the live now: it may have moved a moment ago.",
        )
    if not isinstance(session.egress, LiveEgress):
        raise Problem(ProblemKind.NOT_READY, "The live is being claimed.", {"Retry-After": "1"})
    return session.egress


def _add_media(app: FastAPI, worker: Worker, whep: WhepServer) -> None:
    @app.post("/whep/{live_id:path}", status_code=201)
    async def offer(
        request: Request,
        live_id: str,
        dhsched_epoch: Annotated[int | None, Header(alias="DHSched-Epoch")] = None,
    ) -> Response:
        content_type = request.headers.get("content-type", "").split(";")[0].strip()
        if content_type.lower() != SDP_MEDIA_TYPE:
            raise Problem(ProblemKind.UNSUPPORTED_MEDIA, f"Send the offer as {SDP_MEDIA_TYPE}.")
        sdp = await _body(request)
        egress = _egress_of(worker, live_id, dhsched_epoch)
        try:
            resource, answer = await whep.offer(egress, sdp)
        except OfferRefused as error:
            raise Problem(_REFUSED[error.reason], error.detail) from error
        location = f"/whep/{quote(live_id, safe='')}/{resource}"
        return Response(answer, 201, {"Location": location}, media_type=SDP_MEDIA_TYPE)

    @app.delete("/whep/{live_id:path}/{resource}", status_code=200)
    async def end_viewer(live_id: str, resource: str) -> Response:
        if not await whep.delete(resource):
            raise Problem(ProblemKind.UNKNOWN_VIEWER, f"{live_id} has no viewer of that id.")
        return Response(status_code=200)

    @app.get("/lives/{live_id:path}/stream.mp4")
    async def stream(live_id: str) -> StreamingResponse:
        return StreamingResponse(
            stream_mp4(_egress_of(worker, live_id)),
            media_type="video/mp4",
            headers={"Cache-Control": "no-store", "Access-Control-Allow-Origin": "*"},
        )


def _add_health(app: FastAPI, worker: Worker, metrics: Metrics) -> None:
    @app.get("/metrics")
    async def show_metrics() -> Response:
        return Response(metrics.render(), media_type="text/plain; version=0.0.4; charset=utf-8")

    @app.get("/healthz")
    async def healthy() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/readyz")
    async def ready() -> Response:
        state = "ready" if worker.ready else "not ready"
        body = json.dumps({"status": state, "stages": worker.stages_ready})
        return Response(body, 200 if worker.ready else 503, media_type="application/json")

    @app.get("/state")
    async def state() -> dict[str, object]:
        return worker.dump()


async def _body(request: Request) -> str:
    """The offer, bounded before it is read whole."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > SDP_BYTES_MAX:
            raise Problem(ProblemKind.TOO_LARGE, f"An offer has at most {SDP_BYTES_MAX} bytes.")
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise Problem(ProblemKind.MALFORMED_SDP, "The offer is not UTF-8.") from error
