"""How a replay goes, for people (progress bars, a table) and for machines (one document)."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from dhsched.offline.manifest import Manifest
from dhsched.offline.replay_job import JobDone, LiveJob
from dhsched.output import Output
from schemas.media import FRAMES_PER_S


class Reports:
    """Implements `replay_pool.PoolReports`."""

    def __init__(self, output: Output, lives: int) -> None:
        self.failures: dict[str, str] = {}
        self.made: dict[str, JobDone] = {}
        self._output = output
        self._rows: list[dict[str, Any]] = []
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[at]}"),
            TimeElapsedColumn(),
        )
        self._progress = Progress(*columns, console=output.errors, disable=output.as_json)
        self._tasks: dict[str, TaskID] = {}
        self._all = self._progress.add_task("lives", total=lives, at="", visible=lives > 1)

    @contextmanager
    def shown(self) -> Generator[None]:
        """While it goes on."""
        with self._progress:
            yield

    def began(self, job: LiveJob) -> None:
        """A live's bar appears."""
        name = job.live.live_id
        self._tasks[name] = self._progress.add_task(name, total=None, at="loading the stages")

    def progress(self, job: LiveJob, done_ms: int, of_ms: int) -> None:
        """It moves; beyond the last record's time nobody knows how much is left to say."""
        within = done_ms < of_ms
        self._progress.update(
            self._tasks[job.live.live_id],
            completed=done_ms,
            total=of_ms if within else None,
            at=f"{done_ms / 1000:.0f}" + (f" of {of_ms / 1000:.0f} s" if within else " s"),
        )

    def done(self, job: LiveJob, done: JobDone) -> None:
        """It goes."""
        self._over(job)
        self.made[job.live.live_id] = done
        row = self._row(job, done.manifest, "made")
        seconds = done.manifest.frames / FRAMES_PER_S
        row["errors"] = done.played.errors
        row["times_real_time"] = round(seconds / max(done.seconds_taken, 1e-3), 2)
        self._rows.append(row)

    def failed(self, job: LiveJob, why: str) -> None:
        """It goes, and why is said at once."""
        self._over(job)
        self.failures[job.live.live_id] = why
        self._rows.append({"live": job.live.live_id, "status": "failed", "error": why})
        self._output.note(f"[bold red]live {job.live.live_id}:[/] {why}")

    def kept(self, job: LiveJob, manifest: Manifest) -> None:
        """It was done before."""
        self._progress.advance(self._all)
        self._rows.append(self._row(job, manifest, "kept"))

    def tell(self, source: Mapping[str, Any], truncated_at: int | None) -> None:
        """The outcome: a table or a document."""
        if self._output.as_json:
            document: dict[str, Any] = {"source": dict(source), "lives": self._rows}
            if truncated_at is not None:
                document["truncated_at"] = truncated_at
            self._output.result(document, "")
            return
        columns = ["live", "status", "seconds", "segments", "moves", "times_real_time", "file"]
        self._output.table("lives", columns, self._rows, "nothing was replayed")

    def _over(self, job: LiveJob) -> None:
        task = self._tasks.pop(job.live.live_id)
        self._progress.update(task, visible=False)
        self._progress.advance(self._all)

    def _row(self, job: LiveJob, manifest: Manifest, status: str) -> dict[str, Any]:
        files = job.files
        return {
            "live": manifest.live_id,
            "status": status,
            "seconds": manifest.frames / FRAMES_PER_S,
            "records": manifest.records,
            "segments": len(manifest.segments),
            "moves": manifest.moves,
            "dead_letters": manifest.dead_letters,
            "closed": manifest.closed,
            "repeated_frames": manifest.repeated_frames,
            "repeated_different": manifest.repeated_different,
            "file": str(files.film or files.sound),
            "files": [str(path) for path in files.all()],
            "manifest": str(files.manifest),
        }
