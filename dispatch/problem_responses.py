"""Every error as problem details: one place that knows which exception means what to a client."""

import json
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, cast

import structlog
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from dispatch.event_ids import BadEventId
from dispatch.events_feed import TooManyStreams
from dispatch.problems import KINDS, PROBLEM_MEDIA_TYPE, TYPE_PREFIX, Problem, ProblemKind
from dispatch.publish import TooBusy
from dispatch.text_input import EndTurnNotSent
from ownership.kv import CommitUnknown, StoreAway, StoreFull
from schemas.bad_record import BadRecord, DeadLetterReason
from schemas.options import BadOptions
from schemas.text_record import TEXT_BYTES_MAX
from stream.transport import BrokerAway, SendRefused, SendUnknown, UnknownTopic

RETRY_AFTER_S = 2
ERRORS_LISTED_MAX = 20
MESSAGE_CHARS_MAX = 200

_log = structlog.get_logger(__name__)

_AWAY = {
    StoreAway: (ProblemKind.STORE_AWAY, "Nothing was changed. Repeat the request a little later."),
    StoreFull: (ProblemKind.STORE_AWAY, "The store is full; an operator has to make room."),
    CommitUnknown: (
        ProblemKind.STORE_AWAY,
        "Whether the request took effect is not known. Look at the live before you repeat it; a "
        "create with the same Idempotency-Key may be repeated as it is.",
    ),
    BrokerAway: (ProblemKind.BROKER_AWAY, "Nothing was appended. Repeat the request a bit later."),
    UnknownTopic: (ProblemKind.BROKER_AWAY, "The broker does not know the topic (yet)."),
    SendRefused: (ProblemKind.BROKER_AWAY, "The broker refused it: the record is not in the log."),
    TooBusy: (
        ProblemKind.BROKER_AWAY,
        "Too many records wait for the broker; none was added.",
    ),
    SendUnknown: (
        ProblemKind.OUTCOME_UNKNOWN,
        "The broker did not answer in time: the text may be in the log, or not. Repeat it with the "
        "same `seq`, and it is spoken once whatever happened; without a `seq` it may be spoken "
        "twice.",
    ),
    TooManyStreams: (ProblemKind.TOO_MANY_STREAMS, "Connect to another replica, or later."),
}


def problem_of(error: Exception) -> Problem | None:
    """The client's view of an exception; None for one that nobody expected."""
    match error:
        case Problem():
            return error
        case BadRecord():
            return _bad_record(error)
        case BadOptions():
            return Problem(
                ProblemKind.BAD_OPTIONS, str(error)[:MESSAGE_CHARS_MAX], {"option": error.field}
            )
        case BadEventId():
            return Problem(
                ProblemKind.BAD_EVENT_ID, f"{error}. Without Last-Event-ID it begins now."
            )
        case EndTurnNotSent():
            return Problem(
                ProblemKind.OUTCOME_UNKNOWN,
                "The text is in the log, the end of the turn perhaps not. Send "
                '{"end_turn": true} alone; a second end of a turn does no harm.',
                {
                    "partition": error.text.partition,
                    "offset": error.text.offset,
                    "event_id": error.text.event_id,
                },
                RETRY_AFTER_S,
            )
        case _:
            for kind_of_error, (kind, detail) in _AWAY.items():
                if isinstance(error, kind_of_error):
                    return Problem(kind, detail, retry_after_s=RETRY_AFTER_S)
            return None


def _bad_record(error: BadRecord) -> Problem:
    if error.reason is DeadLetterReason.TOO_LARGE:
        return Problem(
            ProblemKind.TOO_LARGE,
            f"One text has at most {TEXT_BYTES_MAX} bytes of UTF-8; send longer ones in pieces.",
            {"bytes_max": TEXT_BYTES_MAX},
        )
    return Problem(ProblemKind.BAD_TEXT, error.detail, {"reason": error.reason.value})


def unexpected(error: Exception, path: str) -> Problem:
    """Logged with its traceback; the client learns nothing about our insides."""
    _log.error("unexpected_error", path=path, exc_info=error)
    return Problem(
        ProblemKind.INTERNAL,
        "This is a mistake of the service and was logged. Look at the live before you repeat the "
        "request: it may have taken effect.",
    )


