"""One run: processes, clients, faults, the end of the faults, and the judgement."""

import asyncio
import contextlib
import gzip
import json
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import SimpleNamespace

from controller.session_core import SessionLimits
from ownership.kv import Database
from ownership.open import open_database
from tests.chaos.clients import Front, Log, Speaker
from tests.chaos.cluster import Cluster
from tests.chaos.diary import Diary
from tests.chaos.gather import Journal, Topics, history, missed, tell
from tests.chaos.measure import asked_while_superseded
from tests.chaos.nemesis import Nemesis
from tests.chaos.plan import Planned, schedule
from tests.chaos.settle import free_slots, waiting
from tests.sim import history as h
from tests.sim import windows
from tests.sim.checkers import Verdict, check
from tests.sim.recorder import Recorder

PARTITIONS = 12
SETTLE_S_MAX = 420.0
SETTLE_BAD_S_MAX = 20.0
LOOK_S = 1.0
CHECKPOINT_MS = SessionLimits().checkpoint_ms
UNBOUNDED_MS = 86_400_000
"""How old the sound is that a crash lets be heard again is measured here, and not judged: a machine
that is short of time delays a checkpoint as it likes."""


@dataclass(frozen=True, slots=True)
class Options:
    """What a run is. A live speaks `ms_per_character`, and has text for so much of the time as
    `load` says, in the mean."""

    seed: int
    length_s: float
    lives: int = 50
    pushed: int = 4
    churned: int = 6
    dispatchers: int = 2
    capacities: Mapping[str, int] = field(
        default_factory=lambda: {"n0": 34, "n1": 34, "n2": 34, "x": 8}
    )
    """By node. Node x joins and leaves in storms."""
    load: float = 0.6
    ms_per_character: int = 80
    move_every_s: float = 1.0
    plan: tuple[Planned, ...] | None = None
    weaken: Mapping[str, str] = field(default_factory=dict)
    expected_bad: bool = False
    """A control: that it is bad is no reason to keep anything."""
    store: str = ""
    """URL; empty: LMDB in the run's folder."""


@dataclass(slots=True)
class Run:
    """What came of it. `surprises` are the processes' own complaints; `left` is what was not
    spoken when the time was over; `faults` counts them by kind (`passed_over`: found nothing to
    break); `kept` is where history and logs are, when something was wrong."""

    options: Options
    verdict: Verdict
    history: h.History
    windows: Counter[str]
    surprises: list[str]
    records: int
    left: list[str] = field(default_factory=list)
    seconds: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    answers: Counter[str] = field(default_factory=Counter)
    kept: Path | None = None

    @property
    def ok(self) -> bool:
        return not (self.verdict.violations or self.surprises or self.left)


async def run(options: Options) -> Run:
    """Raises AssertionError for a system that cannot even be set up."""
    folder = Path(tempfile.mkdtemp(prefix="dhsched-chaos-"))
    began_s = time.monotonic()
    whole = _Whole(options, folder)
    try:
        return await whole.run(began_s)
    except BaseException as error:
        whole.keep = True
        error.add_note(f"seed {options.seed}; diaries and logs are kept in {folder}")
        raise
    finally:
        if not whole.keep:
            shutil.rmtree(folder, ignore_errors=True)


