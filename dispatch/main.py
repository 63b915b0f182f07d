"""One Dispatch replica as a process: open, check, serve, stop."""

import asyncio
import contextlib
import random
import secrets
import signal
import socket
from collections.abc import AsyncGenerator, Callable, Generator

import httpx
import structlog
import uvicorn

from dispatch.app import create_app
from dispatch.clock import SystemClock
from dispatch.events_feed import EndReason
from dispatch.logs import configure_logs
from dispatch.metrics import Metrics
from dispatch.readiness import ReadinessProbe
from dispatch.replica import Replica
from dispatch.service import DispatchService
from dispatch.settings import DispatchSettings
from dispatch.whep_proxy import WhepProxy
from ownership.kv import Database, StoreError
from ownership.meta import ensure_meta
from ownership.model import MetaMismatch
from ownership.open import open_database
from schemas.store_values import Meta
from schemas.topics import TEXT_TOPIC
from stream.aiokafka_transport import AiokafkaTransport
from stream.settings import BadKafkaSettings, KafkaSettings
from stream.topics import default_topics
from stream.transport import BrokerAway, TopicRefused, Transport

BACKLOG = 1_024
FAILED_STATUS = 1

_log = structlog.get_logger(__name__)


class StartFailed(Exception):
    """The replica cannot start; the message says what to change."""


class _Server(uvicorn.Server):
    """Leaves signals to us: uvicorn would raise them again once it is done."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


async def run_dispatch(settings: DispatchSettings) -> None:
    """Serves until SIGTERM or SIGINT. A start that fails ends the process with its reason."""
    configure_logs(settings.log_format, settings.log_level)
    try:
        await serve(settings)
    except StartFailed as error:
        raise SystemExit(f"dispatch cannot start: {error}") from None


async def serve(
    settings: DispatchSettings, on_ready: Callable[[int, asyncio.Event], None] | None = None
) -> None:
    """Serves until a signal comes, or the event that `on_ready` gets (with the port) is set.

    Raises StartFailed; and whatever made it impossible to go on.
    """
    stop = asyncio.Event()
    with _listen(settings.host, settings.port) as listener, _signals(stop):
        async with _replica(settings) as replica:
            server = _server(replica)
            port = int(listener.getsockname()[1])
            async with asyncio.TaskGroup() as group:
                loops = group.create_task(replica.service.run(), name="dispatch loops")
                serving = group.create_task(server.serve([listener]), name="http")
                stopped = group.create_task(stop.wait(), name="stop")
                _log.info("dispatch_serves", host=settings.host, port=port)
                if on_ready is not None:
                    on_ready(port, stop)
                await asyncio.wait({serving, stopped}, return_when=asyncio.FIRST_COMPLETED)
                _log.info("dispatch_stops")
                # Long answers first: they would keep the server from ending.
                replica.stopping.set()
                replica.service.feed.end_all(EndReason.STOPPING)
                server.should_exit = True
                await serving
                loops.cancel()
                stopped.cancel()


def _server(replica: Replica) -> _Server:
    settings = replica.settings
    return _Server(
        uvicorn.Config(
            create_app(replica),
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            ws="websockets-sansio",
            ws_max_size=settings.body_bytes_max,
            ws_max_queue=8,
            timeout_graceful_shutdown=max(1, round(settings.shutdown_s)),
            timeout_keep_alive=30,
            backlog=BACKLOG,
        )
    )


@contextlib.contextmanager
def _listen(host: str, port: int) -> Generator[socket.socket]:
    """Bound before anything else is opened, so that a taken port is said at once."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol named: asyncio switches Nagle's algorithm off only for sockets that say TCP,
    # and with it on, an answer of two writes waits 40 ms for the client's delayed acknowledgement.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise StartFailed(
            f"cannot listen on {host}:{port}: {error.strerror or error}. "
            "Choose another --port, or end what uses it."
        ) from error
    with listener:
        yield listener


@contextlib.contextmanager
def _signals(stop: asyncio.Event) -> Generator[None]:
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGTERM, signal.SIGINT)
    try:
        for number in numbers:
            loop.add_signal_handler(number, stop.set)
    except (ValueError, RuntimeError, NotImplementedError):
        yield  # not in the main thread: whoever runs us stops us
        return
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


@contextlib.asynccontextmanager
async def _replica(settings: DispatchSettings) -> AsyncGenerator[Replica]:
    rng = random.Random(secrets.randbits(128))
    async with contextlib.AsyncExitStack() as stack:
        transport = _transport(settings)
        stack.push_async_callback(transport.close)
        partition_count = await _ensure_topics(transport, settings)
        db = await _open_store(settings, rng)
        stack.push_async_callback(db.close)
        await _check_meta(db, partition_count, settings)
        limits = settings.checked_limits()
        clock = SystemClock()
        service = DispatchService(db, transport, clock, rng, limits, partition_count)
        metrics = Metrics(service)
        client = await stack.enter_async_context(
            httpx.AsyncClient(timeout=settings.owner_wait_s, trust_env=False)
        )
        whep = WhepProxy(
            db,
            clock,
            client,
            claim_wait_ms=settings.claim_wait_ms,
            retry_after_s=limits.retry_after_s,
            on_retry=metrics.retry,
        )
        probe = ReadinessProbe(service)
        stack.push_async_callback(probe.close)
        yield Replica(service, settings, metrics, whep, probe)


def _transport(settings: DispatchSettings) -> Transport:
    try:
        return AiokafkaTransport(KafkaSettings(settings.kafka, client_id="dhsched-dispatch"))
    except BadKafkaSettings as error:
        raise StartFailed(f"kafka: {error}") from error


async def _ensure_topics(transport: Transport, settings: DispatchSettings) -> int:
    try:
        await transport.ensure_topics(default_topics(text_partitions=settings.text_partitions))
        return await transport.partition_count(TEXT_TOPIC)
    except BrokerAway as error:
        raise StartFailed(f"no Kafka broker answers at {settings.kafka} ({error})") from error
    except TopicRefused as error:
        raise StartFailed(f"the broker at {settings.kafka} refused a topic: {error}") from error


async def _open_store(settings: DispatchSettings, rng: random.Random) -> Database:
    try:
        return await open_database(settings.store, random.Random(rng.getrandbits(64)))
    except StoreError as error:
        raise StartFailed(f"store: {error}") from error


async def _check_meta(db: Database, partition_count: int, settings: DispatchSettings) -> None:
    try:
        outcome = await ensure_meta(db, Meta(partition_count))
    except StoreError as error:
        raise StartFailed(f"the store at {settings.store} does not answer: {error}") from error
    if isinstance(outcome, MetaMismatch):
        raise StartFailed(
            f"the store at {settings.store} was made for a {TEXT_TOPIC} of "
            f"{outcome.partition_count} partitions (store schema {outcome.schema_version}), and "
            f"the broker's has {partition_count}. Lives would lose their text: use the topic the "
            "store was made for, or another store."
        )
