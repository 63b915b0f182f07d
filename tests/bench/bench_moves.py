"""How soon text is released, and what joins and deaths of workers cost, with stages that take no
time: one Dispatch process, worker processes, Apache Kafka, one LMDB store.

- `push_to_release`: 1,000 open lives on one worker, a turn pushed to one of them every 10 ms;
  from the answer 202 to the moment after the commit of the release (in the worker).
- `rebalance_gap`: 200 of these lives get a sentence every 100 ms; the longest time between two
  releases of one live while a second worker joins the group, beside the same without a join.
- `recovery_beyond_lease`: a worker is killed; from then to each of its lives' first release by the
  next owner, less the lease. With these stages the first sample is sent right behind it.
"""

import asyncio
import contextlib
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Producer

from dispatch.limits import Limits
from schemas.text_record import RecordKind, TextRecord, encode_text_record
from schemas.topics import TEXT_TOPIC
from tests.bench.dispatch_calls import Connection
from tests.bench.figures import Row, load, percentile, row
from tests.bench.talking import ROOT, Peer
from tests.support.apache_kafka import ApacheKafka, KafkaUnavailable, free_port

LIVES = int(os.environ.get("BENCH_LIVES", "1000"))
PUSHES = int(os.environ.get("BENCH_PUSHES", "1500"))
PUSH_EVERY_S = 0.01
CLIENTS = 8
SPOKEN_LIVES = min(200, LIVES)
SPEAK_EVERY_S = 0.1
GAP_S = 6.0
TRIALS = int(os.environ.get("BENCH_TRIALS", "5"))
VICTIMS = 20
LEASE_S = Limits().lease_ms / 1000
BEYOND_S_MAX = 2.0
START_S_MAX = 60.0
TURN = "A sentence of the length that people write."
SENTENCE = f"{TURN} "
Released = list[tuple[float, str, int]]


@dataclass(frozen=True, slots=True)
class Town:
    """What is measured."""

    kafka: str
    store: str
    base_url: str

    def start(self, node: str, capacity: int) -> Peer:
        """One more worker, registered."""
        return Peer(
            *("tests.bench.worker_peer", "--kafka", self.kafka, "--store", self.store),
            *("--node", node, "--capacity", str(capacity)),
        )

    async def create(self, count: int) -> list[str]:
        """Open lives, wherever there is room. A worker that is not seen yet is waited for."""
        made: list[str] = []
        numbers = iter(range(count))

        async def client() -> None:
            http = await Connection.open(self.base_url)
            for _ in numbers:
                answer = await _insist(lambda: http.ask(201, "POST", "/v1/lives", {}))
                made.append(json.loads(answer)["live_id"])
            await http.close()

        await asyncio.gather(*(client() for _ in range(CLIENTS)))
        return made


async def _insist(ask: Callable[[], Awaitable[bytes]]) -> bytes:
    until_s = time.monotonic() + START_S_MAX
    while True:
        try:
            return await ask()
        except RuntimeError:
            if time.monotonic() > until_s:
                raise
            await asyncio.sleep(0.2)


def rows() -> list[Row]:
    """The figures of this module, for `make bench`."""
    try:
        kafka = ApacheKafka()
    except KafkaUnavailable as error:
        raise RuntimeError(f"this is measured on Apache Kafka only: {error}") from error
    with tempfile.TemporaryDirectory(prefix="dhsched-bench-") as folder, kafka:
        store, port = f"lmdb://{folder}/store?map_gib=2", free_port()
        with _dispatch(kafka.bootstrap, store, port, Path(folder)):
            town = Town(kafka.bootstrap, store, f"http://127.0.0.1:{port}")
            return asyncio.run(_measure(town))


@contextlib.contextmanager
def _dispatch(kafka: str, store: str, port: int, folder: Path) -> Iterator[None]:
    options = ("--kafka", kafka, "--store", store, "--host", "127.0.0.1", "--port", str(port))
    with (folder / "dispatch.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "dhsched", "dispatch", *options],
            cwd=ROOT,
            stdout=log,
            stderr=log,
        )
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)


