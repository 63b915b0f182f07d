"""`dhsched demo`: text on Kafka becomes a talking face, on this machine, in one command."""

import asyncio
import contextlib
import os
import signal
import webbrowser
from collections.abc import AsyncGenerator, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

from rich.panel import Panel
from rich.status import Status

from dhsched.client import DispatchClient
from dhsched.one_machine import OneMachine, OneMachineSettings
from dhsched.output import CommandFailed, Output
from dhsched.processes import ended
from dhsched.recording import existing_parent, record
from dhsched.text_source import bundled_script, read_text
from dhsched.topic_writer import TopicWriter
from schemas.topics import TEXT_TOPIC

VIEWER_WAIT_S: Final = 12.0


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """What `dhsched demo` was asked for."""

    text: str | None
    record: Path | None
    machine: OneMachineSettings
    look: str | None
    browser: bool


async def run_demo(options: DemoOptions, output: Output) -> None:
    """Start everything, speak, and go on until Ctrl-C (or, when recording, until all is spoken)."""
    text = bundled_script() if options.text is None else read_text(options.text)
    if options.record is not None:
        # Asked before everything is started, which takes a while.
        existing_parent(options.record)
        if options.record.exists():
            raise CommandFailed(f"{options.record} exists; remove it or name another file", 2)
    stopped = asyncio.Event()
    with _until_signalled(stopped):
        work = asyncio.create_task(_run(options, text, output))
        stop = asyncio.create_task(stopped.wait())
        done, _ = await asyncio.wait({work, stop}, return_when=asyncio.FIRST_COMPLETED)
        if work not in done:
            output.note("Stopping ...")
            work.cancel()
        stop.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await work
        if stopped.is_set() and options.record is not None and work.cancelled():
            raise CommandFailed(
                "interrupted before everything was spoken; no file was written", 130
            )


async def _run(options: DemoOptions, text: str, output: Output) -> None:
    async with _machine(options, output) as machine:
        body = {"options": {"look": options.look}} if options.look else {}
        async with DispatchClient(machine.dispatch_url) as client:
            live_id = cast("str", (await client.post("/v1/lives", body))["live_id"])
            async with TopicWriter.to(machine.kafka) as writer:
                if options.record is not None:
                    await record(client, writer, live_id, text, options.record, output)
                else:
                    await _show(options, machine, client, writer, live_id, text, output)


@contextlib.asynccontextmanager
async def _machine(options: DemoOptions, output: Output) -> AsyncGenerator[OneMachine]:
    status = Status("starting", console=output.errors)

    def on_step(name: str, detail: str) -> None:
        if detail == "ready":
            output.note(f"[green]ready[/]  {name}")
        else:
            status.update(f"{name}: {detail}")

    with contextlib.ExitStack() as shown:
        if not output.as_json:
            shown.enter_context(status)
        async with OneMachine(options.machine, on_step) as machine:
            shown.close()
            yield machine


async def _show(
    options: DemoOptions,
    machine: OneMachine,
    client: DispatchClient,
    writer: TopicWriter,
    live_id: str,
    text: str,
    output: Output,
) -> None:
    url = f"{machine.dispatch_url}/watch/{live_id}"
    output.result(
        {"live_id": live_id, "viewer": url, "kafka": machine.kafka, "topic": TEXT_TOPIC},
        f"live   {live_id}\nviewer {url}",
    )
    opened = options.browser and _has_display() and webbrowser.open(url)
    if not opened:
        output.note("No browser was opened: open the viewer's address yourself.")
    output.note(_how_to_go_on(machine.kafka, live_id))
    await _wait_for_viewer(client, live_id)
    await writer.speak(live_id, text)
    raise ended(await machine.children.first_to_end())


async def _wait_for_viewer(client: DispatchClient, live_id: str) -> None:
    """Speak once somebody looks, or after a while to whoever listens otherwise."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(VIEWER_WAIT_S):
            async for piece in client.stream(f"/v1/lives/{live_id}/events"):
                if b'"viewers"' in piece:
                    return


def _how_to_go_on(kafka: str, live_id: str) -> Panel:
    return Panel(
        "Whatever is produced on the topic with the live's id as key is spoken:\n\n"
        f'  echo \'{live_id}:{{"text": "Hello"}}\' | \\\n'
        f"    kcat -P -b {kafka} -t {TEXT_TOPIC} -K: -X partitioner=murmur2_random\n"
        f"  dhsched push {live_id} Hello again --kafka {kafka}\n\n"
        "Ctrl-C ends everything.",
        title="speak to it",
        expand=False,
    )


def _has_display() -> bool:
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


@contextlib.contextmanager
def _until_signalled(stopped: asyncio.Event) -> Generator[None]:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    try:
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
