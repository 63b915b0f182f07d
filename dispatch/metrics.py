"""What a replica counts, in a registry of its own so that several replicas fit into one process."""

from collections.abc import Callable, Iterable, Mapping

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from dispatch.service import DispatchService
from hosting.faults_metric import FaultsCollector
from hosting.vigil import Fault
from schemas.store_values import WorkerState

RECOVERY_S = (0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 10.0, 15.0, 30.0, 60.0, 300.0)
LATENCY_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """Requests are counted where they end; everything else is read when it is scraped."""

    def __init__(
        self, service: DispatchService, faults: Callable[[], Mapping[Fault, str]] = dict
    ) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "dhsched_dispatch_requests",
            "HTTP requests by route and status",
            ("route", "method", "status"),
            registry=self.registry,
        )
        self.request_s = Histogram(
            "dhsched_dispatch_request_seconds",
            "From the request's head to the end of its answer; streams are not in it",
            ("route", "method"),
            buckets=LATENCY_S,
            registry=self.registry,
        )
        self.problems = Counter(
            "dhsched_dispatch_problems",
            "Refusals by problem type",
            ("type",),
            registry=self.registry,
        )
        self.retries = Counter(
            "dhsched_dispatch_retries",
            "What was tried again, by kind",
            ("kind",),
            registry=self.registry,
        )
        self.socket_messages = Counter(
            "dhsched_dispatch_socket_messages",
            "Messages of text sockets by outcome",
            ("outcome",),
            registry=self.registry,
        )
        self.recovery_s = Histogram(
            "dhsched_dispatch_recovery_seconds",
            "From an owner's last beat, as seen here, to the live's next generation",
            buckets=RECOVERY_S,
            registry=self.registry,
        )
        service.recovery.on_recovered = self.recovery_s.observe
        self.registry.register(_ServiceState(service))
        self.registry.register(FaultsCollector(faults))

    def retry(self, kind: str) -> None:
        """Something is tried again."""
        self.retries.labels(kind).inc()

    def render(self) -> bytes:
        """The text exposition format."""
        return generate_latest(self.registry)


class _ServiceState(Collector):
    """Gauges from the last reading of the fleet, counters from the service's own."""

    def __init__(self, service: DispatchService) -> None:
        self._service = service

    def collect(self) -> Iterable[Metric]:
        service = self._service
        counts = service.fleet.counts()
        slots = GaugeMetricFamily(
            "dhsched_slots", "Slots of workers that are not dead, by state", labels=["state"]
        )
        for state in ("capacity", "held", "leaving", "reserved", "free"):
            slots.add_metric([state], float(getattr(counts, state)))
        yield slots
        yield GaugeMetricFamily(
            "dhsched_overshoot_slots",
            "Slots in use beyond their worker's capacity, at the last reading",
            value=service.fleet.overshoot,
        )
        workers = GaugeMetricFamily("dhsched_workers", "Workers by state", labels=["state"])
        for state in WorkerState:
            count = sum(one.value.state is state for one in service.fleet.views)
            workers.add_metric([state.value], float(count))
        yield workers
        lives = GaugeMetricFamily("dhsched_lives", "Lives by state", labels=["state"])
        loads = [one.load for one in service.fleet.views if one.load is not None]
        lives.add_metric(["owned"], float(counts.held))
        lives.add_metric(["speaking"], float(sum(load.speaking for load in loads)))
        lives.add_metric(["orphaned"], float(service.recovery.orphans))
        yield lives
        yield GaugeMetricFamily(
            "dhsched_dispatch_event_streams", "Open event streams", value=service.feed.streams
        )
        yield from self._counters()

    def _counters(self) -> Iterable[Metric]:
        service = self._service
        for name, text, value in (
            (
                "placements_refused",
                "Candidates that the store did not admit",
                service.lives.placements_refused,
            ),
            (
                "creates_without_capacity",
                "Creates answered with 429",
                service.lives.creates_without_capacity,
            ),
            ("workers_marked_dead", "Deaths declared here", service.recovery.marked_dead),
            (
                "lives_recovered",
                "Lives moved past a dead owner here",
                service.recovery.recovered,
            ),
            (
                "overshoots",
                "Readings that showed a worker above capacity",
                service.fleet.overshoots,
            ),
            ("store_away", "Rounds that the store did not answer", service.store_away),
            ("events_dropped", "Own events not written", service.publisher.events_dropped),
            ("events_undecodable", "Events that could not be read", service.feed.undecodable),
        ):
            yield CounterMetricFamily(f"dhsched_dispatch_{name}", text, value=value)
        closed = CounterMetricFamily(
            "dhsched_dispatch_lives_ended", "Lives that reached a limit", labels=["reason"]
        )
        for reason, count in service.sweep.closed.items():
            closed.add_metric([reason], count)
        yield closed