def problem_response(problem: Problem, instance: str | None) -> Response:
    """ASCII JSON: a client's odd characters, quoted in a member, cannot break the encoding."""
    body = json.dumps(problem.body(instance), ensure_ascii=True, allow_nan=False)
    return Response(body, problem.status, problem.all_headers(), media_type=PROBLEM_MEDIA_TYPE)


def instance_of(request: Request) -> str:
    """The path as it was asked for."""
    return request.url.path


def _of_http(error: HTTPException, request: Request) -> Problem:
    headers = dict(error.headers or {})
    match error.status_code:
        case 404:
            detail = "There is nothing at this path; /docs lists what there is."
            return Problem(ProblemKind.NOT_FOUND, detail)
        case 405:
            detail = f"{request.method} is not allowed here; Allow lists what is."
            return Problem(ProblemKind.METHOD_NOT_ALLOWED, detail, headers=headers)
        case 413:
            return Problem(ProblemKind.TOO_LARGE, "The body is too large.")
        case status if 400 <= status < 500:
            detail = "The body cannot be read as JSON in UTF-8."
            return Problem(ProblemKind.MALFORMED, detail)
        case _:
            return unexpected(error, instance_of(request))


def _of_validation(error: RequestValidationError, request: Request) -> Problem:
    errors = cast("list[dict[str, Any]]", list(error.errors()))
    listed: list[dict[str, str]] = []
    for one in errors[:ERRORS_LISTED_MAX]:
        if one.get("type") == "json_invalid":
            where = one["loc"][-1]
            return Problem(
                ProblemKind.MALFORMED, f"The body is not valid JSON, from character {where} on."
            )
        place = "/".join(str(part)[:MESSAGE_CHARS_MAX] for part in one["loc"])
        listed.append({"at": place, "message": str(one["msg"])[:MESSAGE_CHARS_MAX]})
    has_body = request.headers.get("content-length", "0") != "0"
    content_type = request.headers.get("content-type", "")
    if has_body and "json" not in content_type and listed[0]["at"].startswith("body"):
        return Problem(
            ProblemKind.UNSUPPORTED_MEDIA, "Send the body as Content-Type: application/json."
        )
    said = "; ".join(f"{one['at']}: {one['message']}" for one in listed[:3])
    return Problem(ProblemKind.INVALID, f"{said}.", {"errors": listed})


def install(app: FastAPI, count: Callable[[ProblemKind], None]) -> None:
    """Answer every expected exception of a route."""

    def handler(
        make: Callable[[Any, Request], Problem],
    ) -> Callable[[Request, Exception], Awaitable[Response]]:
        async def handle(request: Request, error: Exception) -> Response:
            problem = make(error, request)
            count(problem.kind)
            return problem_response(problem, instance_of(request))

        return handle

    def expected(error: Exception, request: Request) -> Problem:
        return problem_of(error) or unexpected(error, instance_of(request))

    for kind in (Problem, BadRecord, BadOptions, BadEventId, EndTurnNotSent, *_AWAY):
        app.add_exception_handler(kind, handler(expected))
    app.add_exception_handler(HTTPException, handler(_of_http))
    app.add_exception_handler(RequestValidationError, handler(_of_validation))


def documented(*kinds: ProblemKind) -> dict[int | str, dict[str, Any]]:
    """OpenAPI responses for the problems that a route can answer with, with an example each."""
    responses: dict[int | str, dict[str, Any]] = {}
    for kind in kinds:
        status, title = KINDS[kind]
        found = responses.setdefault(
            status,
            {
                "description": "",
                "content": {
                    PROBLEM_MEDIA_TYPE: {
                        "schema": {"$ref": "#/components/schemas/Problem"},
                        "examples": {},
                    }
                },
            },
        )
        found["description"] = f"{found['description']}; {title}".removeprefix("; ")
        if status in (429, 503):
            found["headers"] = {"Retry-After": {"schema": {"type": "integer"}}}
        found["content"][PROBLEM_MEDIA_TYPE]["examples"][kind.value] = {
            "value": {
                "type": TYPE_PREFIX + kind,
                "title": title,
                "status": status,
                "detail": "What happened here, and what to do about it.",
                "instance": "/v1/lives/…",
            }
        }
    for status, found in responses.items():
        found["description"] = found["description"] or HTTPStatus(int(status)).phrase
    return responses
