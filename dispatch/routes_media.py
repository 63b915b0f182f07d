"""Routes: viewers. The offer is handed to the live's owner; media flows from there directly."""

from typing import Annotated
from urllib.parse import quote, unquote

from fastapi import APIRouter, Path, Request, Response

from dispatch.problem_responses import documented
from dispatch.problems import Problem, ProblemKind
from dispatch.replica import LiveIdDep, ReplicaDep, live_path
from dispatch.whep_proxy import SDP_BYTES_MAX

K = ProblemKind
SDP_MEDIA_TYPE = "application/sdp"

router = APIRouter(tags=["viewers"])

_REFUSALS = (K.BAD_LIVE_ID, K.UNKNOWN_LIVE, K.LIVE_CLOSED, K.OWNER_NOT_READY, K.STORE_AWAY)


@router.post(
    "/v1/lives/{live_id}/whep",
    status_code=201,
    summary="Watch a live (WHEP)",
    response_class=Response,
    responses={
        201: {
            "description": "The answer, all candidates in it. DELETE the Location to leave.",
            "content": {SDP_MEDIA_TYPE: {"schema": {"type": "string"}}},
        }
    }
    | documented(
        K.BAD_SDP, K.TOO_LARGE, K.UNSUPPORTED_MEDIA, K.TOO_MANY_STREAMS, K.INTERNAL, *_REFUSALS
    ),
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {SDP_MEDIA_TYPE: {"schema": {"type": "string"}}},
        }
    },
)
async def whep(replica: ReplicaDep, live_id: LiveIdDep, request: Request) -> Response:
    """One exchange makes a viewer: gather candidates, then send the offer.

    Right after a live was created or moved its owner may not be ready: repeat after Retry-After.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != SDP_MEDIA_TYPE:
        raise Problem(K.UNSUPPORTED_MEDIA, f"Send the offer as Content-Type: {SDP_MEDIA_TYPE}.")
    sdp = await request.body()
    if len(sdp) > SDP_BYTES_MAX:
        raise Problem(
            K.TOO_LARGE,
            f"An offer has at most {SDP_BYTES_MAX} bytes.",
            {"bytes_max": SDP_BYTES_MAX},
        )
    if not sdp.startswith(b"v=0") or not _is_utf8(sdp):
        raise Problem(K.BAD_SDP, "The body is no session description: it has to begin with v=0.")
    answer = await replica.whep.offer(live_id, sdp)
    replica.service.lives.note_viewer(live_id)
    return Response(
        answer.sdp,
        status_code=201,
        media_type=SDP_MEDIA_TYPE,
        headers={
            "Location": live_path(live_id, "whep", answer.resource),
            "Cache-Control": "no-store",
            "Access-Control-Expose-Headers": "Location",
        },
    )


def _is_utf8(body: bytes) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True


@router.delete(
    "/v1/lives/{live_id}/whep/{resource}",
    status_code=204,
    summary="Stop watching",
    response_class=Response,
    responses=documented(K.BAD_LIVE_ID, K.UNKNOWN_VIEWER, K.OWNER_NOT_READY, K.STORE_AWAY),
)
async def leave(
    replica: ReplicaDep,
    live_id: LiveIdDep,
    resource: Annotated[str, Path(description="From the Location of the answer")],
) -> Response:
    """Ends one viewer's connection, wherever the live is now."""
    await replica.whep.delete(live_id, unquote(resource))
    return Response(status_code=204)


@router.get(
    "/v1/lives/{live_id}/stream.mp4",
    status_code=307,
    summary="Watch a live (fragmented MP4)",
    response_class=Response,
    responses={307: {"description": "The stream is at the live's worker; follow Location."}}
    | documented(K.INTERNAL, *_REFUSALS),
)
async def stream(replica: ReplicaDep, live_id: LiveIdDep) -> Response:
    """For players and recorders without WebRTC. The stream ends when the live moves or closes."""
    owner = await replica.whep.owner(live_id)
    replica.service.lives.note_viewer(live_id)
    return Response(
        status_code=307,
        headers={
            "Location": f"{owner.url}/lives/{quote(live_id, safe='')}/stream.mp4",
            "Cache-Control": "no-store",
        },
    )
