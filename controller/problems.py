"""Problem details (RFC 9457) of a worker's HTTP interface."""

import json
from dataclasses import dataclass, field
from enum import StrEnum

from fastapi import Request, Response

PROBLEM_MEDIA_TYPE = "application/problem+json"
TYPE_PREFIX = "urn:dhsched:problem:"


class ProblemKind(StrEnum):
    """The last part of a problem's type URI."""

    NOT_OWNER = "not-owner"
    NOT_READY = "not-ready"
    MALFORMED_SDP = "malformed-sdp"
    NOT_ACCEPTABLE = "not-acceptable"
    UNSUPPORTED_MEDIA = "unsupported-media-type"
    TOO_LARGE = "too-large"
    TOO_MANY_VIEWERS = "too-many-viewers"
    UNKNOWN_VIEWER = "unknown-viewer"


_STATUS = {
    ProblemKind.NOT_OWNER: (409, "The live is not owned here"),
    ProblemKind.NOT_READY: (503, "The live has no media yet"),
    ProblemKind.MALFORMED_SDP: (400, "The offer is not SDP"),
    ProblemKind.NOT_ACCEPTABLE: (406, "The offer and this worker have no codec in common"),
    ProblemKind.UNSUPPORTED_MEDIA: (415, "The body has another media type than is read here"),
    ProblemKind.TOO_LARGE: (413, "The request is too large"),
    ProblemKind.TOO_MANY_VIEWERS: (503, "This worker serves as many viewers as it may"),
    ProblemKind.UNKNOWN_VIEWER: (404, "No such viewer"),
}


@dataclass(eq=False)
class Problem(Exception):
    """A refusal on its way to the client."""

    kind: ProblemKind
    detail: str
    headers: dict[str, str] = field(default_factory=dict[str, str])


def respond(request: Request, problem: Exception) -> Response:
    """The handler of `Problem`."""
    if not isinstance(problem, Problem):
        raise problem
    status, title = _STATUS[problem.kind]
    body = {
        "type": TYPE_PREFIX + problem.kind,
        "title": title,
        "status": status,
        "detail": problem.detail,
        "instance": request.url.path,
    }
    return Response(json.dumps(body), status, problem.headers, media_type=PROBLEM_MEDIA_TYPE)
