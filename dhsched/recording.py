"""Speaks a text and keeps what a viewer would have seen and heard, as an MP4."""

import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any, Final, cast

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from dhsched.client import DispatchClient
from dhsched.output import CommandFailed, Output
from dhsched.topic_writer import TopicWriter
from rtc_output.mp4 import RecordingFailed, remux_to_mp4
from schemas.text_record import RecordKind

FIRST_BYTES_S: Final = 15.0


async def record(
    client: DispatchClient, writer: TopicWriter, live_id: str, text: str, out: Path, output: Output
) -> None:
    """Record the live from before its first word until it closed after its last.

    The file appears under its final name only when it is whole. Raises CommandFailed when the live
    reported an error or did not close by itself.
    """
    with tempfile.TemporaryDirectory(prefix=f".{out.name}-", dir=existing_parent(out)) as folder:
        part = Path(folder) / "stream.mp4"
        started = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            copying = tasks.create_task(_copy(client, live_id, part, started))
            async with asyncio.timeout(FIRST_BYTES_S):
                await started.wait()
            sent = await writer.speak(live_id, text)
            close = await writer.write(live_id, RecordKind.CLOSE, seq=len(sent))
            watching = tasks.create_task(_watch(client, live_id, close.offset, output))
            await copying
            watching.cancel()
        live = await client.get(f"/v1/lives/{live_id}")
        if live.get("state") != "closed":
            raise CommandFailed(f"live {live_id} is {live.get('state')} though its stream ended")
        try:
            duration_s = await asyncio.to_thread(remux_to_mp4, part, out)
        except RecordingFailed as error:
            raise CommandFailed(str(error)) from error
    output.result(
        {"live_id": live_id, "recording": str(out), "seconds": duration_s},
        f"recorded {duration_s:.1f} s to {out}",
    )


def existing_parent(out: Path) -> Path:
    """The folder of a file that is to be written. Raises CommandFailed."""
    parent = out.resolve().parent
    if not parent.is_dir():
        raise CommandFailed(f"the folder {parent} does not exist; make it first", 2)
    return parent


async def _copy(client: DispatchClient, live_id: str, part: Path, started: asyncio.Event) -> None:
    with part.open("wb") as file:
        async for piece in client.stream(f"/v1/lives/{live_id}/stream.mp4"):
            try:
                file.write(piece)
            except OSError as error:
                raise CommandFailed(f"cannot write {part}: {error.strerror}") from error
            started.set()


async def _watch(client: DispatchClient, live_id: str, last_offset: int, output: Output) -> None:
    """Show how far it has spoken; errors of the live end the recording."""
    columns = (TextColumn("speaking"), BarColumn(), TextColumn("{task.completed}/{task.total}"))
    with Progress(
        *columns, TimeElapsedColumn(), console=output.errors, disable=output.as_json
    ) as progress:
        task = progress.add_task("speaking", total=last_offset + 1)
        try:
            buffer = b""
            async for piece in client.stream(f"/v1/lives/{live_id}/events"):
                *lines, buffer = (buffer + piece).split(b"\n")
                for line in lines:
                    if line.startswith(b"data:"):
                        _advance(json.loads(line[5:]), progress, task)
        finally:
            # Whoever ends the watching has seen the stream's end.
            progress.update(task, completed=last_offset + 1)


def _advance(event: dict[str, Any], progress: Progress, task: Any) -> None:
    offset = cast("int | None", event.get("offset"))
    if event.get("kind") == "error":
        raise CommandFailed(f"live {event.get('live_id')}: {event.get('data')}")
    if event.get("kind") == "speak_ended" and offset is not None:
        progress.update(task, completed=offset + 1)
