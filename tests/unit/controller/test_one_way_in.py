"""Held by reading the source: one minter of permits, one way into the ring, no error swallowed."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3] / "controller"
SOURCES = {path.name: ast.parse(path.read_text()) for path in sorted(ROOT.glob("*.py"))}


def calls(tree: ast.AST, name: str) -> list[int]:
    """Lines that call `name`, as a function or as a method."""
    found: list[int] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            function = node.func
            called = function.attr if isinstance(function, ast.Attribute) else None
            called = function.id if isinstance(function, ast.Name) else called
            if called == name:
                found.append(node.lineno)
    return found


def test_only_the_fence_makes_permits() -> None:
    assert [name for name, tree in SOURCES.items() if calls(tree, "Permit")] == ["fence.py"]
    assert [name for name, tree in SOURCES.items() if calls(tree, "mint")] == ["release.py"]


def test_only_the_release_feeds_the_first_ring() -> None:
    feeders = []
    for name, tree in SOURCES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr == "feed":
                owner = node.value
                last = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
                if "runtime" in last:
                    feeders.append(name)
    assert feeders == ["release.py"]
    assert [name for name, tree in SOURCES.items() if calls(tree, "spend")] == ["release.py"]


def test_nothing_waits_between_the_permit_and_the_ring() -> None:
    """The answer, the session and the feed are plain functions: there is no place to wait in."""
    plain = {
        "release.py": {"_answer", "feed"},
        "session.py": {"post", "_do", "_feed"},
        "session_machine.py": {"handle", "_dispatch", "_released"},
        "session_speech.py": {"_feed"},
    }
    for name, wanted in plain.items():
        functions = {
            node.name: node
            for node in ast.walk(SOURCES[name])
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        for function in wanted:
            assert isinstance(functions[function], ast.FunctionDef), f"{name}: {function}"


@pytest.mark.parametrize("name", SOURCES)
def test_no_thread_and_no_clock_outside_their_place(name: str) -> None:
    imported = {
        alias.name.split(".")[0]
        for node in ast.walk(SOURCES[name])
        if isinstance(node, ast.Import)
        for alias in node.names
    } | {
        (node.module or "").split(".")[0]
        for node in ast.walk(SOURCES[name])
        if isinstance(node, ast.ImportFrom)
    }
    assert "threading" not in imported
    assert "time" not in imported or name == "clock.py"
    if name != "main.py":
        assert not calls(SOURCES[name], "to_thread") + calls(SOURCES[name], "run_in_executor")


@pytest.mark.parametrize("name", SOURCES)
def test_no_error_is_swallowed(name: str) -> None:
    for node in ast.walk(SOURCES[name]):
        if isinstance(node, ast.ExceptHandler):
            assert node.type is not None, f"{name}:{node.lineno}: a bare except"
            quiet = all(isinstance(one, ast.Pass) for one in node.body)
            assert not quiet, f"{name}:{node.lineno}: an except that does nothing"


@pytest.mark.parametrize("name", SOURCES)
def test_functions_are_short(name: str) -> None:
    long = {
        node.name: (node.end_lineno or 0) - node.lineno
        for node in ast.walk(SOURCES[name])
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno >= 60
    }
    assert long == {}
