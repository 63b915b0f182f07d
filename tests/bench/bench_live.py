"""The running system as its users meet it: Dispatch, one worker with its stages, real viewers.

On Apache Kafka where the machine has it, else on the embedded broker (`broker` in every row says
which). Figures are against what is asked of the system. `load` is the machine's load over the
minute before: this machine also runs the viewers, and perhaps other people's work. The measuring
process goes before others where it may, and leaves out what arrived while it stood still itself.
"""

import asyncio
import contextlib
import gc
import itertools
import os
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from dhsched.one_machine import OneMachine, OneMachineSettings
from schemas.media import FRAMES_PER_S
from tests.bench import dispatch_calls
from tests.bench.figures import Row, load, percentile, row
from tests.bench.live_texts import LONG_SENTENCE, SENTENCES, SPEECH
from tests.bench.viewer import Lateness, Pauses, Viewer, watching
from tests.support.kafka_source import kafka_source
from tests.support.sse import Event, EventLog
from tests.support.system import free_port

CAPACITY = 16
INTERRUPTS = 24
FIRST_SOUND_MS = 500
INTERRUPT_MS = 200
LATENESS_MS = 40
STUTTER_S = 0.08
EAGER = -10
SPEAKING_S = 30.0
TWO_LIVES_S = 15.0
MANY_LIVES_S = 8.0
LIVES_REQUIRED = 6
MANY_LIVES = (2, 4, 6, 8, 12, 16)
WORKER_P95 = 'dhsched_worker_lateness_seconds{quantile="0.95"}'
SEEN = "required; at the viewer, by the media clock"
QUIET_S = 0.4
"""Nothing heard for so long: the live is idle, and no pause between two words is as long."""


@dataclass(frozen=True, slots=True)
class Bench:
    """The system that is measured."""

    machine: OneMachine
    http: httpx.AsyncClient

    async def call(self, wanted: int, method: str, path: str, body: object = None) -> Any:
        """Raises RuntimeError for another answer than the wanted one."""
        answer = await self.http.request(method, path, json=body)
        if answer.status_code != wanted:
            raise RuntimeError(f"{method} {path} answered {answer.status_code}: {answer.text}")
        return answer.json()

    @contextlib.asynccontextmanager
    async def live(self) -> AsyncIterator[str]:
        """A live of its own, closed after."""
        live_id = str((await self.call(201, "POST", "/v1/lives", {}))["live_id"])
        try:
            yield live_id
        finally:
            await self.call(200, "DELETE", f"/v1/lives/{live_id}")

    async def say(self, live_id: str, text: str, *, end_turn: bool = True) -> Any:
        body = {"text": text, "end_turn": end_turn}
        return await self.call(202, "POST", f"/v1/lives/{live_id}/text", body)

    async def worker_p95_ms(self) -> float:
        """How late the worker sent, of the worst live that is bound. Raises RuntimeError."""
        workers = (await self.call(200, "GET", "/v1/workers"))["workers"]
        url = next(worker["url"] for worker in workers if worker["state"] == "ready")
        text = (await self.http.get(f"{url}/metrics")).text
        found = re.search(rf"^{re.escape(WORKER_P95)} (\S+)$", text, re.MULTILINE)
        if found is None:
            raise RuntimeError(f"the worker shows no {WORKER_P95}")
        return 1_000 * float(found.group(1))


def rows() -> list[Row]:
    """Everything, on one system, in about four minutes."""
    with kafka_source() as source:
        return [{**one, "broker": source.name} for one in asyncio.run(_on(source.bootstrap))]


async def _on(kafka: str) -> list[Row]:
    settings = OneMachineSettings(kafka=kafka, port=free_port(), capacity=CAPACITY)
    measurements: tuple[Callable[[Bench], Awaitable[list[Row]]], ...] = (
        first_sound,
        interrupts,
        one_live,
        two_lives,
        many_lives,
        dispatch,
    )
    found: list[Row] = []
    async with (
        OneMachine(settings) as machine,
        httpx.AsyncClient(base_url=machine.dispatch_url, timeout=20) as http,
    ):
        with contextlib.suppress(PermissionError):
            os.nice(EAGER)  # Only now: the system's processes would inherit it.
        gc.collect()
        gc.freeze()  # So that a collection does not stop the viewers.
        bench = Bench(machine, http)
        for measure in measurements:
            before = load()
            found += [{**one, "load": before} for one in await measure(bench)]
    return found


