"""Routes: what happens to one live, or to all, as server-sent events."""

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query

from dispatch.problem_responses import documented
from dispatch.problems import Problem, ProblemKind
from dispatch.replica import LiveIdDep, Replica, ReplicaDep
from dispatch.sse import EventStream
from dispatch.whep_proxy import unknown_live

K = ProblemKind
FEED_WAIT_S = 3.0

router = APIRouter(tags=["events"])

LastEventId = Annotated[
    str | None, Header(description="The id of the last event that was received: go on after it")
]
LastEventIdQuery = Annotated[
    str | None,
    Query(alias="last_event_id", description="As the header, for clients that cannot set one"),
]
_STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Unnamed messages hold events; messages named `notice` tell of the stream.",
        "content": {
            "text/event-stream": {
                "schema": {"type": "string"},
                "example": 'id: 2:117\ndata: {"kind":"speak_started","live_id":"guide-7",..}\n\n',
            }
        },
    }
}
_REFUSALS = (K.BAD_EVENT_ID, K.BAD_LIVE_ID, K.TOO_MANY_STREAMS, K.BROKER_AWAY, K.INTERNAL)


@router.get(
    "/v1/lives/{live_id}/events",
    summary="Follow one live",
    status_code=200,
    response_class=EventStream,
    responses=_STREAM | documented(K.UNKNOWN_LIVE, K.STORE_AWAY, *_REFUSALS),
)
async def live_events(
    replica: ReplicaDep,
    live_id: LiveIdDep,
    last_event_id: LastEventId = None,
    last_event_id_query: LastEventIdQuery = None,
) -> EventStream:
    """Ids are `partition:offset` in the events topic, so any replica resumes any stream."""
    if await replica.service.lives.get(live_id) is None:
        raise unknown_live()
    return await _stream(replica, live_id, last_event_id or last_event_id_query)


@router.get(
    "/v1/events",
    summary="Follow every live",
    status_code=200,
    response_class=EventStream,
    responses=_STREAM | documented(*_REFUSALS),
)
async def all_events(
    replica: ReplicaDep,
    last_event_id: LastEventId = None,
    last_event_id_query: LastEventIdQuery = None,
) -> EventStream:
    """Ids list the place reached in every partition, `partition:offset` each, comma-separated."""
    return await _stream(replica, None, last_event_id or last_event_id_query)


async def _stream(replica: Replica, live_id: str | None, last_event_id: str | None) -> EventStream:
    try:
        async with asyncio.timeout(FEED_WAIT_S):
            subscription = await replica.service.feed.subscribe(live_id, last_event_id)
    except TimeoutError:
        raise Problem(
            K.BROKER_AWAY,
            "The events topic cannot be read now. Connect again a bit later.",
            retry_after_s=replica.service.limits.retry_after_s,
        ) from None
    settings = replica.settings
    return EventStream(subscription, settings.heartbeat_s, settings.stream_write_s)
