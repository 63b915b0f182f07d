"""What `dhsched replay` does: looks a capture over, replays its lives, and says how it went."""

import asyncio
import hashlib
import os
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from dhsched.command_line import USAGE_STATUS
from dhsched.offline.capture_file import CaptureError, CaptureReader
from dhsched.offline.entries import CapturedRecord, Entry
from dhsched.offline.film import FilmFiles
from dhsched.offline.formats import DEFAULT_LIVE, Format, open_entries, read_as_entries
from dhsched.offline.offsets import FindingKind, OffsetChecker
from dhsched.offline.player import Timing
from dhsched.offline.replay_job import LiveJob
from dhsched.offline.replay_pool import run_here, run_pool
from dhsched.offline.replay_reports import Reports
from dhsched.offline.schedule import LiveSummary, Survey, survey
from dhsched.output import CommandFailed, Output
from gpu_stages.config import BUNDLED, BadStagesConfig, StagesConfig, load_stages_config
from schemas.options import BadOptions, LiveOptions

TOPIC_PREFIX: Final = "topic:"
NAME_CHARS_MAX: Final = 100
SUFFIXES: Final = (".mp4", ".wav")


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """What the command was asked for, as it was written. `out` None: nothing is to be kept."""

    source: str
    out: Path | None = None
    live_id: str | None = None
    timing: Timing = "recorded"
    format: Format | None = None
    stages: Path | None = None
    device: str = "cpu"
    ownership: bool = False
    sound_only: bool = False
    jobs: int | None = None
    force: bool = False
    kafka: str = ""
    look: str | None = None
    voice: str | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """A file of entries, looked over."""

    path: Path
    name: str
    format: Format | None
    found: Survey
    partitions: int
    hash: str
    truncated_at: int | None
    notes: tuple[str, ...]

    def document(self) -> dict[str, Any]:
        """For manifests: what was replayed."""
        return {"name": self.name, "hash": self.hash, "entries": self.found.entries}


@dataclass(slots=True)
class Replayed:
    """Everything that came of a request."""

    source: Source
    jobs: list[LiveJob] = field(default_factory=list[LiveJob])
    reports: Reports | None = None


def replay(request: ReplayRequest, output: Output) -> Replayed:
    """Replay what is asked for. Raises CommandFailed, also when a part of it failed."""
    if request.out is None:
        raise CommandFailed("say where to with --out FILE.mp4 or --out FOLDER", USAGE_STATUS)
    stages = _stages(request)
    with opened(request, output) as source:
        replayed = Replayed(source)
        replayed.jobs = plan(request, source, stages, request.out)
        for note in source.notes:
            output.note(f"[yellow]note:[/] {note}")
        reports = Reports(output, len(replayed.jobs))
        replayed.reports = reports
        todo = [job for job in replayed.jobs if not _kept(job, request, reports)]
        with reports.shown():
            at_once = request.jobs or os.cpu_count() or 1
            if min(at_once, len(todo)) > 1:
                run_pool(todo, at_once, open_job, reports)
            else:
                run_here(todo, open_job, reports)
        reports.tell(source.document(), source.truncated_at)
    if source.truncated_at is not None:
        raise CommandFailed(
            f"{source.name} breaks off at byte {source.truncated_at}; what is whole before it was "
            "replayed"
        )
    if reports.failures:
        raise CommandFailed(f"{len(reports.failures)} of {len(replayed.jobs)} lives failed")
    return replayed


def _kept(job: LiveJob, request: ReplayRequest, reports: Reports) -> bool:
    """Done by an earlier run of the same command. Raises CommandFailed for what is in the way."""
    made = None if request.force else job.made_before()
    if made is not None:
        reports.kept(job, made)
        return True
    there = [path for path in job.files.all() if path.exists()]
    if there and not request.force:
        raise CommandFailed(f"{there[0]} exists and is of another replay; --force replaces it")
    return False


# -- the source


@contextmanager
def opened(request: ReplayRequest, output: Output) -> Generator[Source]:
    """The source, on this machine and looked over. Raises CommandFailed."""
    if not request.source.startswith(TOPIC_PREFIX):
        path = Path(request.source)
        yield _look_over(path, path.name, request)
        return
    with tempfile.TemporaryDirectory(prefix="dhsched-replay-") as folder:
        path = Path(folder) / "topic.avro"
        _capture(request, path, output)
        yield _look_over(path, request.source, request)


def _capture(request: ReplayRequest, path: Path, output: Output) -> None:
    from dhsched.offline.capture import CaptureRequest, capture

    wanted = CaptureRequest(
        kafka=request.kafka,
        out=path,
        live_id=request.live_id,
        all_lives=request.live_id is None,
        topic=request.source.removeprefix(TOPIC_PREFIX),
    )
    asyncio.run(capture(wanted, output))