def _times(
    name: str, values_s: list[float], against: str, allowed_ms: float, **more: int
) -> list[Row]:
    """P95 under the row's own name, and P50 and P99 beside it."""
    return [
        row(
            f"{name}_p{share}_ms",
            percentile(values_s, share / 100) * 1_000,
            "ms",
            against,
            allowed_ms,
            samples=len(values_s),
            **more,
        )
        for share in (50, 95, 99)
    ]


async def first_sound(bench: Bench) -> list[Row]:
    """An idle live gets one sentence; when is its first sample sent, and when does it arrive?"""
    sent: list[float] = []
    heard: list[float] = []
    async with _watched(bench) as (live_id, events, viewer):
        for sentence in SENTENCES:
            await viewer.silence(QUIET_S)
            pushed = await bench.say(live_id, sentence)
            accepted_s = time.time()
            started = await events.wait_for(_about("speak_started", pushed["offset"]))
            sent.append(started["at_ms"] / 1_000 - accepted_s)
            heard.append(await viewer.speech(accepted_s) - accepted_s)
            await events.wait_for(_about("speak_ended", pushed["offset"]))
    required = "required; PushText accepted (202)"
    return [
        *_times("first_sound", sent, f"{required} to first sample sent", FIRST_SOUND_MS),
        *_times("heard_first_sound", heard, f"{required} to first at viewer", FIRST_SOUND_MS),
    ]


async def interrupts(bench: Bench) -> list[Row]:
    """In the middle of a sentence, at another place of it each time.

    Measured from before the request, which is earlier than the record is consumed.
    """
    silent: list[float] = []
    carried_out: list[float] = []
    async with _watched(bench) as (live_id, events, viewer):
        tries = 0
        while len(silent) < INTERRUPTS and tries < 2 * INTERRUPTS:
            tries += 1
            await viewer.silence(QUIET_S)
            before_s = time.time()
            await bench.say(live_id, LONG_SENTENCE)
            await viewer.speech(before_s)
            await asyncio.sleep(0.5 + 0.09 * (tries % 10))
            asked_s = time.time()
            answer = await bench.call(202, "POST", f"/v1/lives/{live_id}/interrupt")
            done = await events.wait_for(_about("interrupted", answer["offset"]))
            await viewer.silence(QUIET_S)
            if viewer.last_heard_s < asked_s:
                continue  # It fell into a pause between two words, which would flatter us.
            silent.append(viewer.last_heard_s - asked_s)
            carried_out.append(done["at_ms"] / 1_000 - asked_s)
    silence = "required; request sent to last audible sample at viewer"
    done_is = "within the above: to the event `interrupted`"
    return [
        *_times("interrupt_silence", silent, silence, INTERRUPT_MS),
        *_times("interrupt_carried_out", carried_out, done_is, INTERRUPT_MS),
    ]


async def one_live(bench: Bench) -> list[Row]:
    """One live speaks for half a minute to one viewer."""
    got = await _speak(bench, 1, SPEAKING_S)
    late_s, more = got.of("pictures"), got.explained
    own = "required; the worker's own histogram"
    return [
        *_times("frame_lateness", late_s, SEEN, LATENESS_MS, **more),
        *_times("sound_lateness", got.of("sound"), SEEN, LATENESS_MS, **more),
        row("worker_lateness_p95_ms", got.worker_p95_ms, "ms", own, LATENESS_MS),
        row("fps_held", got.fps, "frames/s", "required", FRAMES_PER_S),
        row("one_live_stutters", got.stutters, f"in {SPEAKING_S:.0f} s", "required", 0, **more),
    ]


async def two_lives(bench: Bench) -> list[Row]:
    """Two lives speak at once, each to a viewer of its own."""
    got = await _speak(bench, 2, TWO_LIVES_S)
    late_s, more = got.of("pictures"), got.explained
    unit = f"in 2 x {TWO_LIVES_S:.0f} s"
    return [
        *_times("two_lives_lateness", late_s, SEEN, LATENESS_MS, **more),
        row("two_lives_stutters", got.stutters, unit, "required", 0, **more),
        row("two_lives_fps_held", got.fps, "frames/s", "required", FRAMES_PER_S),
    ]


