"""One production worker with instant stages, as a process that a bench talks to.

    python -m tests.bench.worker_peer --kafka HOST:PORT --store URL --node NAME --capacity N

`--ahead N` lets so many segments of a live be released and not spoken, instead of the usual ones.
Reads one JSON object a line and answers with one each. `{"until": {live: offset}}` answers when
the cursors of these lives have come so far and every event is written, `{"released": true}` with
every release since the last such question as [monotonic seconds, live, offset of the segment's
first record], `{"counters": true}` with the worker's counters, `{"partitions": true}` with those in
its custody. Ends when its input does.
"""

import argparse
import asyncio
import dataclasses
import os
import random
import time
from typing import Any

from controller.clock import SystemClock
from controller.limits import Limits
from controller.session_core import SessionLimits
from controller.shell import Worker, WorkerOptions, WorkerWorld
from gpu_stages.runtime_contract import BoundLive, Segment
from hosting.collector import calm_collector
from hosting.logs import configure_logs
from ownership.open import open_database
from schemas.text_record import TEXT_BYTES_MAX
from stream.aiokafka_transport import AiokafkaTransport
from stream.settings import KafkaSettings
from tests.bench.instant_stages import DirectMedia, InstantStages
from tests.bench.talking import Inbox, tell

LOOK_AGAIN_S = 0.005


class Peer:
    """The worker and what it released."""

    def __init__(self, worker: Worker, released: list[tuple[float, str, int]]) -> None:
        self._worker = worker
        self._released = released

    async def answer(self, order: dict[str, Any]) -> dict[str, Any]:
        if "until" in order:
            wanted: dict[str, int] = order["until"]
            while not self._reached(wanted):  # noqa: ASYNC110
                await asyncio.sleep(LOOK_AGAIN_S)
            return {"at_s": time.monotonic(), "cpu_s": time.process_time()}
        if "released" in order:
            released = list(self._released)
            self._released.clear()
            return {"released": released}
        if "partitions" in order:
            incarnation = self._worker.incarnation
            held = () if incarnation is None else incarnation.consumer.custody.partitions
            return {"partitions": held}
        counters = self._worker.counters
        values = {one.name: getattr(counters, one.name) for one in dataclasses.fields(counters)}
        return {"counters": {name: one for name, one in values.items() if isinstance(one, int)}}

    def _reached(self, wanted: dict[str, int]) -> bool:
        """Takes out of `wanted` what came so far: looking again must not cost what is measured."""
        incarnation = self._worker.incarnation
        if incarnation is None:
            return False
        while wanted:
            live_id, offset = next(iter(wanted.items()))
            session = incarnation.lives.sessions.get(live_id)
            queue = None if session is None else session.machine.queue
            if queue is None or queue.cursor < offset:
                return False
            del wanted[live_id]
        return not len(incarnation.announcer)


async def serve(asked: argparse.Namespace) -> None:
    """Until the input ends."""
    released: list[tuple[float, str, int]] = []
    bits = TEXT_BYTES_MAX.bit_length()

    def fed(live: BoundLive, segment: Segment) -> None:
        released.append((time.monotonic(), live.live_id, segment.segment_id - 1 >> bits))

    settings = KafkaSettings(
        asked.kafka,
        client_id="dhsched.worker",
        session_timeout_ms=asked.session_ms,
        max_poll_interval_ms=asked.session_ms + 60_000,
    )
    transport = AiokafkaTransport(settings)
    rng = random.Random(os.urandom(8))
    async with await open_database(asked.store, rng) as db:
        stages = InstantStages(asked.capacity, fed)
        world = WorkerWorld(db, transport, stages, DirectMedia(), SystemClock(), rng)
        options = WorkerOptions(asked.node, asked.capacity, "http://127.0.0.1:1")
        limits = Limits(session=SessionLimits(segments_ahead_max=asked.ahead))
        worker = Worker(options, world, limits)
        running = asyncio.ensure_future(worker.run())
        while not worker.ready:
            await asyncio.sleep(LOOK_AGAIN_S)
            if running.done():
                running.result()
        assert worker.incarnation is not None
        tell({"worker_id": worker.incarnation.worker_id})
        peer, inbox = Peer(worker, released), await Inbox.open()
        while (order := await inbox.next()) is not None:
            tell(await peer.answer(order))
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    await transport.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kafka", required=True)
    parser.add_argument("--store", required=True)
    parser.add_argument("--node", required=True)
    parser.add_argument("--capacity", type=int, required=True)
    parser.add_argument("--session-ms", type=int, default=10_000)
    parser.add_argument("--ahead", type=int, default=SessionLimits().segments_ahead_max)
    asked = parser.parse_args()
    configure_logs("console", "WARNING")
    calm_collector()
    asyncio.run(serve(asked))


if __name__ == "__main__":
    main()
