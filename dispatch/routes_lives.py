"""Routes: create, look at, list, keep alive, close and move lives."""

from typing import Annotated, assert_never

from fastapi import APIRouter, Body, Header, Query, Request, Response

from dispatch.lives import NoCapacity, Opened, Opening
from dispatch.models import (
    ClosedOut,
    CreatedOut,
    CreateLiveIn,
    GenerationOut,
    KeptOut,
    LiveOut,
    LivesOut,
    MoveIn,
    MoveOut,
    members,
)
from dispatch.moves import AlreadyThere, MoveRequested, NoOwner
from dispatch.problem_responses import documented
from dispatch.problems import Problem, ProblemKind
from dispatch.replica import LiveIdDep, ReplicaDep, live_path
from dispatch.whep_proxy import live_closed, unknown_live
from ownership.model import (
    AlreadyClosed,
    Closed,
    Existing,
    IdempotencyMismatch,
    LiveExists,
    NoFreeSlot,
    UnknownLive,
    UnknownWorker,
    WorkerNotReady,
)
from schemas.live_id import BadLiveId, check_live_id

K = ProblemKind
CLOSE_REASON = "api"

router = APIRouter(tags=["lives"])


@router.post(
    "/v1/lives",
    status_code=201,
    response_model=CreatedOut,
    summary="Create a live",
    responses=documented(
        K.MALFORMED, K.INVALID, K.BAD_LIVE_ID, K.BAD_OPTIONS, K.LIVE_EXISTS,
        K.IDEMPOTENCY_MISMATCH, K.TOO_LARGE, K.NO_CAPACITY, K.STORE_AWAY, K.INTERNAL,
    ),
)  # fmt: skip
async def create_live(
    replica: ReplicaDep,
    request: Request,
    response: Response,
    body: Annotated[CreateLiveIn | None, Body()] = None,
    idempotency_key: Annotated[
        str | None,
        Header(description="Repeating a request with its key gives the live made the first time"),
    ] = None,
) -> CreatedOut:
    """Opens a live and gives it to a worker, in one transaction.

    Without an id the service chooses one. With an `Idempotency-Key` the request may be repeated on
    any replica, also when the first answer never came: it creates one live.
    """
    del idempotency_key  # declared for the description
    body = body or CreateLiveIn()
    opening = Opening(
        options=replica.settings.check_names(body.options.options()),
        live_id=_checked(body.live_id) if body.live_id is not None else None,
        # From the head itself: an empty key must not pass for none.
        idempotency_key=_checked_key(replica, request.headers.get("idempotency-key")),
    )
    outcome = await replica.service.lives.create(opening)
    match outcome:
        case Opened(live_id, generation, partition):
            created = CreatedOut(
                live_id=live_id,
                state="open",
                partition=partition,
                generation=GenerationOut.of(generation),
            )
        case Existing(view):
            response.headers["Idempotency-Replayed"] = "true"
            created = CreatedOut(
                live_id=view.live_id,
                state=view.live.state.value,
                partition=view.live.partition,
                generation=GenerationOut.of(view.generation),
            )
        case LiveExists():
            raise Problem(
                K.LIVE_EXISTS, "A live of this id is open. Use it, close it, or choose another id."
            )
        case IdempotencyMismatch():
            raise Problem(
                K.IDEMPOTENCY_MISMATCH,
                "This Idempotency-Key came with another body before. Use a new key for a new live.",
            )
        case NoCapacity(counts):
            raise Problem(
                K.NO_CAPACITY,
                "No worker has a free slot. Repeat the request later, or add workers.",
                {"counts": members(counts)},
                replica.service.limits.no_capacity_retry_after_s,
            )
        case _:
            assert_never(outcome)
    response.headers["Location"] = live_path(created.live_id)
    return created


def _checked(live_id: str) -> str:
    try:
        return check_live_id(live_id)
    except BadLiveId as error:
        raise Problem(K.BAD_LIVE_ID, str(error)) from None


def _checked_key(replica: ReplicaDep, key: str | None) -> str | None:
    longest = replica.service.limits.idempotency_key_chars_max
    if key is not None and not (0 < len(key) <= longest and key.isascii() and key.isprintable()):
        raise Problem(K.INVALID, f"Idempotency-Key has 1 to {longest} printable ASCII characters.")
    return key


