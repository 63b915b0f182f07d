"""One Dispatch replica as a process: open, check, serve, stop."""

import asyncio
import contextlib
import random
import secrets
import signal
from collections.abc import AsyncGenerator, Callable, Generator

import httpx
import structlog
import uvicorn

from dispatch.app import create_app
from dispatch.clock import SystemClock
from dispatch.events_feed import EndReason
from dispatch.metrics import Metrics
from dispatch.readiness import ReadinessProbe
from dispatch.replica import Replica
from dispatch.service import DispatchService
from dispatch.settings import DispatchSettings
from dispatch.whep_proxy import WhepProxy
from hosting.connections import CLIENT, join_service, make_transport, open_store
from hosting.logs import configure_logs
from hosting.start import QuietServer, RoleEnded, StartFailed, listen, serve_beside
from hosting.vigil import SurroundingsChanged, Vigil

ROLE = "dispatch"
BACKLOG = 1_024

_log = structlog.get_logger(__name__)


async def run_dispatch(settings: DispatchSettings) -> None:
    """Serves until SIGTERM or SIGINT. A start that fails ends the process with its reason."""
    configure_logs(settings.log_format, settings.log_level)
    try:
        await serve(settings)
    except StartFailed as error:
        raise SystemExit(f"dispatch cannot start: {error}") from None
    except RoleEnded as error:
        raise SystemExit(f"dispatch ends: {error}") from None


async def serve(
    settings: DispatchSettings, on_ready: Callable[[int, asyncio.Event], None] | None = None
) -> None:
    """Serves until a signal comes, or the event that `on_ready` gets (with the port) is set.

    Raises StartFailed, RoleEnded; and whatever else made it impossible to go on.
    """
    stop = asyncio.Event()
    with listen(settings.host, settings.port, BACKLOG) as listener, _signals(stop):
        async with _replica(settings) as (replica, vigil):
            port = int(listener.getsockname()[1])
            _log.info("dispatch_serves", host=settings.host, port=port)
            if on_ready is not None:
                on_ready(port, stop)

            async def stopped() -> None:
                await stop.wait()

            def stopping() -> None:
                _log.info("dispatch_stops")
                # Long answers first: they would keep the server from ending.
                replica.stopping.set()
                replica.service.feed.end_all(EndReason.STOPPING)

            try:
                await serve_beside(
                    _server(replica),
                    listener,
                    [stopped(), replica.service.run(), vigil.run()],
                    server_ended=stop.set,
                    stopping=stopping,
                )
            except SurroundingsChanged as error:
                raise RoleEnded(str(error)) from error


def _server(replica: Replica) -> QuietServer:
    settings = replica.settings
    return QuietServer(
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
async def _replica(settings: DispatchSettings) -> AsyncGenerator[tuple[Replica, Vigil]]:
    rng = random.Random(secrets.randbits(128))
    async with contextlib.AsyncExitStack() as stack:
        clock = SystemClock()
        transport = make_transport(settings.kafka, f"{CLIENT}.{ROLE}")
        stack.push_async_callback(transport.close)
        db = await open_store(settings.store, rng)
        stack.push_async_callback(db.close)
        joined = await join_service(
            transport,
            db,
            kafka=settings.kafka,
            store=settings.store,
            wall_ms=clock.wall_ms(),
            rng=rng,
            text_partitions=settings.text_partitions,
        )
        transport.call_itself(joined.client_id(ROLE))
        limits = settings.checked_limits()
        service = DispatchService(db, transport, clock, rng, limits, joined.partition_count)
        vigil = Vigil(db, transport.inspector(), joined, role=ROLE)
        metrics = Metrics(service, lambda: vigil.faults)
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
        probe = ReadinessProbe(service, lambda: vigil.faults)
        stack.push_async_callback(probe.close)
        yield Replica(service, settings, metrics, whep, probe), vigil
