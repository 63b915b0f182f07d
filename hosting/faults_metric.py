"""What the vigil found, as a metric that every role shows."""

from collections.abc import Callable, Iterable, Mapping

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from hosting.vigil import Fault


class FaultsCollector(Collector):
    """1 for what is wrong around the process, 0 for what is not."""

    def __init__(self, faults: Callable[[], Mapping[Fault, str]]) -> None:
        self._faults = faults

    def collect(self) -> Iterable[Metric]:
        found = self._faults()
        family = GaugeMetricFamily(
            "dhsched_surroundings_faults",
            "What is wrong with the store, the topic or the group around this process",
            labels=["fault"],
        )
        for fault in Fault:
            family.add_metric([fault.value], float(fault in found))
        yield family
