"""Rules and dashboard ask for what the roles export, and promtool takes the rules."""

import json
import re
import shutil
import subprocess

import pytest

from tests.support.demands import demanded
from tests.support.exported import exported, series
from tests.unit.deploy.files import DEPLOY, documents, queries

PROMETHEUS = DEPLOY / "prometheus"
DASHBOARD = DEPLOY / "grafana" / "dashboards" / "dhsched.json"
METRIC = re.compile(r"\bdhsched_\w+")
RECORDED = re.compile(r"\bdhsched:\w+:\w+")


def recorded() -> set[str]:
    (rules,) = documents(PROMETHEUS / "rules" / "recording.yml")
    return {rule["record"] for group in rules["groups"] for rule in group["rules"]}


@pytest.mark.parametrize(("where", "query"), list(queries()), ids=lambda text: text[:50])
def test_every_query_asks_for_what_is_there(where: str, query: str) -> None:
    asked = set(METRIC.findall(query))
    assert asked <= series(), where
    assert set(RECORDED.findall(query)) <= recorded(), where
    assert asked or RECORDED.search(query) or "up{" in query, f"{where} asks for nothing of ours"


def test_alerts_stand_for_every_invariant_that_is_counted() -> None:
    (rules,) = documents(PROMETHEUS / "rules" / "alerts.yml")
    groups = {group["name"]: group["rules"] for group in rules["groups"]}
    asked = {name for rule in groups["dhsched.invariants"] for name in METRIC.findall(rule["expr"])}
    assert asked == {
        "dhsched_overshoot_slots",
        "dhsched_worker_overshoot_lives",
        "dhsched_worker_falsely_refused_total",
        "dhsched_worker_letters_lost_total",
        "dhsched_surroundings_faults",
    }
    for rules_of in groups.values():
        for rule in rules_of:
            assert rule["labels"]["severity"] in ("page", "ticket")
            assert rule["annotations"]["summary"]
            assert rule["annotations"]["description"]


def test_what_operators_are_promised_is_on_the_dashboard() -> None:
    shown = " ".join(query for where, query in queries() if where.startswith(DASHBOARD.name))
    for name in (
        "dhsched:lives:max",
        "dhsched:slots:max",
        "dhsched:releases:rate1m",
        "refused_stale",
        "falsely_refused",
        "dhsched:overshoot:max",
        "dhsched:recovery_seconds:p99",
        "dhsched:lag_records",
        "dhsched:reader_amplification:avg",
        "dhsched:dead_letters:rate5m",
        "dhsched:retries:rate5m",
    ):
        assert name in shown


def test_the_dashboards_panels_have_places_of_their_own() -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells


def test_the_dashboard_asks_the_source_that_is_provisioned() -> None:
    (source,) = documents(DEPLOY / "grafana" / "provisioning" / "datasources" / "prometheus.yml")
    uids = {one["uid"] for one in source["datasources"]}
    asked = set(re.findall(r'"type": "prometheus",\s*"uid": "(\w+)"', DASHBOARD.read_text()))
    assert asked == uids


def test_promtool_takes_the_rules_and_their_tests() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        if demanded("PROMTOOL"):
            pytest.fail("DHSCHED_REQUIRE_PROMTOOL is set: apt install prometheus")
        pytest.skip("no promtool: apt install prometheus")
    rules = sorted(str(path) for path in (PROMETHEUS / "rules").glob("*.yml"))
    for command in (
        ["check", "config", str(PROMETHEUS / "prometheus.yml")],
        ["check", "rules", *rules],
        ["test", "rules", str(PROMETHEUS / "rules_test.yml")],
    ):
        done = subprocess.run([promtool, *command], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_rules_and_roles_agree_on_types() -> None:
    """`rate` and `increase` are for counters, and counters are never shown bare over time."""
    kinds = {name: kind for families in exported().values() for name, kind in families.items()}
    for where, query in queries():
        for name in re.findall(r"(?:rate|increase)\(\s*(dhsched_\w+)", query):
            assert kinds.get(name) == "counter" or name.endswith("_bucket"), (where, name)
