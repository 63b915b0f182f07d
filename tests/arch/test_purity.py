"""Files that say they are PURE stay pure: no waiting, no clock, no chance, no outside world."""

import ast
from pathlib import Path

import pytest

from tests.support.core import core_files

ROOT = Path(__file__).parents[2]
PACKAGES = (
    "schemas",
    "stream",
    "ownership",
    "gpu_stages",
    "rtc_output",
    "hosting",
    "dispatch",
    "controller",
    "dhsched",
)
FORBIDDEN = {
    "asyncio",
    "threading",
    "multiprocessing",
    "socket",
    "subprocess",
    "time",
    "random",
    "secrets",
    "aiokafka",
    "lmdb",
    "fdb",
    "torch",
    "aiortc",
    "httpx",
    "fastapi",
    "uvicorn",
}
OWN_IMPURE = {"stream", "ownership.kv", "ownership.memory", "ownership.lmdb_store"}


def modules() -> list[Path]:
    return sorted(path for name in PACKAGES for path in (ROOT / name).rglob("*.py"))


def says_pure(tree: ast.Module) -> bool:
    doc = ast.get_docstring(tree) or ""
    return doc.rstrip().endswith("PURE.")


def impurities(source: str) -> list[str]:
    """What keeps a module from being pure, one line each."""
    found: list[str] = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Await() | ast.AsyncFunctionDef() | ast.AsyncFor() | ast.AsyncWith():
                found.append(f"line {node.lineno}: waits")
            case ast.Import(names=names):
                found += [
                    f"line {node.lineno}: imports {alias.name}"
                    for alias in names
                    if alias.name.split(".")[0] in FORBIDDEN or alias.name in OWN_IMPURE
                ]
            case ast.ImportFrom(module=str(module)):
                if module.split(".")[0] in FORBIDDEN or module in OWN_IMPURE:
                    found.append(f"line {node.lineno}: imports from {module}")
            case ast.Call(func=ast.Name(id="open" | "print" | "input")):
                found.append(f"line {node.lineno}: touches the outside world")
            case _:
                pass
    return found


PURE_MODULES = [path for path in modules() if says_pure(ast.parse(path.read_text()))]


@pytest.mark.parametrize("path", PURE_MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_that_says_it_is_pure_is_pure(path: Path) -> None:
    assert impurities(path.read_text()) == []


@pytest.mark.parametrize("file", core_files())
def test_what_is_compiled_waits_for_nothing(file: str) -> None:
    assert impurities((ROOT / file).read_text()) == []


def test_the_protocol_cores_say_they_are_pure() -> None:
    names = {str(path.relative_to(ROOT)) for path in PURE_MODULES}
    must = {
        "schemas/media.py",
        "schemas/partition.py",
        "ownership/rules.py",
        "controller/session_machine.py",
        "controller/segmenter.py",
        "dispatch/placement.py",
        "rtc_output/pacer.py",
    }
    assert must <= names, f"no longer declared pure: {sorted(must - names)}"


@pytest.mark.parametrize(
    "source",
    [
        "import asyncio",
        "from time import monotonic",
        "async def f(): ...",
        "import torch.nn",
        "open('x')",
    ],
)
def test_the_check_sees_impurity(source: str) -> None:
    assert impurities(source) != []