def _look_over(path: Path, name: str, request: ReplayRequest) -> Source:
    live_id = request.live_id or DEFAULT_LIVE
    try:
        with open_entries(path, request.format, live_id=live_id) as reader:
            checker = OffsetChecker(reader.header)
            digest = hashlib.sha256()
            found = survey(_seen(reader, checker, digest.update), request.live_id)
            checker.finish()
            truncated_at = reader.truncated_at
            partitions = max(reader.header.partition_count, found.partitions)
            is_capture = isinstance(reader, CaptureReader)
    except CaptureError as error:
        raise CommandFailed(str(error)) from error
    except OSError as error:
        raise CommandFailed(f"cannot read {path}: {error.strerror}") from error
    return Source(
        path,
        name,
        request.format,
        found,
        partitions,
        digest.hexdigest(),
        truncated_at,
        tuple(_notes(found, checker)) if is_capture else (),
    )


def _seen(
    entries: Iterable[Entry], checker: OffsetChecker, hashed: Callable[[bytes], None]
) -> Iterator[Entry]:
    """What the entries hold is hashed, not the file: that names the time of its capture, too."""
    for entry in entries:
        checker.see(entry)
        hashed(b"%d %d %d " % (entry.partition, entry.offset, entry.timestamp_ms))
        if isinstance(entry, CapturedRecord):
            hashed(b"%r %r" % (entry.key, entry.value))
        else:
            hashed(entry.event.event_id.encode())
        yield entry


def _notes(found: Survey, checker: OffsetChecker) -> Iterator[str]:
    for finding in checker.findings:
        if finding.kind is FindingKind.GAP:
            yield f"{finding}; the replay goes on behind them"
        elif finding.kind is FindingKind.REPEATED:
            yield f"{finding}; it is spoken once"
    if found.foreign:
        yield f"{found.foreign} records without a live's id as their key are left out"


def open_job(job: LiveJob) -> Iterator[Entry]:
    """A job's entries, in whichever process it is done."""
    return read_as_entries(job.path, job.format, live_id=job.live.live_id)


# -- the plan


def plan(request: ReplayRequest, source: Source, stages: StagesConfig, out: Path) -> list[LiveJob]:
    """A job for each live. Raises CommandFailed where the request does not fit the source."""
    lives = source.found.with_records()
    if not lives:
        what = f"no record of live {request.live_id}" if request.live_id else "no record of a live"
        raise CommandFailed(f"{source.name} holds {what}")
    is_file = out.suffix.lower() in SUFFIXES
    if is_file and len(lives) > 1:
        names = ", ".join(one.live_id for one in lives[:5]) + (", ..." if len(lives) > 5 else "")
        raise CommandFailed(
            f"{source.name} holds {len(lives)} lives ({names}): name one with --live, or a folder "
            "with --out",
            USAGE_STATUS,
        )
    sound_only = request.sound_only or out.suffix.lower() == ".wav"
    if sound_only and out.suffix.lower() == ".mp4":
        raise CommandFailed("without pictures there is no MP4: --out FILE.wav", USAGE_STATUS)
    looks = None if sound_only else _looks(stages)
    _make_folder(out.parent if is_file else out, make=not is_file)
    return [
        LiveJob(
            source=source.document(),
            path=source.path,
            format=source.format,
            live=live,
            options=_options(live, request, looks),
            partitions=source.partitions,
            timing=request.timing,
            ownership=request.ownership,
            sound_only=sound_only,
            stages=stages,
            device=request.device,
            files=FilmFiles.beside(
                out.with_suffix("") if is_file else out / file_name(live.live_id),
                pictures=not sound_only,
            ),
            complete=source.truncated_at is None,
            notes=source.notes,
        )
        for live in lives
    ]


def _make_folder(folder: Path, *, make: bool) -> None:
    try:
        if make:
            folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CommandFailed(f"cannot make the folder {folder}: {error.strerror}") from error
    if not folder.is_dir():
        raise CommandFailed(f"the folder {folder} does not exist; make it first", USAGE_STATUS)


def _looks(stages: StagesConfig) -> tuple[str, ...] | None:
    """The looks there are; None where a renderer of one's own knows them."""
    if stages.stages[2].class_path != BUNDLED.stages[2].class_path:
        return None
    from gpu_stages.face.looks import LOOK_NAMES

    return LOOK_NAMES


def _options(
    live: LiveSummary, request: ReplayRequest, looks: tuple[str, ...] | None
) -> LiveOptions:
    options = live.options or LiveOptions()
    if looks is not None and request.look is not None and request.look not in looks:
        raise CommandFailed(
            f"there is no look {request.look}, only {', '.join(looks)}", USAGE_STATUS
        )
    try:
        return replace(
            options,
            look=request.look or options.look,
            voice=request.voice or options.voice,
        ).check()
    except BadOptions as error:
        raise CommandFailed(str(error), USAGE_STATUS) from error


def file_name(live_id: str) -> str:
    """A live's id as the name of a file: what a name cannot hold as %XX, and not too long."""
    name = quote(live_id, safe=" ()[]+,=@")
    name = f"%2E{name[1:]}" if name.startswith(".") else name
    if len(name) <= NAME_CHARS_MAX:
        return name
    return f"{name[:NAME_CHARS_MAX]}-{hashlib.sha256(live_id.encode()).hexdigest()[:12]}"


def _stages(request: ReplayRequest) -> StagesConfig:
    try:
        return load_stages_config(request.stages)
    except BadStagesConfig as error:
        raise CommandFailed(str(error), USAGE_STATUS) from error
