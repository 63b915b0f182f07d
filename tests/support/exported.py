"""The metrics that the roles export, asked of the roles' own registries."""

from random import Random
from types import SimpleNamespace
from typing import Any

from prometheus_client import CollectorRegistry

from controller.clock import SystemClock
from controller.media import PacedMedia
from controller.metrics import Metrics as WorkerMetrics
from controller.shell import Worker, WorkerOptions, WorkerWorld
from dispatch.clock import SystemClock as DispatchClock
from dispatch.limits import Limits
from dispatch.metrics import Metrics as DispatchMetrics
from dispatch.service import DispatchService
from gpu_stages.stub import StubRuntime
from ownership.memory import MemoryDatabase
from rtc_output.whep import WhepServer
from stream.memory import MemoryBroker, MemoryTransport


def exported() -> dict[str, dict[str, str]]:
    """By role, the type of each family by the name that Prometheus stores it under."""
    return {"dispatch": _families(_dispatch()), "worker": _families(_worker())}


def series() -> set[str]:
    """Every name that a query may ask for, the parts of histograms included."""
    names: set[str] = set()
    for families in exported().values():
        for name, kind in families.items():
            names.add(name)
            if kind == "histogram":
                names |= {f"{name}_bucket", f"{name}_sum", f"{name}_count"}
    return names


def _families(registry: CollectorRegistry) -> dict[str, str]:
    return {
        f"{family.name}_total" if family.type == "counter" else family.name: family.type
        for family in registry.collect()
    }


def _dispatch() -> CollectorRegistry:
    transport: Any = MemoryTransport(MemoryBroker())
    service = DispatchService(
        MemoryDatabase(), transport, DispatchClock(), Random(1), Limits(), partition_count=1
    )
    return DispatchMetrics(service).registry


def _worker() -> CollectorRegistry:
    clock, runtime = SystemClock(), StubRuntime()
    world = WorkerWorld(
        MemoryDatabase(),
        MemoryTransport(MemoryBroker()),
        runtime,
        PacedMedia(clock),
        clock,
        Random(1),
    )
    worker = Worker(WorkerOptions("one", 4, "http://one"), world)
    whep: WhepServer | Any = SimpleNamespace(viewers=lambda: 0)
    return WorkerMetrics(worker, runtime, whep).registry
