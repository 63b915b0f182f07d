"""A faster `__init__` for the few frozen dataclasses that are made for every record and frame.

PURE.
"""

from dataclasses import MISSING, fields
from typing import Any, TypeVar, cast

T = TypeVar("T")


def quick_init(cls: type[T]) -> type[T]:
    """Give a frozen dataclass with slots an `__init__` that calls the slots' own setters.

    The one that `dataclasses` writes calls `object.__setattr__`, which looks every slot up by its
    name: that takes two to three times as long. Signature and defaults stay, and so do the errors
    of whoever assigns to an instance. Raises TypeError for a class of which more is asked: a
    factory, a `__post_init__`, fields that are not arguments.
    """
    made = fields(cast(Any, cls))
    plain = all(one.init and not one.kw_only and one.default_factory is MISSING for one in made)
    if not plain or "__slots__" not in vars(cls) or hasattr(cls, "__post_init__"):
        raise TypeError(f"{cls.__name__} asks more of its __init__ than to fill slots")
    names = [one.name for one in made]
    setters: dict[str, Any] = {f"set_{name}": vars(cls)[name].__set__ for name in names}
    lines = [f"def __init__(self, {', '.join(names)}):"]
    lines += [f" set_{name}(self, {name})" for name in names]
    exec("\n".join(lines), setters)  # of the names of the class's own fields
    old, new = cast(Any, cls).__init__, setters["__init__"]
    for attribute in ("__annotations__", "__defaults__", "__module__", "__qualname__"):
        setattr(new, attribute, getattr(old, attribute))
    cast(Any, cls).__init__ = new
    return cls
