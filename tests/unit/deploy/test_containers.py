"""The compose file, the Dockerfile and the manifests say what our own programs understand."""

import os
import re
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

from controller.limits import Limits
from dispatch.settings import DispatchSettings
from tests.unit.deploy.files import (
    DEPLOY,
    Document,
    compose,
    documents,
    flag,
    kubernetes,
    parses,
    role_of,
    routes,
    settings_named,
    yaml_files,
)

DOCKERFILE = (DEPLOY / "Dockerfile").read_text()
ROLES = ("dispatch", "worker")


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in tuple(os.environ):
        if name.startswith("DHSCHED_"):
            monkeypatch.delenv(name)


def services(role: str | None = None) -> dict[str, Document]:
    """Those of ours, or of one role."""
    found = {
        name: one
        for name, one in compose()["services"].items()
        if str(one["image"]).startswith("dhsched")
    }
    return {n: one for n, one in found.items() if role is None or role_of(one["command"]) == role}


# -- all files


@pytest.mark.parametrize("path", yaml_files(), ids=lambda path: path.name)
def test_every_file_is_yaml_without_a_key_twice(path: Path) -> None:
    assert documents(path)


@pytest.mark.parametrize("path", sorted(DEPLOY.rglob("*.sh")), ids=lambda path: path.name)
def test_every_script_parses(path: Path) -> None:
    shell = "bash" if "bash" in path.read_text().splitlines()[0] else "sh"
    subprocess.run([shell, "-n", str(path)], check=True)


# -- compose


def test_the_layout() -> None:
    assert len(services("dispatch")) == 2
    assert len(services("worker")) == 3
    assert {"kafka", "foundationdb", "fdb-configure", "balancer", "prometheus", "grafana"} <= set(
        compose()["services"]
    )


@pytest.mark.parametrize("name", sorted(services()))
def test_commands_and_environment_are_ours(name: str) -> None:
    service = services()[name]
    parses(service["command"])
    role = role_of(service["command"])
    if role in ROLES:
        settings_named(service["environment"], role)
        assert service["build"]["target"] == role
        assert f"AS {role}\n" in DOCKERFILE


def test_names_that_services_refer_to_exist() -> None:
    document = compose()
    known = document["services"]
    volumes, networks = set(document["volumes"]), set(document["networks"])
    for name, service in known.items():
        after = service.get("depends_on", ())
        assert set(after) <= set(known), name
        if isinstance(after, dict):
            for other, how in after.items():
                if how["condition"] == "service_healthy":
                    assert "healthcheck" in known[other], f"{name} waits for the health of {other}"
        assert set(service["networks"]) <= networks
        for mount in service.get("volumes", ()):
            source = mount.split(":")[0]
            if source.startswith("."):
                assert (DEPLOY / source).exists(), mount
            else:
                assert source in volumes, mount
        build = service.get("build")
        if build:
            assert (DEPLOY / build["context"] / build["dockerfile"]).is_file()


def test_images_are_pinned() -> None:
    for name, service in compose()["services"].items():
        if "build" not in service:
            assert re.search(r":v?\d+\.\d+", service["image"]), name
    for image in re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE):
        assert image == "base" or re.search(r":.*\$\{\w+_VERSION\}", image), image
    (fdb,) = re.findall(r"^ARG FDB_VERSION=(\S+)", DOCKERFILE, re.MULTILINE)
    assert compose()["services"]["foundationdb"]["image"].endswith(f":{fdb}")


def test_images_hold_the_compiled_core() -> None:
    (install,) = re.findall(r"^RUN (.* pip install .* \.)$", DOCKERFILE, re.MULTILINE)
    assert install.startswith("DHSCHED_COMPILE=1 ")
    compiler = DOCKERFILE.index("gcc libc6-dev")
    assert compiler < DOCKERFILE.index(install) < DOCKERFILE.index("AS base"), "not in the image"


def test_workers_have_names_of_their_own_and_urls_that_reach_them() -> None:
    found = services("worker")
    nodes = [one["environment"]["DHSCHED_NODE"] for one in found.values()]
    assert len(set(nodes)) == len(nodes)
    for name, one in found.items():
        port = flag(one["command"], "--port")
        assert one["environment"]["DHSCHED_URL"] == f"http://{name}:{port}"


def test_a_drain_has_the_time_that_it_may_take() -> None:
    needed_s = (Limits().drain_ms + 2 * Limits().stop_ms) / 1000
    for one in services("worker").values():
        assert float(one["stop_grace_period"].removesuffix("s")) > needed_s


def test_the_balancer_and_prometheus_know_every_replica() -> None:
    targets = {f"{name}:{flag(one['command'], '--port')}" for name, one in services().items()}
    nginx = (DEPLOY / "compose" / "nginx.conf").read_text()
    upstream = set(re.findall(r"server (\S+:\d+) ", nginx))
    assert upstream == {one for one in targets if one.startswith("dispatch")}
    assert nginx.count("{") == nginx.count("}")
    (prometheus,) = documents(DEPLOY / "prometheus" / "prometheus.yml")
    scraped = {
        target: job
        for job in prometheus["scrape_configs"]
        for group in job["static_configs"]
        for target in group["targets"]
    }
    assert set(scraped) == {one for one in targets if not one.startswith("cli")}
    for target, job in scraped.items():
        assert target.startswith(job["job_name"])
        assert job["metrics_path"] in routes(job["job_name"])


# -- the image


