"""What lies in deploy/, read; and what the product says of itself, to hold it against."""

import contextlib
import io
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from controller.settings import WorkerSettings
from dhsched.cli import app
from dispatch.settings import DispatchSettings

DEPLOY = Path(__file__).parents[3] / "deploy"
SETTINGS = {"dispatch": DispatchSettings, "worker": WorkerSettings}
ENV_PREFIX = "DHSCHED_"

Document = dict[str, Any]


def documents(path: Path) -> list[Document]:
    """Every YAML document of a file; a key that stands twice is an error, as in Kubernetes."""
    return list(yaml.load_all(path.read_text(), Loader=_Strict))


class _Strict(yaml.SafeLoader):
    """Refuses a key that stands twice in one mapping."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        own = [key.value for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"]
        twice = {key for key in own if own.count(key) > 1}
        assert not twice, f"{twice} twice in {node.start_mark}"
        return super().construct_mapping(node, deep)


def yaml_files() -> list[Path]:
    return sorted(
        path for kind in ("*.yaml", "*.yml") for path in DEPLOY.rglob(kind) if path.is_file()
    )


def compose() -> Document:
    (found,) = documents(DEPLOY / "compose.yaml")
    return found


def kubernetes() -> list[Document]:
    """Every object; the kustomization is none."""
    paths = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
    found = [one for path in paths for one in documents(path)]
    return [one for one in found if one["kind"] != "Kustomization"]


def parses(command: Sequence[str]) -> None:
    """Raises when our own command line would not take this."""
    with contextlib.redirect_stdout(io.StringIO()):
        app.parse_args(list(command), exit_on_error=False, print_error=False)


def role_of(command: Sequence[str]) -> str:
    return command[0]


def flag(command: Sequence[str], name: str) -> str | None:
    """The value of a flag."""
    return command[command.index(name) + 1] if name in command else None


def settings_named(environment: dict[str, str], role: str) -> None:
    """Every DHSCHED_ name is a setting of the role, and its value is one that it takes."""
    known = SETTINGS[role].model_fields
    given: dict[str, str] = {}
    for name, value in environment.items():
        if name.startswith(ENV_PREFIX):
            field = name.removeprefix(ENV_PREFIX).lower()
            assert field in known, f"{name} is not a setting of {role}"
            given[field] = value
    SETTINGS[role].load(given)


def routes(role: str) -> set[str]:
    """The GET routes of a role without a parameter."""
    source = {
        "dispatch": sorted((DEPLOY.parent / "dispatch").glob("routes_*.py")),
        "worker": [DEPLOY.parent / "controller" / "http.py"],
    }[role]
    pattern = re.compile(r'\.get\(\s*"([^"{]+)"')
    return {path for file in source for path in pattern.findall(file.read_text())}


def queries() -> Iterator[tuple[str, str]]:
    """(where, query) of every rule and every panel."""
    for path in sorted((DEPLOY / "prometheus" / "rules").glob("*.yml")):
        for document in documents(path):
            for group in document["groups"]:
                for rule in group["rules"]:
                    yield f"{path.name}: {rule.get('record', rule.get('alert'))}", rule["expr"]
    for path in sorted((DEPLOY / "grafana" / "dashboards").glob("*.json")):
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel.get("targets", ()):
                yield f"{path.name}: {panel['title']}", target["expr"]