@router.get(
    "/v1/lives",
    summary="List lives",
    responses=documented(K.INVALID, K.BAD_LIVE_ID, K.STORE_AWAY, K.INTERNAL),
)
async def list_lives(
    replica: ReplicaDep,
    after: Annotated[str | None, Query(description="The `next` of the page before")] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> LivesOut:
    """Open and closed lives in order of their ids, page by page."""
    if after is not None:
        _checked(after)
    views, more = await replica.service.lives.page(after, limit)
    return LivesOut(lives=[LiveOut.of(view) for view in views], next=more)


@router.get(
    "/v1/lives/{live_id}",
    summary="Look at a live",
    responses=documented(K.UNKNOWN_LIVE, K.BAD_LIVE_ID, K.STORE_AWAY, K.INTERNAL),
)
async def get_live(replica: ReplicaDep, live_id: LiveIdDep) -> LiveOut:
    """A closed live is found too, with the reason of its end."""
    view = await replica.service.lives.get(live_id)
    if view is None:
        raise unknown_live()
    return LiveOut.of(view)


@router.delete(
    "/v1/lives/{live_id}",
    summary="Close a live",
    responses=documented(K.UNKNOWN_LIVE, K.LIVE_CLOSED, K.BAD_LIVE_ID, K.STORE_AWAY, K.INTERNAL),
)
async def close_live(replica: ReplicaDep, live_id: LiveIdDep) -> ClosedOut:
    """Ends the live at once. Text that was not spoken goes to the dead-letter topic.

    To close after everything was spoken, append a record of kind CLOSE to the text topic instead.
    """
    match await replica.service.lives.close(live_id, CLOSE_REASON):
        case Closed(generation):
            return ClosedOut(
                live_id=live_id,
                state="closed",
                close_reason=CLOSE_REASON,
                generation=GenerationOut.of(generation),
            )
        case AlreadyClosed(reason):
            raise live_closed(reason)
        case UnknownLive():
            raise unknown_live()


@router.post(
    "/v1/lives/{live_id}/keepalive",
    summary="Keep a live alive",
    responses=documented(K.UNKNOWN_LIVE, K.LIVE_CLOSED, K.BAD_LIVE_ID, K.STORE_AWAY, K.INTERNAL),
)
async def keepalive(replica: ReplicaDep, live_id: LiveIdDep) -> KeptOut:
    """Counts as use: the idle timeout begins anew. Text and viewers count as use by themselves."""
    outcome = await replica.service.lives.keepalive(live_id)
    match outcome:
        case UnknownLive():
            raise unknown_live()
        case AlreadyClosed(reason):
            raise live_closed(reason)
        case _:
            idle_ms = outcome.live.options.idle_timeout_ms
            return KeptOut(live_id=live_id, idle_timeout_ms=idle_ms)


@router.post(
    "/v1/lives/{live_id}/move",
    status_code=202,
    summary="Move a live to another worker",
    responses=documented(
        K.UNKNOWN_LIVE, K.LIVE_CLOSED, K.UNKNOWN_WORKER, K.MOVE_REFUSED, K.NO_CAPACITY,
        K.OWNER_NOT_READY, K.INVALID, K.BAD_LIVE_ID, K.STORE_AWAY, K.INTERNAL,
    ),
)  # fmt: skip
async def move_live(
    replica: ReplicaDep, live_id: LiveIdDep, body: Annotated[MoveIn | None, Body()] = None
) -> MoveOut:
    """A planned move: the live goes on speaking, and changes workers between two frames."""
    outcome = await replica.service.mover.request_move(live_id, (body or MoveIn()).to)
    limits = replica.service.limits
    match outcome:
        case MoveRequested(_, source, target, token):
            owner = GenerationOut(worker_id=source.worker_id, epoch=source.epoch)
            return MoveOut(live_id=live_id, source=owner, target=target, token=token)
        case UnknownLive():
            raise unknown_live()
        case AlreadyClosed(reason):
            raise live_closed(reason)
        case UnknownWorker(worker_id):
            raise unknown_worker(worker_id)
        case AlreadyThere(worker_id):
            raise Problem(
                K.MOVE_REFUSED, "The live is on this worker already.", {"worker_id": worker_id}
            )
        case WorkerNotReady(worker_id):
            raise Problem(
                K.MOVE_REFUSED,
                "The worker is draining or dead and takes no lives. Name another, or none.",
                {"worker_id": worker_id},
            )
        case NoFreeSlot():
            counts = replica.service.fleet.counts()
            raise Problem(
                K.NO_CAPACITY,
                "There is no free slot to move the live to. It stays where it is.",
                {"counts": members(counts)},
                limits.no_capacity_retry_after_s,
            )
        case NoOwner():
            raise Problem(
                K.OWNER_NOT_READY,
                "Nobody owns the live now; it is given to a worker as soon as one is free.",
                retry_after_s=limits.retry_after_s,
            )
        case _:
            assert_never(outcome)


def unknown_worker(worker_id: str) -> Problem:
    """For every route that names a worker."""
    return Problem(
        K.UNKNOWN_WORKER,
        "There is no such worker; GET /v1/workers lists them. Ids are new at every start.",
        {"worker_id": worker_id},
    )
