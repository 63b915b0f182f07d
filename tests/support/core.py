"""Which core runs here: `python` from the source, or `compiled`, as an image has it."""

import os
import tomllib
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from pathlib import Path

from tests.support.demands import demanded

ROOT = Path(__file__).parents[2]
_COMPILED = tuple(EXTENSION_SUFFIXES)


class NotCompiled(RuntimeError):
    """What should run compiled would run from its source; the message says how to change that."""


def core_files() -> list[str]:
    """What pyproject.toml names as the core, from the project's root."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return list(project["tool"]["dhsched"]["core"])


def core_modules() -> list[str]:
    """The same, as names to import."""
    return [file.removesuffix(".py").replace("/", ".") for file in core_files()]


def core_kind() -> str:
    """Raises NotCompiled where `DHSCHED_REQUIRE_COMPILED` asks for more than there is."""
    python = [name for name in core_modules() if not _file(name).endswith(_COMPILED)]
    if not python:
        return "compiled"
    if demanded("COMPILED"):
        raise NotCompiled(
            f"{', '.join(python)} would run from the source: `make compile` builds them, and "
            "the Makefile's test-compiled shows how they are found"
        )
    return "python"


def without_compiled() -> dict[str, str]:
    """The environment of a process that knows nothing of the compiled packages."""
    names = ("PYTHONPATH", "PYTHONSAFEPATH")
    return {name: value for name, value in os.environ.items() if name not in names}


def _file(name: str) -> str:
    """What an import would run. Raises NotCompiled where there is no such module."""
    found = find_spec(name)
    if found is None or found.origin is None:
        raise NotCompiled(f"pyproject.toml names {name} as part of the core, and it is not there")
    return found.origin