async def _measure(town: Town) -> list[Row]:
    await _listening(town.base_url)
    first = town.start("first", LIVES)
    try:
        lives = await town.create(LIVES)
        first.ask(until=dict.fromkeys(lives, 0))
        found = await _push_to_release(town, first, lives)
        gap, second = await _rebalance_gap(town, first, lives[:SPOKEN_LIVES])
        # The first one is full: what is created now is the second's.
        return [*found, gap, *await _recoveries(town, second)]
    finally:
        first.close()


async def _listening(base_url: str) -> None:
    until_s = time.monotonic() + START_S_MAX
    while True:
        try:
            await (await Connection.open(base_url)).close()
            return
        except OSError:
            if time.monotonic() > until_s:
                raise
            await asyncio.sleep(0.1)


async def _push_to_release(town: Town, worker: Peer, lives: list[str]) -> list[Row]:
    accepted: dict[tuple[str, int], tuple[float, float]] = {}
    begin_s = time.monotonic() + 0.5
    turns = iter(range(PUSHES))

    async def client() -> None:
        http = await Connection.open(town.base_url)
        for turn in turns:
            await asyncio.sleep(max(0.0, begin_s + turn * PUSH_EVERY_S - time.monotonic()))
            live_id = lives[turn % len(lives)]
            asked_s = time.monotonic()
            body = {"text": TURN, "end_turn": True}
            answer = json.loads(await http.ask(202, "POST", f"/v1/lives/{live_id}/text", body))
            accepted[live_id, answer["offset"]] = (asked_s, time.monotonic())
        await http.close()

    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    released = await _all_released(worker, accepted.keys())
    after_s = [released[key] - answered_s for key, (_, answered_s) in accepted.items()]
    whole_s = [released[key] - asked_s for key, (asked_s, _) in accepted.items()]
    against = "from before the request, the same texts"
    return [
        row(
            f"push_to_release_p{share}_ms",
            percentile(after_s, share / 100) * 1_000,
            "ms",
            against,
            percentile(whole_s, share / 100) * 1_000,
            lives=len(lives),
            samples=len(after_s),
            load=load(),
        )
        for share in (50, 99)
    ]


async def _all_released(
    worker: Peer, wanted: Iterable[tuple[str, int]]
) -> dict[tuple[str, int], float]:
    """When each of these was first released. Raises TimeoutError."""
    missing, found = set(wanted), dict[tuple[str, int], float]()
    until_s = time.monotonic() + START_S_MAX
    while missing:
        for at_s, live_id, offset in _released(worker):
            found.setdefault((live_id, offset), at_s)
            missing.discard((live_id, offset))
        if missing and time.monotonic() > until_s:
            raise TimeoutError(f"{len(missing)} texts were not released")
        await asyncio.sleep(0.1)
    return found


def _released(worker: Peer) -> Released:
    """Since the last time."""
    return [(one[0], one[1], one[2]) for one in worker.ask(released=True)["released"]]


class Speaker:
    """Produces a sentence to each of some lives again and again, in a task of its own."""

    def __init__(self, kafka: str, lives: list[str], every_s: float) -> None:
        settings = {"partitioner": "murmur2_random", "linger.ms": 1, "acks": "all"}
        self._producer = Producer({"bootstrap.servers": kafka, **settings})
        self._lives = lives
        self._every_s = every_s

    async def _run(self) -> None:
        value = encode_text_record(TextRecord(RecordKind.TEXT, SENTENCE))
        step_s = self._every_s / len(self._lives)
        due_s = time.monotonic()
        for live_id in itertools.cycle(self._lives):
            self._producer.produce(TEXT_TOPIC, value, live_id)
            due_s += step_s
            if due_s > time.monotonic():
                self._producer.poll(0)
                await asyncio.sleep(0.005)

    @contextlib.asynccontextmanager
    async def speaking(self) -> AsyncIterator[None]:
        """As long as it is open."""
        running = asyncio.ensure_future(self._run())
        try:
            yield
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await asyncio.to_thread(self._producer.flush, 30)