@pytest.mark.parametrize("role", ROLES)
def test_the_images_health_check_is_a_route(role: str) -> None:
    stage = DOCKERFILE.split(f"AS {role}\n")[1].split("\nFROM ")[0]
    (port, path) = re.findall(r"http://127\.0\.0\.1:(\d+)(/\w+)", stage)[0]
    assert path in routes(role)
    assert f"EXPOSE {port}\n" in stage
    settings_named(dict(re.findall(r"(DHSCHED_\w+)=(\S+)", stage)), role)
    parses([role])


def test_the_image_is_built_of_what_is_locked() -> None:
    assert "--require-hashes -r requirements/run.lock" in DOCKERFILE
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE)
    for name in (name for line in copied for name in line.split()):
        assert (DEPLOY.parent / name).exists(), name
    ids = {int(one) for one in re.findall(r"(?:--uid|^USER) (\d+)", DOCKERFILE, re.MULTILINE)}
    script = (DEPLOY / "compose" / "fdb-configure.sh").read_text()
    assert ids == {int(re.findall(r"^user=(\d+)", script, re.MULTILINE)[0])}


def test_scripts_may_be_run() -> None:
    assert (DEPLOY / "run-local.sh").stat().st_mode & stat.S_IXUSR


# -- kubernetes


def workloads() -> dict[str, Document]:
    kinds = ("Deployment", "StatefulSet")
    return {one["metadata"]["name"]: one for one in kubernetes() if one["kind"] in kinds}


def pod(name: str) -> dict[str, Any]:
    return dict(workloads()[name]["spec"]["template"]["spec"])


def test_the_kustomization_names_every_file() -> None:
    (found,) = documents(DEPLOY / "kubernetes" / "kustomization.yaml")
    files = {path.name for path in (DEPLOY / "kubernetes").glob("*.yaml")}
    assert set(found["resources"]) == files - {"kustomization.yaml"}
    assert set(workloads()) == set(ROLES)


@pytest.mark.parametrize("role", ROLES)
def test_manifests_start_our_commands_with_our_settings(role: str) -> None:
    (container,) = pod(role)["containers"]
    parses(container["args"])
    assert role_of(container["args"]) == role
    maps = {one["metadata"]["name"]: one for one in kubernetes() if one["kind"] == "ConfigMap"}
    environment: dict[str, str] = {}
    for source in container["envFrom"]:
        environment |= maps[source["configMapRef"]["name"]]["data"]
    for one in container.get("env", ()):
        environment[one["name"]] = one.get("value", "worker-0")
    settings_named(environment, role)


@pytest.mark.parametrize("role", ROLES)
def test_probes_and_ports_are_those_of_the_role(role: str) -> None:
    (container,) = pod(role)["containers"]
    ports = {one["name"]: one["containerPort"] for one in container["ports"]}
    assert str(ports["http"]) == flag(container["args"], "--port")
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        get = container[probe]["httpGet"]
        assert get["path"] in routes(role)
        assert get["port"] in ports
    assert container["livenessProbe"]["httpGet"]["path"] != "/readyz", "a store away is no death"
    notes = workloads()[role]["spec"]["template"]["metadata"]["annotations"]
    assert notes["prometheus.io/port"] == str(ports["http"])
    assert notes["prometheus.io/path"] in routes(role)


@pytest.mark.parametrize("role", ROLES)
def test_selectors_and_budgets_meet_the_pods(role: str) -> None:
    labels = workloads()[role]["spec"]["template"]["metadata"]["labels"]
    assert workloads()[role]["spec"]["selector"]["matchLabels"] == labels
    found = [one for one in kubernetes() if one["metadata"]["name"] == role]
    budget = next(one for one in found if one["kind"] == "PodDisruptionBudget")
    service = next(one for one in found if one["kind"] == "Service")
    assert budget["spec"]["selector"]["matchLabels"] == labels
    assert service["spec"]["selector"] == labels
    named = {one["name"] for one in pod(role)["containers"][0]["ports"]}
    assert {one["targetPort"] for one in service["spec"]["ports"]} <= named


@pytest.mark.parametrize("role", ROLES)
def test_mounts_are_of_volumes_that_are_there(role: str) -> None:
    volumes = {one["name"] for one in pod(role)["volumes"]}
    for container in (*pod(role)["initContainers"], *pod(role)["containers"]):
        assert {one["name"] for one in container["volumeMounts"]} <= volumes


def test_pods_may_take_the_time_that_a_drain_takes() -> None:
    limits = Limits()
    assert (
        pod("worker")["terminationGracePeriodSeconds"] * 1000 > limits.drain_ms + 2 * limits.stop_ms
    )
    (container,) = pod("dispatch")["containers"]
    pause_s = int(container["lifecycle"]["preStop"]["exec"]["command"][-1])

    assert (
        pod("dispatch")["terminationGracePeriodSeconds"] > pause_s + DispatchSettings().shutdown_s
    )


def test_a_worker_is_reached_by_its_pods_name() -> None:
    stateful = workloads()["worker"]
    (container,) = pod("worker")["containers"]
    url = next(one["value"] for one in container["env"] if one["name"] == "DHSCHED_URL")
    (kustomization,) = documents(DEPLOY / "kubernetes" / "kustomization.yaml")
    port = flag(container["args"], "--port")
    service, namespace = stateful["spec"]["serviceName"], kustomization["namespace"]
    assert url == f"http://$(DHSCHED_NODE).{service}.{namespace}.svc:{port}"
