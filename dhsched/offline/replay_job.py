"""One live's replay from its entries to its finished files; what a process of the pool does."""

import os
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from hashlib import blake2b
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

import controller
import gpu_stages
import schemas
from dhsched.offline.capture_file import CaptureError
from dhsched.offline.controllers import ReplayFailed
from dhsched.offline.entries import Entry
from dhsched.offline.film import Film, FilmFiles
from dhsched.offline.formats import Format
from dhsched.offline.lockstep import LoadedStages, StagesNotLoaded
from dhsched.offline.manifest import BadManifest, Manifest, read_manifest
from dhsched.offline.player import Play, Played, Player, Timing
from dhsched.offline.schedule import LiveSummary, steps_of
from dhsched.offline.sound_only import without_pictures
from dhsched.offline.virtual_time import run_virtual
from gpu_stages.config import StagesConfig
from rtc_output.mp4 import RecordingFailed
from schemas.options import LiveOptions

DECIDING_PACKAGES: Final = ("dhsched", "hibari-tts", "onnxruntime", "numpy", "torch", "av")
"""Other versions of these may make other samples or pictures."""

CODE_DIGEST_BYTES: Final = 16

Progress = Callable[[int, int], None]
"""(virtual milliseconds done, of how many)."""


class JobFailed(Exception):
    """This live could not be replayed; the message is for people."""


@dataclass(frozen=True, slots=True)
class LiveJob:
    """What to replay, how, and where to. It travels to another process."""

    source: Mapping[str, Any]
    path: Path
    format: Format | None
    live: LiveSummary
    options: LiveOptions
    partitions: int
    timing: Timing
    ownership: bool
    sound_only: bool
    stages: StagesConfig
    device: str
    files: FilmFiles
    complete: bool = True
    notes: tuple[str, ...] = ()

    @property
    def moves(self) -> bool:
        """Whether a second controller is needed."""
        return self.ownership and self.live.moves > 0

    def settings(self) -> dict[str, Any]:
        """What decides what is made, besides the source and the options."""
        return {
            "timing": self.timing,
            "ownership": self.ownership,
            "pictures": not self.sound_only,
            "stages": [
                {
                    "name": one.name,
                    "class": one.class_path,
                    "file": file_hash(one.class_path),
                    "settings": dict(one.settings),
                }
                for one in self.stages.stages
                if not self.sound_only or one.name in ("speech", "motion")
            ],
        }

    def made_before(self) -> Manifest | None:
        """The manifest of this very job, where all its files are there."""
        found = manifest_at(self.files.manifest)
        if found is None:
            return None
        now = (dict(self.source), self.settings(), self.options.as_mapping(), versions())
        before = (
            dict(found.source),
            dict(found.settings),
            dict(found.options),
            dict(found.versions),
        )
        same = now == before and found.device == self.device and found.complete == self.complete
        there = all(path.exists() for path in self.files.all())
        return found if same and there else None


@dataclass(slots=True)
class JobDone:
    """How it went. `seconds_taken` is wall time, for people only."""

    manifest: Manifest
    played: Played
    seconds_taken: float


@dataclass(slots=True)
class StageKeeper:
    """Loaded stages, kept from one live to the next of the same configuration."""

    _kept: dict[tuple[str, str], list[LoadedStages]] = field(
        default_factory=dict[tuple[str, str], list[LoadedStages]]
    )

    def get(self, config: StagesConfig, device: str, count: int) -> list[LoadedStages]:
        """`count` sets. Raises StagesNotLoaded."""
        kept = self._kept.setdefault((repr(config), device), [])
        while len(kept) < count:
            kept.append(LoadedStages(config, device))
        return kept[:count]