def longest_gap_s(released: Released, from_s: float, to_s: float) -> float:
    """The longest time that any live waited for its next release between the two moments, or for
    its first, or since its last. Raises RuntimeError when nothing was released."""
    last: dict[str, float] = {}
    longest = 0.0
    for at_s, live_id, _ in sorted(released):
        if from_s <= at_s <= to_s:
            longest = max(longest, at_s - last.get(live_id, from_s))
            last[live_id] = at_s
    if not last:
        raise RuntimeError("nothing was released")
    return max(longest, *(to_s - at_s for at_s in last.values()))


async def _rebalance_gap(town: Town, first: Peer, lives: list[str]) -> tuple[Row, Peer]:
    """And the worker that joined."""
    async with Speaker(town.kafka, lives, SPEAK_EVERY_S).speaking():
        await asyncio.sleep(2.0)  # Until its pace is steady.
        from_s = time.monotonic()
        await asyncio.sleep(GAP_S)
        calm = (from_s, time.monotonic())
        # Off the loop: the speaker goes on while the second one starts.
        second = await asyncio.to_thread(town.start, "second", VICTIMS)
        joined_s = time.monotonic()
        until_s = joined_s + START_S_MAX
        while not (partitions := second.ask(partitions=True)["partitions"]):
            if time.monotonic() > until_s:
                raise TimeoutError("the second worker got no partition")
            await asyncio.sleep(0.05)
        await asyncio.sleep(GAP_S / 2)
        joining = (calm[1], time.monotonic())
    released = _released(first)
    gap = row(
        "rebalance_gap_ms",
        longest_gap_s(released, *joining) * 1_000,
        "ms",
        f"the same without a join, a sentence every {SPEAK_EVERY_S * 1_000:.0f} ms",
        longest_gap_s(released, *calm) * 1_000,
        lives=len(lives),
        partitions_taken=len(partitions),
        releases=len(released),
        load=load(),
    )
    return gap, second


async def _recoveries(town: Town, victim: Peer) -> list[Row]:
    beyond_s: list[float] = []
    rng = random.Random(2)
    try:
        lives = await town.create(VICTIMS)
        victim.ask(until=dict.fromkeys(lives, 0))
        async with Speaker(town.kafka, lives, SPEAK_EVERY_S).speaking():
            for trial in range(1, TRIALS + 1):
                # Another name each time: a worker that comes back under its name is known at once.
                heir = await asyncio.to_thread(town.start, f"node-{trial}", VICTIMS)
                await asyncio.sleep(2.0 + rng.random())
                killed_s = victim.kill()
                victim.close()
                victim = heir
                first_s = await _first_releases(heir, lives, killed_s)
                beyond_s += [at_s - killed_s - LEASE_S for at_s in first_s]
    finally:
        victim.close()
    return [
        row(
            name,
            percentile(beyond_s, share),
            "s",
            f"required; P{100 * share:.0f} of SIGKILL to each live's first release, and so first "
            "sample, by its next owner, less the lease",
            BEYOND_S_MAX,
            lease_s=LEASE_S,
            trials=TRIALS,
            lives=VICTIMS,
            longest_s=round(max(beyond_s), 3),
            load=load(),
        )
        for name, share in (
            ("recovery_beyond_lease_s", 0.99),
            ("recovery_beyond_lease_p50_s", 0.5),
        )
    ]


async def _first_releases(worker: Peer, lives: list[str], killed_s: float) -> list[float]:
    """Of each live. Raises TimeoutError."""
    found: dict[str, float] = {}
    until_s = killed_s + LEASE_S + START_S_MAX
    while len(found) < len(lives):
        for at_s, live_id, _ in _released(worker):
            found.setdefault(live_id, at_s)
        if time.monotonic() > until_s:
            missing = sorted(set(lives) - found.keys())
            raise TimeoutError(f"not released again: {', '.join(missing)}")
        await asyncio.sleep(0.05)
    return list(found.values())
