"""One worker as a process: open, check, start the stages, serve, drain."""

import asyncio
import contextlib
import json
import os
import random
import secrets
import signal
import socket
import sys
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Mapping,
)
from dataclasses import dataclass, replace
from importlib.machinery import EXTENSION_SUFFIXES
from typing import Any

import structlog
import uvicorn

from controller import session_machine
from controller.clock import SystemClock
from controller.http import create_app
from controller.lag import watch_lag
from controller.media import PacedMedia
from controller.node_name import NodeTaken, give_way, refuse_taken_node
from controller.settings import WorkerSettings
from controller.shell import Worker, WorkerOptions, WorkerWorld
from gpu_stages.config import BadStagesConfig, load_stages_config
from gpu_stages.runtime import PipelineRuntime, StageFailedToStart
from hosting.collector import calm_collector
from hosting.connections import (
    CLIENT,
    Service,
    join_group,
    join_service,
    make_transport,
    open_store,
)
from hosting.logs import configure_logs
from hosting.start import QuietServer, RoleEnded, StartFailed, listen, serve_beside
from hosting.vigil import SurroundingsChanged, Vigil
from ownership.custody import watermark
from ownership.kv import Database, StoreError
from rtc_output.whep import WhepServer, WhepSettings
from schemas.topics import TEXT_TOPIC
from stream.aiokafka_transport import AiokafkaTransport
from stream.transport import BrokerAway, Transport

ROLE = "worker"
BACKLOG = 256
HTTP_STOP_S = 2

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Parts:
    worker: Worker
    runtime: PipelineRuntime
    whep: WhepServer
    vigil: Vigil
    lag: Callable[[], Coroutine[Any, Any, None]]


async def run_worker(settings: WorkerSettings) -> None:
    """Serves until SIGTERM or SIGINT, then drains; a second signal ends the process at once.

    SIGUSR1 writes the state of every live to standard error. A start that fails ends the process
    with its reason.
    """
    configure_logs(settings.log_format, settings.log_level)
    calm_collector()
    try:
        await serve(settings)
    except StartFailed as error:
        raise SystemExit(f"worker cannot start: {error}") from None
    except RoleEnded as error:
        raise SystemExit(f"worker ends: {error}") from None


async def serve(
    settings: WorkerSettings, on_ready: Callable[[int, Worker], None] | None = None
) -> None:
    """Serves until a signal comes or `Worker.stop` is called. `on_ready` gets port and worker.

    Raises StartFailed, RoleEnded; and whatever else made it impossible to go on.
    """
    with listen(settings.host, settings.port, BACKLOG) as listener:
        port = int(listener.getsockname()[1])
        async with _open(settings, port) as parts:
            server = QuietServer(
                uvicorn.Config(
                    create_app(parts.worker, parts.runtime, parts.whep, lambda: parts.vigil.faults),
                    lifespan="off",
                    log_config=None,
                    access_log=False,
                    server_header=False,
                    timeout_graceful_shutdown=HTTP_STOP_S,
                    backlog=BACKLOG,
                )
            )
            with _signals(parts.worker):
                _log.info("worker_serves", port=port, core=_core())
                if on_ready is not None:
                    on_ready(port, parts.worker)
                try:
                    await serve_beside(
                        server,
                        listener,
                        [parts.worker.run(), parts.vigil.run(), parts.lag()],
                        server_ended=parts.worker.stop,
                    )
                except StageFailedToStart as error:
                    raise StartFailed(str(error)) from error
                except (NodeTaken, SurroundingsChanged) as error:
                    raise RoleEnded(str(error)) from error


def _core() -> str:
    """Whether every record passes `compiled` modules, as in an image, or their `python` source."""
    compiled = str(session_machine.__file__).endswith(tuple(EXTENSION_SUFFIXES))
    return "compiled" if compiled else "python"


@contextlib.contextmanager
def _signals(worker: Worker) -> Generator[None]:
    loop = asyncio.get_running_loop()

    def stop(number: signal.Signals) -> None:
        if worker.stopping:
            os._exit(128 + number)
        _log.info("worker_drains", signal=number.name)
        worker.stop()

    def dump() -> None:
        print(json.dumps(worker.dump(), indent=1, default=str), file=sys.stderr, flush=True)

    numbers = (signal.SIGTERM, signal.SIGINT)
    try:
        for number in numbers:
            loop.add_signal_handler(number, stop, number)
        loop.add_signal_handler(signal.SIGUSR1, dump)
    except (ValueError, RuntimeError, NotImplementedError):
        yield  # not in the main thread: whoever runs us stops us
        return
    try:
        yield
    finally:
        for number in (*numbers, signal.SIGUSR1):
            loop.remove_signal_handler(number)


