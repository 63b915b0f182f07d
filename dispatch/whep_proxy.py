"""WHEP by way of Dispatch: the offer is handed to the live's owner, media then flows directly.

The owner may change at any moment, so an owner that does not answer, or says that it is not the
owner, is asked for again once: the generation is read anew and the offer goes to whom it names. The
resource that a viewer gets names the worker that holds its connection, so that any replica can end
it, also when the live has moved on.
"""

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import quote

import httpx
import structlog

from dispatch.clock import Clock
from dispatch.problems import Problem, ProblemKind
from ownership.kv import Database
from ownership.lives import get_live
from ownership.model import Generation, LiveView
from ownership.workers import list_workers
from schemas.store_values import WorkerState

SDP_BYTES_MAX = 65_536
ANSWER_BYTES_MAX = 262_144
CLAIM_POLL_MS = 25
RESOURCE = re.compile(r"[A-Za-z0-9_-]{1,128}")
SEPARATOR = "~"
EPOCH_HEADER = "DHSched-Epoch"
TOO_MANY_VIEWERS = "too-many-viewers"

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Owner:
    """Who speaks a live now, and has claimed it."""

    generation: Generation
    url: str


@dataclass(frozen=True, slots=True)
class ViewerAnswer:
    """The answer of the owner. `resource` names the worker and its connection."""

    sdp: bytes
    resource: str


class OwnerSilent(Exception):
    """The owner did not answer, or does not own the live any more: read again who does."""


class OwnerNotReady(Exception):
    """The owner has claimed the live and still opens its egress: a matter of moments."""


class WhepProxy:
    """Hands viewers to owners. Every failure is a Problem."""

    def __init__(
        self,
        db: Database,
        clock: Clock,
        client: httpx.AsyncClient,
        *,
        claim_wait_ms: int,
        retry_after_s: int,
        on_retry: Callable[[str], None] = lambda kind: None,
    ) -> None:
        self._db = db
        self._clock = clock
        self._client = client
        self._claim_wait_ms = claim_wait_ms
        self._retry_after_s = retry_after_s
        self._on_retry = on_retry

    async def owner(self, live_id: str) -> Owner:
        """The owner once it has claimed the live; waits a little for that. Raises Problem."""
        until_ms = self._clock.now_ms() + self._claim_wait_ms
        while True:
            view = await get_live(self._db, live_id)
            if view is None:
                raise unknown_live()
            if not view.open:
                raise live_closed(view.live.close_reason)
            owner = _claimed(view)
            if owner is not None:
                return owner
            if self._clock.now_ms() >= until_ms:
                raise self._not_ready()
            await asyncio.sleep(CLAIM_POLL_MS / 1_000)

    async def offer(self, live_id: str, sdp: bytes) -> ViewerAnswer:
        """Raises Problem; StoreError when the store is away."""
        silences_left = 1
        until_ms = self._clock.now_ms() + self._claim_wait_ms
        while True:
            owner = await self.owner(live_id)
            try:
                return await self._offer_to(owner, live_id, sdp)
            except OwnerSilent as error:
                _log.info("owner_silent", live_id=live_id, reason=str(error), left=silences_left)
                if not silences_left:
                    raise self._not_ready() from error
                silences_left -= 1
                self._on_retry("owner_silent")
            except OwnerNotReady as error:
                if self._clock.now_ms() >= until_ms:
                    raise self._not_ready() from error
                self._on_retry("owner_not_ready")
                await asyncio.sleep(CLAIM_POLL_MS / 1_000)

    async def _offer_to(self, owner: Owner, live_id: str, sdp: bytes) -> ViewerAnswer:
        try:
            answer = await self._client.post(
                f"{owner.url}/whep/{quote(live_id, safe='')}",
                content=sdp,
                headers={
                    "Content-Type": "application/sdp",
                    EPOCH_HEADER: str(owner.generation.epoch),
                },
            )
        except httpx.TransportError as error:
            raise OwnerSilent(f"{type(error).__name__}: {error}") from error
        if answer.status_code == 201:
            resource = answer.headers.get("location", "").rsplit("/", 1)[-1]
            if not RESOURCE.fullmatch(resource) or len(answer.content) > ANSWER_BYTES_MAX:
                raise OwnerSilent("the owner's answer has no usable Location")
            return ViewerAnswer(
                answer.content, f"{owner.generation.worker_id}{SEPARATOR}{resource}"
            )
        if answer.status_code in (400, 406, 415, 422):
            raise Problem(
                ProblemKind.BAD_SDP,
                "The live's worker cannot accept this offer: it must ask to receive H.264 video "
                "(profile 42e01f) and Opus audio.",
                {"worker_status": answer.status_code},
            )
        if answer.status_code == 503:
            if TOO_MANY_VIEWERS not in answer.text:
                raise OwnerNotReady
            raise Problem(
                ProblemKind.TOO_MANY_STREAMS,
                "The live's worker serves as many viewers as it may. Try again later.",
                retry_after_s=self._retry_after_s,
            )
        raise OwnerSilent(f"the owner answered {answer.status_code}")

    async def delete(self, live_id: str, resource: str) -> None:
        """Ends a viewer's connection; one that is gone already is fine. Raises Problem."""
        worker_id, _, own = resource.rpartition(SEPARATOR)
        if not worker_id or not RESOURCE.fullmatch(own):
            raise _unknown_viewer()
        url = await self._worker_url(worker_id)
        if url is None:
            return  # the worker is gone, and its connections with it
        try:
            answer = await self._client.delete(f"{url}/whep/{quote(live_id, safe='')}/{own}")
        except httpx.TransportError as error:
            raise self._not_ready() from error
        if answer.status_code == 404:
            raise _unknown_viewer()
        if answer.status_code >= 400 and answer.status_code not in (409, 410):
            raise self._not_ready()

    async def _worker_url(self, worker_id: str) -> str | None:
        for view in await list_workers(self._db):
            if view.value.worker_id == worker_id and view.value.state is not WorkerState.DEAD:
                return view.value.url
        return None

    def _not_ready(self) -> Problem:
        return Problem(
            ProblemKind.OWNER_NOT_READY,
            "The live has just been given to a worker, or waits for one. Repeat the request.",
            retry_after_s=self._retry_after_s,
        )


def _claimed(view: LiveView) -> Owner | None:
    generation, claim, worker = view.generation, view.claim, view.owner
    if generation is None or claim is None or worker is None:
        return None
    if worker.state is WorkerState.DEAD:
        return None
    if (claim.worker_id, claim.epoch) != (generation.worker_id, generation.epoch):
        return None
    return Owner(generation, worker.url.rstrip("/"))


def _unknown_viewer() -> Problem:
    return Problem(
        ProblemKind.UNKNOWN_VIEWER,
        "This address is none that an offer was answered with, or the connection has ended.",
    )


def unknown_live() -> Problem:
    """For every route below a live."""
    return Problem(
        ProblemKind.UNKNOWN_LIVE, "No live of this id was ever created. POST /v1/lives creates one."
    )


def live_closed(reason: str) -> Problem:
    """For every route that needs an open live."""
    return Problem(
        ProblemKind.LIVE_CLOSED,
        "The live has ended. Create it again, under this id or another, to go on.",
        {"close_reason": reason},
    )
