"""Compiled, a value has the fields of its source, and nobody changes them: not even who does not
listen to a type checker."""

import ast
import dataclasses
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType

import pytest

from schemas.value import Value
from tests.support.core import ROOT, core_files, core_kind, core_modules
from tests.support.values import VALUES


def modules() -> list[ModuleType]:
    """All of the core, imported."""
    return [import_module(name) for name in core_modules()]


def dataclasses_in(file: str) -> Iterator[tuple[str, list[str]]]:
    """Each dataclass of a source by its name, with its fields."""
    for node in ast.parse((ROOT / file).read_text()).body:
        if isinstance(node, ast.ClassDef) and "@dataclass" in ast.unparse(node):
            lines = [one for one in node.body if isinstance(one, ast.AnnAssign)]
            fields = [one for one in lines if "ClassVar" not in ast.unparse(one.annotation)]
            yield node.name, [ast.unparse(one.target) for one in fields]


def test_every_dataclass_has_the_fields_of_its_source() -> None:
    assert core_kind() == "compiled", "make test-compiled runs this"
    seen = 0
    for file, module in zip(core_files(), modules(), strict=True):
        for name, fields in dataclasses_in(file):
            cls = getattr(module, name)
            assert [one.name for one in dataclasses.fields(cls)] == fields, cls
            assert list(cls.__match_args__) == fields, cls
            seen += 1
    assert seen > 40


def test_each_class_of_values_is_looked_at() -> None:
    modules()
    assert {type(value) for value in VALUES} == set(Value.__subclasses__())


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_no_field_of_it_can_be_set(value: Value) -> None:
    assert core_kind() == "compiled", "make test-compiled runs this"
    for name, now in value.as_dict().items():
        with pytest.raises(AttributeError, match="not writable"):
            setattr(value, name, now)
