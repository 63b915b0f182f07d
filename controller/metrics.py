"""What a worker shows to Prometheus, in a registry of its own, read when it is scraped."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from controller.session_states import State
from controller.shell import Worker
from controller.stage_metrics import StageCollector
from gpu_stages.runtime_contract import StageRuntime
from hosting.faults_metric import FaultsCollector
from hosting.vigil import Fault
from rtc_output.egress import LiveEgress
from rtc_output.whep import WhepServer

_COUNTED = {
    "releases": "Releases committed",
    "release_batches": "Transactions that carried them",
    "segments_fed": "Segments let into the stages",
    "feeds_refused": "Segments that found no room in the first ring",
    "refused_stale": "Releases refused because the live has another owner",
    "falsely_refused": "Refusals of a live's rightful owner",
    "cursor_moved": "Releases that did not find the cursor where it was left",
    "store_retries": "Store calls repeated because the store was away",
    "claims": "Generations claimed",
    "claims_refused": "Claims of generations that had ended",
    "lives_auto_created": "Lives that a record of an unknown id opened",
    "moves_out": "Lives handed over",
    "moves_refused": "Hand-overs that the target did not take",
    "interrupts": "Interrupts carried out",
    "records_read": "Records read from the group",
    "records_foreign": "Records read by following partitions of others",
    "records_reread": "Records read again",
    "records_reread_used": "Records read again that a live could use",
    "records_routed": "Records of lives owned here",
    "events_sent": "Events written",
    "events_dropped": "Events that could not be written in time",
    "letters_cut": "Dead letters whose value had to lose its end",
    "letters_lost": "Dead letters that the broker refused for good",
    "incarnations": "Times this process registered",
    "stages_lost": "Stage processes that died",
}


class Metrics:
    """Everything that is known without asking anybody."""

    def __init__(
        self,
        worker: Worker,
        runtime: StageRuntime,
        whep: WhepServer | None,
        faults: Callable[[], Mapping[Fault, str]] = dict,
    ) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(_State(worker, runtime, whep))
        self.registry.register(StageCollector(runtime))
        self.registry.register(FaultsCollector(faults))

    def render(self) -> bytes:
        """The text exposition format."""
        return generate_latest(self.registry)


class _State(Collector):
    def __init__(self, worker: Worker, runtime: StageRuntime, whep: WhepServer | None) -> None:
        self._worker = worker
        self._runtime = runtime
        self._whep = whep

    def collect(self) -> Iterable[Metric]:
        counters = self._worker.counters
        for name, text in _COUNTED.items():
            yield CounterMetricFamily(f"dhsched_worker_{name}", text, getattr(counters, name))
        letters = CounterMetricFamily(
            "dhsched_worker_dead_letters", "Dead letters by reason", labels=["reason"]
        )
        for reason, count in counters.dead_letters.items():
            letters.add_metric([reason], count)
        yield letters
        retries = CounterMetricFamily(
            "dhsched_worker_retries", "What was tried again, by kind", labels=["kind"]
        )
        for kind, count in counters.retries.items():
            retries.add_metric([kind], count)
        yield retries
        yield GaugeMetricFamily(
            "dhsched_worker_reader_amplification",
            "Records fetched per record that a live here could use",
            counters.reader_amplification,
        )
        yield from self._lives()
        yield from self._partitions()
        yield from self._egress()
        yield from self._stages()

    def _lives(self) -> Iterable[Metric]:
        incarnation = self._worker.incarnation
        sessions = () if incarnation is None else tuple(incarnation.lives.sessions.values())
        states = Counter(session.machine.state for session in sessions)
        lives = GaugeMetricFamily("dhsched_worker_lives", "Lives by state", labels=["state"])
        for state in State:
            lives.add_metric([state.value], states[state])
        yield lives
        active = 0 if incarnation is None else len(incarnation.lives.active)
        yield GaugeMetricFamily(
            "dhsched_worker_overshoot_lives",
            "Lives with authority here beyond the capacity",
            max(0, active - self._worker.options.capacity),
        )
        waiting = 0 if incarnation is None else len(incarnation.batcher)
        yield GaugeMetricFamily("dhsched_worker_releases_waiting", "Releases under way", waiting)
        if self._whep is not None:
            viewers = self._whep.viewers()
            yield GaugeMetricFamily("dhsched_worker_viewers", "Viewers connected", viewers)

    def _partitions(self) -> Iterable[Metric]:
        incarnation = self._worker.incarnation
        lag = GaugeMetricFamily(
            "dhsched_worker_unfinished_offsets",
            "Offsets read and not yet released, skipped or dead-lettered, by partition in custody",
            labels=["partition"],
        )
        if incarnation is not None:
            custody = incarnation.consumer.custody
            for partition, book in custody.books.items():
                position = incarnation.consumer.feed_of(partition).position
                behind = max(0, position - custody.low(partition, book))
                lag.add_metric([str(partition)], behind)
        yield lag
        behind_log = GaugeMetricFamily(
            "dhsched_worker_lag_records",
            "From a partition's watermark to its log's end, by partition in custody",
            labels=["partition"],
        )
        for partition, records in self._worker.lag.items():
            behind_log.add_metric([str(partition)], records)
        yield behind_log

    def _egress(self) -> Iterable[Metric]:
        incarnation = self._worker.incarnation
        late = GaugeMetricFamily(
            "dhsched_worker_lateness_seconds",
            "How late ticks were sent: the worst live's percentile since it was bound",
            labels=["quantile"],
        )
        refused = Counter[str]()
        worst = {"0.5": 0, "0.95": 0, "0.99": 0}
        for session in () if incarnation is None else incarnation.lives.sessions.values():
            egress = session.egress
            if not isinstance(egress, LiveEgress):
                continue
            stats = egress.stats()
            summary = stats.lateness
            for quantile, value in zip(
                worst, (summary.p50_us, summary.p95_us, summary.p99_us), strict=True
            ):
                worst[quantile] = max(worst[quantile], value)
            refused.update({reason.value: count for reason, count in stats.refused.items()})
        for quantile, value in worst.items():
            late.add_metric([quantile], value / 1e6)
        yield late
        ticks = GaugeMetricFamily(
            "dhsched_worker_ticks_refused", "Ticks refused by present egresses", labels=["reason"]
        )
        for reason, count in refused.items():
            ticks.add_metric([reason], count)
        yield ticks

    def _stages(self) -> Iterable[Metric]:
        stages = GaugeMetricFamily(
            "dhsched_worker_stages", "Figures of the stages and rings", labels=["name"]
        )
        for name, value in _flat(self._runtime.stats(), ""):
            stages.add_metric([name], value)
        yield stages


def _flat(stats: Mapping[str, object], prefix: str) -> Iterable[tuple[str, float]]:
    for name, value in stats.items():
        if isinstance(value, Mapping):
            inner: Mapping[str, object] = {str(key): value[key] for key in value}
            yield from _flat(inner, f"{prefix}{name}.")
        elif isinstance(value, int | float):
            yield f"{prefix}{name}", float(value)
