"""Those who use the system: a Kafka client that is not ours, and callers of Dispatch.

A live's texts come without an end, each unlike every other of its live, at a pace at which they can
be spoken with some time to spare, so that what an outage held up is caught up with.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Container
from random import Random
from typing import Any

import httpx
from confluent_kafka import Producer

from schemas.text_record import RecordKind
from schemas.topics import TEXT_TOPIC
from tests.chaos.cluster import Cluster
from tests.sim.recorder import decoded_text
from tests.sim.texts import Author, mark_value

DAY_MS = 86_400_000
OPTIONS = {"idle_timeout_ms": 7 * DAY_MS, "length_ms_max": 7 * DAY_MS}
"""Clocks are stepped by hours here, and nobody is idle."""

RECORDS_MAX = 4
INTERRUPT = 0.02
TROUBLES = frozenset({429, 500, 503, 504})
_CALL_S = 4.0
_RETRY_S = 0.3


class Front:
    """Calls Dispatch as a client behind a load balancer does: another replica for every retry."""

    def __init__(self, cluster: Cluster, rng: Random) -> None:
        self._cluster = cluster
        self._rng = rng
        limits = httpx.Limits(max_keepalive_connections=0)
        self._http = httpx.AsyncClient(timeout=_CALL_S, limits=limits, trust_env=False)
        self.answers: Counter[str] = Counter()

    async def call(
        self,
        method: str,
        path: str,
        *,
        tries_s: float = 60.0,
        again: Container[int] = TROUBLES,
        **more: Any,
    ) -> tuple[int, Any]:
        """The first answer with a status that is not to be tried `again`; 0 at the deadline."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + tries_s
        while True:
            urls = self._cluster.urls
            if urls:
                with contextlib.suppress(httpx.HTTPError):
                    answer = await self._http.request(method, self._rng.choice(urls) + path, **more)
                    self.answers[f"{method} {answer.status_code}"] += 1
                    if answer.status_code not in again:
                        return answer.status_code, answer.json() if answer.content else None
            if loop.time() > until_s:
                return 0, None
            await asyncio.sleep(_RETRY_S)

    async def create(self, live_id: str, key: str) -> bool:
        """Open a live; repeated with its key until some replica answered."""
        status, _ = await self.call(
            "POST",
            "/v1/lives",
            json={"live_id": live_id, "options": OPTIONS},
            headers={"Idempotency-Key": key},
        )
        return status in (201, 409)

    async def close(self) -> None:
        await self._http.aclose()


class Log:
    """A producer of librdkafka, with Kafka's own partitioner."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "partitioner": "murmur2_random",
                "enable.idempotence": True,
                "message.timeout.ms": 600_000,
                "reconnect.backoff.max.ms": 1_000,
                "linger.ms": 5,
                "log_level": 0,
            }
        )
        self.failed = 0

    def append(self, live_id: str, value: bytes | None) -> None:
        self._producer.produce(
            TEXT_TOPIC, key=live_id.encode(), value=value, on_delivery=self._told
        )

    def _told(self, error: Any, _: Any) -> None:
        if error is not None:
            self.failed += 1

    async def run(self) -> None:
        """Serves the producer until cancelled."""
        while True:
            self._producer.poll(0)
            await asyncio.sleep(0.05)

    async def flush(self, timeout_s: float) -> int:
        """How many records are still not in the log."""
        return await asyncio.to_thread(self._producer.flush, timeout_s)


class Speaker:
    """Whoever writes one live's text. `pushed`: through Dispatch; else straight to the topic."""

    def __init__(self, live_id: str, rng: Random, *, pushed: bool, churned: bool) -> None:
        self.live_id = live_id
        self.pushed = pushed
        self.churned = churned
        """Closed and made anew from time to time."""
        self._rng = rng
        self._author = Author(live_id, numbers=not churned)
        self._lives = 0

    async def open(self, front: Front) -> None:
        self._lives += 1
        if not await front.create(self.live_id, f"{self.live_id}/{self._lives}"):
            raise AssertionError(f"{self.live_id} could not be created")

    async def run(self, log: Log, front: Front, pace_ms: float) -> None:
        """Text until cancelled, a character every `pace_ms` in the mean."""
        rng = self._rng
        await asyncio.sleep(rng.random() * 3)
        while True:
            count = rng.randrange(1, RECORDS_MAX + 1)
            chars = 0
            if self.pushed:
                chars += await self._push(front)
            else:
                for value in self._author.burst(count, rng):
                    log.append(self.live_id, value)
                    record = decoded_text(value)
                    chars += 0 if record is None else len(record.text)
                if rng.random() < INTERRUPT:
                    log.append(self.live_id, mark_value(RecordKind.INTERRUPT))
            if self.churned and rng.random() < 0.03:
                await self._close(log, front)
            await asyncio.sleep(max(10, chars) * pace_ms / 1000 * rng.uniform(0.6, 1.4))

    async def _push(self, front: Front) -> int:
        """Numbered, so it may be repeated until some replica says that it is in the log. Returns
        how many characters it has."""
        author = self._author
        author.seq += 1
        text = author.next_text(" said. ")
        body = {"text": text, "seq": author.seq}
        await front.call("POST", f"/v1/lives/{self.live_id}/text", json=body, tries_s=600)
        return len(text)

    async def _close(self, log: Log, front: Front) -> None:
        if self._rng.random() < 0.5:
            log.append(self.live_id, mark_value(RecordKind.CLOSE))
        else:
            await front.call("DELETE", f"/v1/lives/{self.live_id}")
        await asyncio.sleep(self._rng.uniform(0.2, 4.0))
        await self.open(front)
