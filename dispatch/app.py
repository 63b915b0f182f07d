"""The HTTP interface put together: routes, problem details, description."""

from typing import Any

from fastapi import FastAPI
from fastapi.middleware.cors import CORSMiddleware
from fastapi.openapi.utils import get_openapi
from fastapi.responses import HTMLResponse

from dispatch import routes_events, routes_lives, routes_media, routes_ops, routes_text
from dispatch.docs_page import docs_html
from dispatch.http_edge import EdgeMiddleware
from dispatch.models import Problem
from dispatch.problem_responses import install
from dispatch.problems import ProblemKind
from dispatch.replica import Replica
from dispatch.viewer_page import load_assets, viewer_router

DOCS_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'",
    "Cache-Control": "no-cache",
}
TITLE = "DHSched Dispatch"
VERSION = "1"
DESCRIPTION = """
Opens, feeds, watches and ends *lives*: avatar sessions that speak what is written to them.

Any request may go to any replica. Every refusal is a problem document (RFC 9457) whose `type` is
stable, and whose `detail` says what to do. A `503` or `429` carries `Retry-After`.

Text may also be produced to the Kafka topic `dhsched.text` with the live's id as key.

Token streams: a WebSocket at `/v1/lives/{live_id}/text`. Each message is one of `{"text": ".."}`
(with `seq` where it is repeated), `{"end_turn": true}`, `{"interrupt": true}`; they are numbered
from 1 and answered in order, `{"ack": 1, "partition": 3, "offset": 42, "event_id": ".."}` or
`{"error": 1, "problem": {..}}`. After an error the socket stays open, unless the live has ended.
"""
TAGS = [
    {"name": "lives", "description": "From creation to end."},
    {"name": "text", "description": "What a live speaks."},
    {
        "name": "viewers",
        "description": "WHEP, and fragmented MP4 for players without WebRTC.",
    },
    {"name": "events", "description": "Server-sent events that resume by Last-Event-ID."},
    {"name": "workers", "description": "Who speaks the lives."},
    {"name": "operation", "description": "Metrics and health."},
]


def create_app(replica: Replica) -> FastAPI:
    """The ASGI application of one replica. The service's loops are run by the caller."""
    settings, metrics = replica.settings, replica.metrics
    app = FastAPI(
        title=TITLE,
        version=VERSION,
        description=DESCRIPTION,
        openapi_tags=TAGS,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        telemetry={"tracing": False},
    )
    app.state.replica = replica

    def count(kind: ProblemKind) -> None:
        metrics.problems.labels(kind.value).inc()

    install(app, count)
    for routes in (routes_lives, routes_text, routes_media, routes_events, routes_ops):
        app.include_router(routes.router)
    app.include_router(viewer_router(load_assets()))
    app.add_middleware(
        EdgeMiddleware,
        metrics=metrics,
        body_bytes_max=settings.body_bytes_max,
        body_wait_s=settings.body_wait_s,
    )
    if settings.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(settings.cors_origins),
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=["*"],
            expose_headers=["Location", "Retry-After", "Idempotency-Replayed"],
        )
    _describe(app)
    return app


def _describe(app: FastAPI) -> None:
    """The description with the problem document in it, which no route returns by itself."""

    def openapi() -> dict[str, Any]:
        if not app.openapi_schema:
            schema = get_openapi(
                title=app.title,
                version=app.version,
                description=app.description,
                routes=app.routes,
                tags=app.openapi_tags,
            )
            schemas = schema.setdefault("components", {}).setdefault("schemas", {})
            schemas["Problem"] = Problem.model_json_schema()
            app.openapi_schema = schema
        return app.openapi_schema

    app.openapi = openapi

    @app.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        return HTMLResponse(docs_html(openapi()), headers=DOCS_HEADERS)

    del docs  # it lives on in the application
