"""The command `dhsched`.

Every command has `--json`; exit status 0 only on success, 2 for wrong usage.
"""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeVar

import structlog
from cyclopts import App, CycloptsError, Parameter

from dhsched.command_line import USAGE_STATUS, DispatchUrl, Json, Kafka, Store, run
from dhsched.offline.capture_commands import capture
from dhsched.offline.replay_commands import replay
from dhsched.output import CommandFailed, Output, fail
from dhsched.processes import PARENT_ENV
from gpu_stages.lifeline import follow_parent

if TYPE_CHECKING:
    from hosting.settings import RoleSettings

Role = TypeVar("Role", bound="RoleSettings")

app = App(
    name="dhsched",
    help="Real-time avatars: text on Kafka becomes speech, face and video, with fenced ownership.",
)

DEFAULT_DISPATCH: Final = "http://127.0.0.1:8080"


@app.command
def demo(
    *,
    text: str | None = None,
    record: Path | None = None,
    workers: Annotated[int, Parameter(env_var="DHSCHED_WORKERS")] = 1,
    kafka: Kafka = "",
    store: Store = "",
    port: Annotated[int, Parameter(env_var="DHSCHED_PORT")] = 8080,
    look: str | None = None,
    browser: bool = True,
    json: Json = False,
) -> None:
    """Run everything on this machine and speak.

    Parameters
    ----------
    text
        File to speak instead of the bundled script; `-` reads standard input.
    record
        Write an MP4 and end when everything is spoken. No browser is opened.
    workers
        Number of workers.
    port
        Port of Dispatch and the viewer page, on 127.0.0.1.
    look
        Look of the avatar.
    browser
        Open the viewer page in a browser.
    """
    from dhsched.demo import DemoOptions, run_demo
    from dhsched.one_machine import OneMachineSettings

    machine = OneMachineSettings(kafka=kafka, store=store, port=port, workers=workers)
    options = DemoOptions(text, record, machine, look, browser and record is None and not json)
    run(run_demo(options, Output.make(json)), json)


@app.command
def dispatch(
    *,
    kafka: Kafka = "",
    store: Store = "",
    host: Annotated[str | None, Parameter(env_var="DHSCHED_HOST")] = None,
    port: Annotated[int | None, Parameter(env_var="DHSCHED_PORT")] = None,
    config: Annotated[Path | None, Parameter(env_var="DHSCHED_CONFIG")] = None,
    json: Json = False,
) -> None:
    """Run a Dispatch replica.

    Parameters
    ----------
    host
        Address to listen on.
    port
        Port to listen on.
    config
        TOML file with settings; flags and DHSCHED_* environment go before it.
    """
    from dispatch.main import run_dispatch
    from dispatch.settings import DispatchSettings

    flags = {"kafka": kafka or None, "store": store or None, "host": host, "port": port}
    _serve(run_dispatch(_settings(DispatchSettings, flags, config, json)), json)


@app.command
def worker(
    *,
    node: Annotated[str | None, Parameter(env_var="DHSCHED_NODE")] = None,
    capacity: Annotated[int | None, Parameter(env_var="DHSCHED_CAPACITY")] = None,
    kafka: Kafka = "",
    store: Store = "",
    device: Annotated[str | None, Parameter(env_var="DHSCHED_DEVICE")] = None,
    stages: Annotated[Path | None, Parameter(env_var="DHSCHED_STAGES")] = None,
    unknown_lives: Annotated[
        Literal["reject", "create"] | None, Parameter(env_var="DHSCHED_UNKNOWN_LIVES")
    ] = None,
    host: Annotated[str | None, Parameter(env_var="DHSCHED_HOST")] = None,
    port: Annotated[int | None, Parameter(env_var="DHSCHED_PORT")] = None,
    config: Annotated[Path | None, Parameter(env_var="DHSCHED_CONFIG")] = None,
    json: Json = False,
) -> None:
    """Run a worker: one Infer-Controller and its stage processes.

    Parameters
    ----------
    node
        Stable name of this place; a worker that starts on it supersedes the one before.
    capacity
        Lives it holds at most.
    device
        cpu or cuda:N.
    stages
        TOML file naming the stages' classes.
    unknown_lives
        What becomes of text for an id that never lived: dead letters (reject), or a live (create).
    host
        Address its HTTP interface listens on.
    port
        Port of its HTTP interface, 0 for any free one.
    config
        TOML file with settings; flags and DHSCHED_* environment go before it.
    """
    from controller.main import run_worker
    from controller.settings import WorkerSettings

    flags = {
        "kafka": kafka or None,
        "store": store or None,
        "node": node,
        "capacity": capacity,
        "device": device,
        "stages": stages,
        "unknown_lives": unknown_lives,
        "host": host,
        "port": port,
    }
    _serve(run_worker(_settings(WorkerSettings, flags, config, json)), json)