class _Whole:
    def __init__(self, options: Options, folder: Path) -> None:
        self.options = options
        self.folder = folder
        self.keep = False
        self.rng = Random(options.seed)
        self.diary = Diary(folder / "nemesis.diary")
        # Nothing here outlives the machine's power, so nothing needs to be flushed to the disk.
        self.store = options.store or f"lmdb://{folder}/store?sync=off"
        self.cluster = Cluster(
            folder,
            self.diary,
            store=self.store,
            dispatchers=options.dispatchers,
            capacities=options.capacities,
            ms_per_character=options.ms_per_character,
            weaken=options.weaken,
        )

    async def run(self, began_s: float) -> Run:
        options, cluster = self.options, self.cluster
        async with contextlib.AsyncExitStack() as stack:
            stack.callback(self.diary.close)
            stack.push_async_callback(cluster.close)
            for slot in cluster.slots:
                slot.wanted = slot.node != "x"
            await cluster.start()
            assert cluster.broker is not None
            bootstrap = cluster.broker.bootstrap
            db = await stack.enter_async_context(await open_database(self.store))
            journal = Journal(db)
            front = Front(cluster, Random(options.seed + 1))
            stack.push_async_callback(front.close)
            topics = Topics(bootstrap)
            stack.callback(topics.close)
            log = Log(bootstrap)
            speakers = await self._speakers(front)
            plan = schedule(options.seed) if options.plan is None else options.plan
            nemesis = Nemesis(cluster, front, journal, plan, options.move_every_s, self.rng)
            nemesis.lives = [one.live_id for one in speakers]
            pace_ms = options.ms_per_character / options.load
            serving = asyncio.create_task(log.run())
            clients = [asyncio.create_task(one.run(log, front, pace_ms)) for one in speakers]
            try:
                await nemesis.run(options.length_s)
            finally:
                for task in clients:
                    task.cancel()
                ended = await asyncio.gather(*clients, return_exceptions=True)
                serving.cancel()
                await asyncio.gather(serving, return_exceptions=True)
            for one in ended:
                if isinstance(one, BaseException) and not isinstance(one, asyncio.CancelledError):
                    cluster.surprises.append(f"a client failed: {one!r}")
            if (lost := await log.flush(120.0)) or log.failed:
                cluster.surprises.append(f"{lost} + {log.failed} records were not taken by Kafka")
            left = await self._settle(db, journal, topics)
            await cluster.close()
            # All processes are gone: diaries and journal are complete.
            await journal.catch_up()
            if keys := missed(journal.entries, await whole_store(db)):
                cluster.surprises.append(f"the journal and the store differ in {keys[:5]}")
        found = self._judge(journal, topics)
        found.left, found.seconds = left, time.monotonic() - began_s
        found.faults, found.answers = nemesis.done, front.answers
        return self._kept(found)

    async def _speakers(self, front: Front) -> list[Speaker]:
        options = self.options
        speakers = [
            Speaker(
                f"L{at}.",
                Random(options.seed * 1_000 + at),
                pushed=at < options.pushed,
                churned=options.pushed <= at < options.pushed + options.churned,
            )
            for at in range(options.lives)
        ]
        for first in range(0, len(speakers), 8):
            await asyncio.gather(*(one.open(front) for one in speakers[first : first + 8]))
        return speakers

    async def _settle(self, db: Database, journal: Journal, topics: Topics) -> list[str]:
        """Wait until everything of open lives is spoken, and everything else in its place."""
        recorder = Recorder(SimpleNamespace(now_s=0.0))  # type: ignore[arg-type]
        limit_s = SETTLE_BAD_S_MAX if self.options.expected_bad else SETTLE_S_MAX
        done, until_s = 0, time.monotonic() + limit_s
        left: list[str] = [""]
        while True:
            await asyncio.to_thread(topics.catch_up)
            done = tell(recorder, topics, done)
            await journal.catch_up()
            store = await whole_store(db)
            left = waiting(store, recorder, PARTITIONS)
            if not left or time.monotonic() > until_s:
                break
            await asyncio.sleep(LOOK_S)
        self.diary.note(h.Ended(self.diary.now_ms, not left, tuple(left), free_slots(store) > 0))
        return left

    def _judge(self, journal: Journal, topics: Topics) -> Run:
        entries, recorder = history(journal.entries, sorted(self.folder.glob("*.diary")), topics)
        entries = [h.Promised(0, CHECKPOINT_MS, UNBOUNDED_MS), *_ended_last(entries)]
        found = windows.count(entries)
        found["release_asked_while_superseded"] = asked_while_superseded(entries)
        found["dead_letter_repeated"] = recorder.windows["dead_letter_repeated"]
        return Run(
            options=self.options,
            verdict=check(entries),
            history=entries,
            windows=found,
            surprises=self.cluster.surprises,
            records=recorder.records,
        )

    def _kept(self, found: Run) -> Run:
        """With its history and all logs on the disk, when something was wrong."""
        if not found.ok and not self.options.expected_bad:
            self.keep, found.kept = True, self.folder
            with gzip.open(self.folder / "history.json.gz", "wt") as file:
                json.dump(h.to_plain(found.history), file)
        return found


async def whole_store(db: Database) -> dict[bytes, bytes]:
    """All keys of the protocol."""
    return dict(await db.read(lambda tr: tr.get_range(b"", b"\xfa")))


def _ended_last(entries: h.History) -> h.History:
    """Processes were ended after the judgement was asked for: `Ended` is said last."""
    rest = [one for one in entries if not isinstance(one, h.Ended)]
    return rest + [one for one in entries if isinstance(one, h.Ended)]
