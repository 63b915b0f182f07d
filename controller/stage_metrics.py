"""The stages' figures for Prometheus: how late, how full, how fast, and what was refused.

Quantiles cover the last 10 to 20 seconds; counters start anew with the process of their stage, as
Prometheus expects of one that was restarted.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gpu_stages.runtime_contract import StageRuntime

Stages = Mapping[str, Mapping[str, float]]

_QUANTILES: Final = (("0.5", "p50"), ("0.95", "p95"), ("1", "max"))
_SPREADS: Final = (
    ("lateness_seconds", "lateness", "_us", "How long messages waited after their batch was due"),
    ("message_seconds", "message", "_us", "Processing time of a batch, by message"),
    ("batch_size", "batch", "", "Messages processed at once"),
    ("queue_length", "queue", "", "Messages in hand when another one came"),
)
_COUNTERS: Final = (
    ("messages", "messages", "Messages processed"),
    ("sent", "sent", "Messages sent on"),
    ("batches", "batches", "Batches processed"),
    ("failed_messages", "messages_failed", "Messages for which the model raised"),
    ("parted_batches", "batches_parted", "Batches tried again in parts"),
    ("out_of_memory", "out_of_memory", "Batches that memory did not hold"),
    ("dropped_by_reset", "dropped_by_reset", "Messages of before a lost stage"),
)
_GAUGES: Final = (
    ("queued", "pending", "Messages in hand now"),
    ("room", "room", "Free slots of the ring downstream"),
    ("batch_limit", "batch_limit", "Messages that may be processed at once, as memory allows"),
)


class StageCollector(Collector):
    """Reads the figures of each stage's last answer when it is scraped."""

    def __init__(self, runtime: StageRuntime) -> None:
        self._runtime = runtime

    def collect(self) -> Iterable[Metric]:
        """See `stage_families`."""
        return stage_families(stages_of(self._runtime.stats()))


def stages_of(stats: Mapping[str, object]) -> Stages:
    """The figures by stage; empty for a runtime without processes."""
    found = stats.get("stages")
    if not isinstance(found, Mapping):
        return {}
    stages: Mapping[str, Mapping[str, float]] = {str(name): found[name] for name in found}
    return stages


def stage_families(stages: Stages) -> Iterable[Metric]:
    """All families, a sample for each stage that told the figure."""
    for name, figure, unit, text in _SPREADS:
        scale = 1e-6 if unit == "_us" else 1.0
        spread = GaugeMetricFamily(f"dhsched_stage_{name}", text, labels=["stage", "quantile"])
        for stage, figures in stages.items():
            for quantile, which in _QUANTILES:
                value = figures.get(f"{figure}_{which}{unit}")
                if value is not None:
                    spread.add_metric([stage, quantile], value * scale)
        yield spread
    for name, figure, text in _COUNTERS:
        counter = CounterMetricFamily(f"dhsched_stage_{name}", text, labels=["stage"])
        for stage, figures in stages.items():
            counter.add_metric([stage], figures.get(figure, 0.0))
        yield counter
    for name, figure, text in _GAUGES:
        gauge = GaugeMetricFamily(f"dhsched_stage_{name}", text, labels=["stage"])
        for stage, figures in stages.items():
            if figure in figures:
                gauge.add_metric([stage], figures[figure])
        yield gauge
    yield from _whole(stages)


def _whole(stages: Stages) -> Iterable[Metric]:
    busy = CounterMetricFamily(
        "dhsched_stage_busy_seconds", "Time in the model, ticks included", labels=["stage"]
    )
    refused = CounterMetricFamily(
        "dhsched_stage_refused", "Messages without authority", labels=["stage", "reason"]
    )
    restarts = CounterMetricFamily(
        "dhsched_stage_restarts", "Times that the process was started again", labels=["stage"]
    )
    for stage, figures in stages.items():
        busy_us = figures.get("process_us", 0.0) + figures.get("tick_us", 0.0)
        busy.add_metric([stage], busy_us / 1e6)
        for reason in ("binding", "epoch"):
            refused.add_metric([stage, reason], figures.get(f"refused_{reason}", 0.0))
        restarts.add_metric([stage], figures.get("restarts", 0.0))
    yield busy
    yield refused
    yield restarts