@app.command
def push(
    live: str,
    *text: str,
    kafka: Kafka = "",
    kind: Literal["text", "interrupt", "close", "end_turn"] = "text",
    json: Json = False,
) -> None:
    """Produce to the text topic: what follows the live's id is spoken.

    Parameters
    ----------
    live
        The live's id.
    text
        Words to speak; `-` reads standard input.
    kind
        Kind of record.
    """
    from dhsched.commands import push_text

    run(push_text(live, " ".join(text), kind, kafka, Output.make(json)), json)


@app.command
def lives(*, dispatch: DispatchUrl = DEFAULT_DISPATCH, json: Json = False) -> None:
    """List the lives with their generations."""
    from dhsched.commands import list_lives

    run(list_lives(dispatch, Output.make(json)), json)


@app.command
def workers(*, dispatch: DispatchUrl = DEFAULT_DISPATCH, json: Json = False) -> None:
    """List the workers with their slots."""
    from dhsched.commands import list_workers

    run(list_workers(dispatch, Output.make(json)), json)


@app.command
def story(live: str, *, kafka: Kafka = "", json: Json = False) -> None:
    """Print a live's ownership timeline from the events topic.

    Parameters
    ----------
    live
        The live's id.
    """
    from dhsched.story import tell_story

    run(tell_story(live, kafka, Output.make(json)), json)


@app.command
def move(
    live: str,
    *,
    to: str | None = None,
    dispatch: DispatchUrl = DEFAULT_DISPATCH,
    json: Json = False,
) -> None:
    """Move a live to another worker.

    Parameters
    ----------
    live
        The live's id.
    to
        The worker to move it to; without it, the best one.
    """
    from dhsched.commands import move_live

    run(move_live(live, to, dispatch, Output.make(json)), json)


@app.command
def drain(worker: str, *, dispatch: DispatchUrl = DEFAULT_DISPATCH, json: Json = False) -> None:
    """Move every live away from a worker.

    Parameters
    ----------
    worker
        The worker's id.
    """
    from dhsched.commands import drain_worker

    run(drain_worker(worker, dispatch, Output.make(json)), json)


@app.command
def close(live: str, *, dispatch: DispatchUrl = DEFAULT_DISPATCH, json: Json = False) -> None:
    """Close a live at once.

    Parameters
    ----------
    live
        The live's id.
    """
    from dhsched.commands import close_live

    run(close_live(live, dispatch, Output.make(json)), json)


app.command(capture)
app.command(replay)


def _settings(
    role: "type[Role]", flags: dict[str, Any], config: Path | None, as_json: bool
) -> "Role":
    """The role's settings; wrong ones are wrong usage."""
    from hosting.settings import BadSettings

    try:
        return role.load(flags, config)
    except BadSettings as error:
        fail(CommandFailed(str(error), USAGE_STATUS), as_json)


def _serve(role: Coroutine[Any, Any, None], as_json: bool) -> None:
    """Run a role of the system until it is told to end."""
    parent = os.environ.get(PARENT_ENV)
    if parent and not follow_parent(int(parent), signal.SIGTERM):
        sys.exit(1)
    try:
        asyncio.run(role)
    except CommandFailed as error:
        fail(error, as_json)
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)


def main() -> None:
    """Entry point: usage errors leave with 2."""
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    try:
        app(exit_on_error=False, print_error=True)
    except CycloptsError:
        sys.exit(USAGE_STATUS)
