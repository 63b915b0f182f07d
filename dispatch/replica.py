"""What the routes share: the service, its settings, and the client for the workers."""

import asyncio
from dataclasses import dataclass, field
from typing import Annotated, cast
from urllib.parse import quote, unquote_to_bytes

from fastapi import Depends, Path
from starlette.requests import HTTPConnection

from dispatch.metrics import Metrics
from dispatch.problems import Problem, ProblemKind
from dispatch.readiness import ReadinessProbe
from dispatch.service import DispatchService
from dispatch.settings import DispatchSettings
from dispatch.whep_proxy import WhepProxy
from schemas.live_id import BadLiveId, check_live_id


@dataclass(slots=True)
class Replica:
    """One replica's objects. `stopping` is set when long answers have to end."""

    service: DispatchService
    settings: DispatchSettings
    metrics: Metrics
    whep: WhepProxy
    probe: ReadinessProbe
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    sockets: int = 0


def replica_of(connection: HTTPConnection) -> Replica:
    """The replica that serves this connection."""
    return cast("Replica", connection.app.state.replica)


def live_id_of(
    live_id: Annotated[
        str,
        Path(
            description="The live's id: 1 to 128 bytes of UTF-8, percent-encoded.",
            examples=["01jdvq8m3w2k5r7s9t1x3z5a7c"],
        ),
    ],
) -> str:
    """The id from a path whose segments are still percent-encoded. Raises Problem."""
    return decode_live_id(live_id)


def decode_live_id(segment: str) -> str:
    """Raises Problem."""
    try:
        return check_live_id(unquote_to_bytes(segment).decode("utf-8"))
    except UnicodeDecodeError:
        detail = "the live id in the path is not valid UTF-8 after percent-decoding"
        raise Problem(ProblemKind.BAD_LIVE_ID, detail) from None
    except BadLiveId as error:
        raise Problem(ProblemKind.BAD_LIVE_ID, str(error)) from None


def live_path(live_id: str, *more: str) -> str:
    """The path of a live, or of something below it."""
    return "/".join(("/v1/lives", *(quote(part, safe="") for part in (live_id, *more))))


ReplicaDep = Annotated[Replica, Depends(replica_of)]
LiveIdDep = Annotated[str, Depends(live_id_of)]
