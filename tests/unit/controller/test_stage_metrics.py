"""The stages' figures as Prometheus reads them."""

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from controller.stage_metrics import StageCollector, stages_of
from gpu_stages.stub import StubRuntime

FIGURES = {
    "lateness_p50_us": 150.0,
    "lateness_p95_us": 2_000.0,
    "lateness_max_us": 9_000.0,
    "queue_p50": 1.0,
    "queue_p95": 3.0,
    "queue_max": 4.0,
    "batch_p50": 2.0,
    "batch_p95": 8.0,
    "batch_max": 8.0,
    "message_p50_us": 3_000.0,
    "message_p95_us": 4_000.0,
    "message_max_us": 5_000.0,
    "messages": 100.0,
    "sent": 99.0,
    "process_us": 1_500_000.0,
    "tick_us": 500_000.0,
    "refused_binding": 3.0,
    "refused_epoch": 2.0,
    "messages_failed": 1.0,
    "pending": 4.0,
    "room": 7.0,
    "batch_limit": 8.0,
    "restarts": 6.0,
}


class Runtime(StubRuntime):
    def stats(self) -> dict[str, object]:
        return {"bound": 1, "stages": {"render": FIGURES, "speech": {"restarts": 0.0}}}


def shown(runtime: StubRuntime) -> dict[tuple[str, ...], float]:
    registry = CollectorRegistry()
    registry.register(StageCollector(runtime))
    families = text_string_to_metric_families(generate_latest(registry).decode())
    return {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in families
        for sample in family.samples
    }


def test_every_figure_of_a_stage_is_shown() -> None:
    got = shown(Runtime())
    expected = {
        ("dhsched_stage_lateness_seconds", "0.95", "render"): 0.002,
        ("dhsched_stage_lateness_seconds", "1", "render"): 0.009,
        ("dhsched_stage_queue_length", "0.95", "render"): 3,
        ("dhsched_stage_queued", "render"): 4,
        ("dhsched_stage_batch_size", "0.5", "render"): 2,
        ("dhsched_stage_message_seconds", "0.5", "render"): 0.003,
        ("dhsched_stage_busy_seconds_total", "render"): 2,
        ("dhsched_stage_messages_total", "render"): 100,
        ("dhsched_stage_refused_total", "binding", "render"): 3,
        ("dhsched_stage_refused_total", "epoch", "render"): 2,
        ("dhsched_stage_failed_messages_total", "render"): 1,
        ("dhsched_stage_restarts_total", "render"): 6,
        ("dhsched_stage_restarts_total", "speech"): 0,
        ("dhsched_stage_batch_limit", "render"): 8,
    }
    assert {key: got.get(key) for key in expected} == expected


def test_a_stage_that_has_not_answered_yet_shows_no_made_up_quantiles() -> None:
    assert ("dhsched_stage_lateness_seconds", "0.95", "speech") not in shown(Runtime())


def test_a_runtime_without_processes_shows_nothing() -> None:
    assert stages_of(StubRuntime().stats()) == {}
    assert shown(StubRuntime()) == {}
