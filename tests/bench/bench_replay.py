"""How fast a recorded live is replayed, against the time it took: whole, and without pictures.

A minute of recorded speech with pauses, two turns and an interrupt, on one core: the stages run in
the replay's own process, one thread each. Loading the stages is not counted, writing the files is.
"""

import json
import tempfile
import time
from pathlib import Path

from dhsched.offline.entries import CapturedRecord, Entry
from dhsched.offline.film import FilmFiles
from dhsched.offline.replay_job import LiveJob, StageKeeper, run_job
from dhsched.offline.schedule import survey
from gpu_stages.config import BUNDLED
from schemas.media import FRAMES_PER_S
from schemas.options import LiveOptions
from schemas.topics import TEXT_TOPIC
from tests.bench.figures import Row, row

LIVE = "bench"
BEGIN_MS = 1_764_000_000_000
ROUNDS = 3
SAID: tuple[tuple[int, dict[str, str]], ...] = (
    (0, {"text": "Good evening, and welcome. Tonight we talk about what happens to a long story "}),
    (400, {"text": "when the machine that tells it is taken away in the middle of a sentence. "}),
    (9_000, {"text": "Nobody in the room should hear it. The next machine reads what was said, "}),
    (9_500, {"text": "makes the same sound again, and goes on where the other one stopped. "}),
    (19_000, {"kind": "end_turn"}),
    (22_000, {"text": "Now a question from the audience, and a rather long answer to it, which "}),
    (22_300, {"text": "somebody will interrupt before it comes to its end, because it has none. "}),
    (27_500, {"kind": "interrupt"}),
    (29_000, {"text": "Of course. Let me say it shorter. It works, and here is the proof. "}),
    (
        38_000,
        {"text": "Two recordings, one that moved and one that stayed, laid over each other. "},
    ),
    (44_000, {"text": "There is nothing left between them, not a single sample. Thank you all. "}),
    (58_000, {"kind": "close"}),
)


def rows() -> list[Row]:
    """Seconds of the recording per second of this machine's one core."""
    keeper = StageKeeper()
    with tempfile.TemporaryDirectory(prefix="dhsched-bench-") as folder:
        # The first of each loads the stages.
        heard = [_replayed(keeper, Path(folder), sound_only=True) for _ in range(1 + ROUNDS)][1:]
        seen = [_replayed(keeper, Path(folder), sound_only=False) for _ in range(2)][1:]
    return [
        _row("replay_sound_speed_vs_realtime", heard, "sound and motion, no picture"),
        _row("replay_speed_vs_realtime", seen, "256x256 px, drawn and encoded"),
    ]


def _row(name: str, rounds: list[tuple[float, float, float]], what: str) -> Row:
    recorded_s, took_s, cpu_s = min(rounds, key=lambda one: one[1])
    return row(
        name,
        recorded_s / took_s,
        "x real time",
        "the recording itself",
        1.0,
        what=what,
        recorded_s=round(recorded_s, 2),
        took_s=round(took_s, 2),
        cpu_s=round(cpu_s, 2),
    )


def _replayed(keeper: StageKeeper, folder: Path, *, sound_only: bool) -> tuple[float, float, float]:
    """(recorded seconds, wall seconds, CPU seconds)."""
    entries = list(_entries())
    job = LiveJob(
        source={"name": LIVE},
        path=folder,
        format=None,
        live=survey(entries).lives[LIVE],
        options=LiveOptions(),
        partitions=1,
        timing="recorded",
        ownership=False,
        sound_only=sound_only,
        stages=BUNDLED,
        device="cpu",
        files=FilmFiles.beside(folder / "bench", pictures=not sound_only),
    )
    wall_s, cpu_s = time.monotonic(), time.process_time()
    done = run_job(job, entries, keeper, lambda _done, _of: None)
    took = time.monotonic() - wall_s, time.process_time() - cpu_s
    return done.manifest.frames / FRAMES_PER_S, *took


def _entries() -> list[Entry]:
    return [
        CapturedRecord(
            TEXT_TOPIC, 0, at, BEGIN_MS + at_ms, LIVE.encode(), json.dumps(value).encode()
        )
        for at, (at_ms, value) in enumerate(SAID)
    ]
