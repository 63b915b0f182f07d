"""A class that was made quicker is the same class to everybody else."""

import inspect
import pickle
from dataclasses import FrozenInstanceError, dataclass, field, replace
from typing import Any

import pytest

from schemas.quick_init import quick_init


@dataclass(frozen=True, slots=True)
class Plain:
    a: int
    b: str = "b"
    c: tuple[int, ...] = (1, 2)


@quick_init
@dataclass(frozen=True, slots=True)
class Quick:
    a: int
    b: str = "b"
    c: tuple[int, ...] = (1, 2)


@pytest.mark.parametrize(
    "arguments", [((1,), {}), ((1, "x"), {}), ((), {"c": (), "a": 3}), ((1, "x", (5,)), {})]
)
def test_it_is_made_from_the_same_arguments(arguments: tuple[Any, Any]) -> None:
    given, named = arguments
    plain, quick = Plain(*given, **named), Quick(*given, **named)
    for name in ("a", "b", "c"):
        assert getattr(quick, name) == getattr(plain, name)
    assert hash(quick) == hash(Quick(*given, **named))
    assert repr(quick) == repr(plain).replace("Plain", "Quick")
    assert inspect.signature(Quick) == inspect.signature(Plain)
    assert replace(quick, b="new") == Quick(quick.a, "new", quick.c)
    assert pickle.loads(pickle.dumps(quick)) == quick


@pytest.mark.parametrize("arguments", [((), {}), ((1, "x", (), 4), {}), ((1,), {"d": 2})])
def test_it_refuses_the_same_arguments(arguments: tuple[Any, Any]) -> None:
    given, named = arguments
    for cls in (Plain, Quick):
        with pytest.raises(TypeError):
            cls(*given, **named)


def test_it_stays_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        Quick(1).a = 2


def test_a_class_of_which_more_is_asked_is_refused() -> None:
    @dataclass(frozen=True, slots=True)
    class Made:
        a: list[int] = field(default_factory=list)

    @dataclass(frozen=True, slots=True)
    class Named:
        a: int = field(kw_only=True)

    @dataclass(frozen=True, slots=True)
    class Hidden:
        a: int = field(default=1, init=False)

    @dataclass(frozen=True, slots=True)
    class Checked:
        a: int

        def __post_init__(self) -> None: ...

    @dataclass(frozen=True)
    class Open:
        a: int

    for cls in (Made, Named, Hidden, Checked, Open):
        with pytest.raises(TypeError, match=cls.__name__):
            quick_init(cls)
