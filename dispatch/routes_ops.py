"""Routes: workers, metrics, health."""

from typing import Annotated
from urllib.parse import unquote

from fastapi import APIRouter, Body, Response
from prometheus_client import CONTENT_TYPE_LATEST

from dispatch.models import DrainIn, DrainOut, HealthOut, WorkerOut, WorkersOut
from dispatch.problem_responses import documented
from dispatch.problems import Problem, ProblemKind
from dispatch.replica import ReplicaDep
from dispatch.routes_lives import unknown_worker
from ownership.model import AlreadyDead, StateSet, UnknownWorker

K = ProblemKind
WORKER_ID_BYTES_MAX = 256

router = APIRouter()


@router.get(
    "/v1/workers",
    tags=["workers"],
    summary="List workers",
    responses=documented(K.STORE_AWAY, K.INTERNAL),
)
async def list_workers(replica: ReplicaDep) -> WorkersOut:
    """Slots are counted now; lives, speaking and partitions are what the worker said last."""
    views = await replica.service.lives.workers()
    return WorkersOut(workers=[WorkerOut.of(view) for view in views])


@router.post(
    "/v1/workers/{worker_id}/drain",
    tags=["workers"],
    summary="Drain a worker",
    responses=documented(
        K.UNKNOWN_WORKER, K.MOVE_REFUSED, K.INVALID, K.MALFORMED, K.STORE_AWAY, K.INTERNAL
    ),
)
async def drain(
    replica: ReplicaDep, worker_id: str, body: Annotated[DrainIn | None, Body()] = None
) -> DrainOut:
    """Admits nothing more to the worker and moves its lives away. May be repeated, and undone."""
    draining = (body or DrainIn()).draining
    worker_id = unquote(worker_id)
    if len(worker_id.encode()) > WORKER_ID_BYTES_MAX:
        raise unknown_worker(worker_id[:WORKER_ID_BYTES_MAX])
    match await replica.service.lives.drain(worker_id, draining=draining):
        case StateSet():
            return DrainOut(worker_id=worker_id, state="draining" if draining else "ready")
        case AlreadyDead():
            raise Problem(
                K.MOVE_REFUSED,
                "The worker is dead; its lives are being recovered.",
                {"worker_id": worker_id},
            )
        case UnknownWorker():
            raise unknown_worker(worker_id)


@router.get("/metrics", tags=["operation"], summary="Metrics", response_class=Response)
async def metrics(replica: ReplicaDep) -> Response:
    """Prometheus text exposition."""
    return Response(replica.metrics.render(), media_type=CONTENT_TYPE_LATEST)


@router.get("/healthz", tags=["operation"], summary="The process is alive")
async def healthz() -> HealthOut:
    """Answers as long as the event loop turns; says nothing about the store or the broker."""
    return HealthOut(status="alive")


@router.get(
    "/readyz",
    tags=["operation"],
    summary="The replica can serve",
    responses=documented(K.NOT_READY),
)
async def readyz(replica: ReplicaDep) -> HealthOut:
    """The store and the broker answer, and the topics have the partitions that were recorded."""
    found = await replica.probe.look()
    if replica.stopping.is_set():
        raise Problem(K.NOT_READY, "This replica stops.")
    if not found.ready:
        raise Problem(
            K.NOT_READY,
            "Requests that need what is missing are refused meanwhile.",
            {"store": found.store, "broker": found.broker},
            replica.service.limits.retry_after_s,
        )
    return HealthOut(status="ready")
