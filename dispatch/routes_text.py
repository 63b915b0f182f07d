"""Routes: text into a live, by request or by socket, and interrupts."""

from typing import Annotated

from fastapi import APIRouter, Body, WebSocket

from dispatch.models import PushedOut, TextIn
from dispatch.problem_responses import documented
from dispatch.problems import ProblemKind
from dispatch.replica import LiveIdDep, ReplicaDep
from dispatch.text_input import Pushed, Turn
from dispatch.text_socket import serve_socket
from dispatch.whep_proxy import live_closed, unknown_live
from ownership.model import AlreadyClosed, UnknownLive

K = ProblemKind

router = APIRouter(tags=["text"])

_REFUSALS = documented(
    K.MALFORMED, K.INVALID, K.BAD_LIVE_ID, K.BAD_TEXT, K.TOO_LARGE, K.UNKNOWN_LIVE, K.LIVE_CLOSED,
    K.STORE_AWAY, K.BROKER_AWAY, K.OUTCOME_UNKNOWN, K.INTERNAL,
)  # fmt: skip


@router.post(
    "/v1/lives/{live_id}/text",
    status_code=202,
    summary="Speak a text",
    responses=_REFUSALS,
)
async def push_text(
    replica: ReplicaDep, live_id: LiveIdDep, body: Annotated[TextIn, Body()]
) -> PushedOut:
    """Appends text to the live's input; answered when every in-sync replica of the broker has it.

    Texts are spoken in the order of their offsets, as if they were one: break sentences anywhere.
    """
    turn = Turn(body.text, body.end_turn, body.seq)
    match await replica.service.text.push(live_id, turn):
        case UnknownLive():
            raise unknown_live()
        case AlreadyClosed(reason):
            raise live_closed(reason)
        case Pushed() as pushed:
            return pushed_out(pushed)


def pushed_out(pushed: Pushed) -> PushedOut:
    """The place of the text; of the end of the turn where there is no text."""
    first = pushed.text or pushed.end_turn
    if first is None:
        raise RuntimeError("a push appended nothing")
    return PushedOut(
        partition=first.partition,
        offset=first.offset,
        event_id=first.event_id,
        end_turn_offset=pushed.end_turn.offset if pushed.end_turn is not None else None,
    )


@router.post(
    "/v1/lives/{live_id}/interrupt",
    status_code=202,
    summary="Interrupt a live",
    responses=_REFUSALS,
)
async def interrupt(replica: ReplicaDep, live_id: LiveIdDep) -> PushedOut:
    """Ends what is being spoken, and skips the text appended before this."""
    outcome = await replica.service.text.interrupt(live_id)
    match outcome:
        case UnknownLive():
            raise unknown_live()
        case AlreadyClosed(reason):
            raise live_closed(reason)
        case _:
            return PushedOut(
                partition=outcome.partition, offset=outcome.offset, event_id=outcome.event_id
            )


@router.websocket("/v1/lives/{live_id}/text")
async def text_socket(socket: WebSocket, replica: ReplicaDep, live_id: str) -> None:
    """A token stream: one JSON message each, answered in order (see `text_socket.py`)."""
    await serve_socket(socket, replica, live_id)