@contextlib.asynccontextmanager
async def _open(settings: WorkerSettings, port: int) -> AsyncGenerator[_Parts]:
    """Everything outside, checked, and closed again in the end."""
    runtime = _runtime(settings)
    rng = random.Random(secrets.randbits(128))
    clock = SystemClock()
    async with contextlib.AsyncExitStack() as stack:
        transport = make_transport(settings.kafka, f"{CLIENT}.{ROLE}")
        stack.push_async_callback(transport.close)
        db = await open_store(settings.store, rng)
        stack.push_async_callback(db.close)
        service = await _join(db, transport, settings, clock, rng)
        limits = settings.checked_limits()
        await refuse_taken_node(db, settings.node, limits.beat_ms)
        vigil = Vigil(db, transport.inspector(), service, role=ROLE, group=settings.group)
        whep = WhepServer(
            WhepSettings(
                viewers_max=settings.viewers_max,
                viewers_per_live_max=settings.viewers_per_live_max,
                host_addresses=settings.media_hosts,
            )
        )
        stack.push_async_callback(whep.close)
        options = WorkerOptions(
            node=settings.node,
            capacity=settings.capacity,
            url=settings.url or _url(settings.host, port),
            group=settings.group,
            confluent_ids=settings.confluent_ids,
            auto_create=settings.auto_create(),
        )
        world = WorkerWorld(db, transport, runtime, PacedMedia(clock), clock, rng)

        async def may_begin_anew(worker_id: str) -> None:
            await vigil.look()
            await give_way(db, settings.node, worker_id)

        worker = Worker(options, world, limits, may_begin_anew)

        def log_ends(partitions: Iterable[int]) -> Awaitable[Mapping[int, int]]:
            return transport.log_ends(TEXT_TOPIC, partitions)

        yield _Parts(worker, runtime, whep, vigil, lambda: watch_lag(worker, log_ends))


async def _join(
    db: Database,
    transport: AiokafkaTransport,
    settings: WorkerSettings,
    clock: SystemClock,
    rng: random.Random,
) -> Service:
    """The service whose topics and store these are, checked."""
    kafka, store = settings.kafka, settings.store
    service = await join_service(
        transport, db, kafka=kafka, store=store, wall_ms=clock.wall_ms(), rng=rng
    )
    await join_group(transport, db, settings.group, kafka=kafka, store=store)
    transport.call_itself(service.client_id(ROLE, settings.node))
    await _check_logs(db, transport, service.partition_count, settings)
    return service


def _url(host: str, port: int) -> str:
    """How others reach us. An address that means every interface means nothing to them."""
    if host in ("0.0.0.0", "::"):
        host = socket.gethostname()
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _runtime(settings: WorkerSettings) -> PipelineRuntime:
    try:
        config = load_stages_config(settings.stages)
    except BadStagesConfig as error:
        raise StartFailed(f"stages: {error}") from error
    config = replace(config, live_slots=settings.capacity)

    def progress(stage: str, state: str, seconds: float) -> None:
        _log.info("stage", stage=stage, state=str(state), seconds=round(seconds, 1))

    return PipelineRuntime(config, device=settings.device, progress=progress)


async def _check_logs(
    db: Database, transport: Transport, partitions: int, settings: WorkerSettings
) -> None:
    """A store that was used with another broker's topic knows of offsets that are not there."""
    try:
        reader = await transport.range_reader(TEXT_TOPIC)
        for partition in range(partitions):
            _, log_end = await reader.log_range(partition)
            finished = await watermark(db, partition)
            if finished > log_end:
                raise StartFailed(
                    f"the store at {settings.store} has finished {finished} records of partition "
                    f"{partition} of {TEXT_TOPIC}, and the broker at {settings.kafka} holds only "
                    f"{log_end}: they do not belong together (an embedded broker forgets "
                    "everything when it ends). Use the broker of this store, or a new store."
                )
        await reader.close()
    except BrokerAway as error:
        raise StartFailed(f"no Kafka broker answers at {settings.kafka} ({error})") from error
    except StoreError as error:
        raise StartFailed(f"the store at {settings.store} does not answer: {error}") from error