def run_job(
    job: LiveJob, entries: Iterable[Entry], keeper: StageKeeper, on_progress: Progress
) -> JobDone:
    """Replay and write. Raises JobFailed; no file is left under a final name then."""
    began_s = time.monotonic()
    if job.live.broken:
        raise JobFailed(job.live.broken)
    film: Film | None = None
    try:
        clean_parts(job.files)
        config = _config(job)
        loaded = keeper.get(config, job.device, 2 if job.moves else 1)
        film = Film(job.files, pictures=not job.sound_only)
        played = _play(job, entries, film, loaded, on_progress)
        manifest = _finish(job, film, played)
    except OSError as error:
        where = error.filename or job.files.sound.parent
        raise JobFailed(f"cannot write {where}: {error.strerror or error}") from error
    except (RecordingFailed, ReplayFailed, StagesNotLoaded, CaptureError) as error:
        raise JobFailed(str(error)) from error
    finally:
        if film is not None:
            film.abort()
    return JobDone(manifest, played, time.monotonic() - began_s)


def _config(job: LiveJob) -> StagesConfig:
    """Only what this live needs is loaded: of the bundled voices, its own."""
    speech = job.stages.stages[0]
    if speech.class_path == "gpu_stages.stages.speech:SpeechStage" and not speech.settings:
        speech = replace(speech, settings={"voices": [job.options.voice]})
    config = replace(job.stages, stages=(speech, *job.stages.stages[1:]))
    return without_pictures(config) if job.sound_only else config


def _play(
    job: LiveJob,
    entries: Iterable[Entry],
    film: Film,
    loaded: list[LoadedStages],
    on_progress: Progress,
) -> Played:
    play = Play(job.live, job.options, job.partitions, job.timing, job.moves)
    steps = steps_of(entries, job.live, ownership=job.moves)
    return run_virtual(lambda loop: Player(play, film, loop, on_progress).run(steps, loaded))


def _finish(job: LiveJob, film: Film, played: Played) -> Manifest:
    sound, picture = film.finish_media()
    manifest = Manifest(
        live_id=job.live.live_id,
        source=job.source,
        settings=job.settings(),
        options=job.options.as_mapping(),
        versions=versions(),
        device=job.device,
        processor=processor(),
        files=job.files.names(),
        frames=film.next_frame,
        sound=sound,
        picture=picture,
        segments=tuple(film.segments),
        records=played.records,
        moves=played.moves,
        dead_letters=played.dead_letters,
        closed=played.closed,
        repeated_frames=film.repeated_frames,
        repeated_different=film.repeated_different,
        complete=job.complete,
        notes=job.notes,
    )
    film.write_manifest(manifest.as_json())
    return manifest


def manifest_at(path: Path) -> Manifest | None:
    """None where there is none that can be read."""
    try:
        return read_manifest(path.read_text())
    except (OSError, UnicodeDecodeError, BadManifest):
        return None


def parts_of(files: FilmFiles) -> Iterator[Path]:
    """What a replay that was killed left beside these files."""
    for path in files.all():
        if path.parent.is_dir():
            for name in os.listdir(path.parent):
                if name.startswith(f".{path.name}.") and name.endswith(".part"):
                    yield path.parent / name


def clean_parts(files: FilmFiles) -> None:
    """Remove it."""
    for path in list(parts_of(files)):
        path.unlink(missing_ok=True)


def file_hash(class_path: str) -> str | None:
    """Of the file that holds a model of one's own; None for a module, whose code is a version."""
    name = class_path.rpartition(":")[0]
    if not name.endswith(".py"):
        return None
    try:
        return blake2b(Path(name).read_bytes(), digest_size=CODE_DIGEST_BYTES).hexdigest()
    except OSError:
        return None  # Loading it says what is wrong.


def code_hash() -> str:
    """Of the code that cuts, speaks, moves and draws: it may change within a version."""
    digest = blake2b(digest_size=CODE_DIGEST_BYTES)
    for package in (controller, gpu_stages, schemas):
        folder = Path(package.__file__ or "").parent
        for path in sorted(folder.rglob("*.py")):
            digest.update(str(path.relative_to(folder)).encode() + path.read_bytes())
    return digest.hexdigest()


@cache
def versions() -> dict[str, str]:
    """Of everything that decides what is made."""
    found = {"python": platform.python_version(), "code": code_hash()}
    for name in DECIDING_PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


@cache
def processor() -> str:
    """This machine's class of CPU: sums may differ in their last bits on another one."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