async def many_lives(bench: Bench) -> list[Row]:
    """More and more lives speak at once, without viewers, until one of them is late."""
    held = 0
    tried: dict[str, float] = {}
    for count in MANY_LIVES:
        async with contextlib.AsyncExitStack() as stack:
            lives = [await stack.enter_async_context(bench.live()) for _ in range(count)]
            await asyncio.gather(*(bench.say(live_id, SPEECH) for live_id in lives))
            await asyncio.sleep(MANY_LIVES_S)
            tried[str(count)] = late_ms = round(await bench.worker_p95_ms(), 1)
        if late_ms > LATENESS_MS:
            break
        held = count
    return [
        row(
            "speaking_lives_256",
            held,
            "lives",
            "required; worst live's P95 within 40 ms",
            LIVES_REQUIRED,
            p95_ms_by_lives=tried,
        )
    ]


async def dispatch(bench: Bench) -> list[Row]:
    """Its calls, of the same system, beside their bare rivals."""
    machine = bench.machine
    rival = f"lmdb://{Path(machine.run_dir) / 'rival'}"
    return await dispatch_calls.measure(machine.dispatch_url, machine.kafka, rival, lives=4)


@contextlib.asynccontextmanager
async def _watched(bench: Bench) -> AsyncIterator[tuple[str, EventLog, Viewer]]:
    async with (
        bench.live() as live_id,
        EventLog(bench.machine.dispatch_url, live_id) as events,
        watching(bench.http, live_id) as viewer,
    ):
        yield live_id, events, viewer


def _about(kind: str, offset: int) -> Callable[[Event], bool]:
    return lambda event: event["kind"] == kind and event["offset"] == offset


@dataclass(frozen=True, slots=True)
class Seen:
    """What the viewers got while their lives spoke: lateness of each line of media, apart."""

    lines: dict[str, list[list[Lateness]]]
    fps: float
    """Of the live that got the fewest pictures."""
    worker_p95_ms: float
    pauses: int

    def of(self, kind: str) -> list[float]:
        """All lateness of one kind."""
        return [one.late_s for line in self.lines[kind] for one in line]

    @property
    def explained(self) -> dict[str, int]:
        """How often the viewers' own process stood still."""
        return {"viewer_pauses": self.pauses}

    @property
    def stutters(self) -> int:
        """Times at which picture or sound fell behind by more than a viewer's buffer holds."""
        return sum(
            late.late_s > STUTTER_S >= before.late_s
            for lines in self.lines.values()
            for line in lines
            for before, late in itertools.pairwise(line)
        )


async def _speak(bench: Bench, lives: int, for_s: float) -> Seen:
    """So many lives speak at once, each to its viewer. Raises RuntimeError when one fell silent."""
    pauses = Pauses()
    async with contextlib.AsyncExitStack() as stack:
        watched = [await stack.enter_async_context(_watched(bench)) for _ in range(lives)]
        viewers = [viewer for _, _, viewer in watched]
        asked_s = time.time()
        await asyncio.gather(*(bench.say(live_id, SPEECH) for live_id, _, _ in watched))
        await asyncio.gather(*(viewer.speech(asked_s) for viewer in viewers))
        from_s, to_s = time.time(), time.time() + for_s
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(pauses.watch(), for_s)
        for viewer in viewers:
            if viewer.last_heard_s < to_s - 2:
                raise RuntimeError(f"silent for the last {to_s - viewer.last_heard_s:.1f} s")
        worker_p95_ms = await bench.worker_p95_ms()
    late = {
        "pictures": [viewer.pictures.lateness(from_s, to_s) for viewer in viewers],
        "sound": [viewer.sound.lateness(from_s, to_s) for viewer in viewers],
    }
    return Seen(
        {
            kind: [[one for one in line if not pauses.covers(one.at_s)] for line in lines]
            for kind, lines in late.items()
        },
        min(map(len, late["pictures"])) / for_s,
        worker_p95_ms,
        pauses.between(from_s, to_s),
    )
