"""Frozen dataclasses, made as cheaply as unfrozen ones.

A frozen dataclass sets each attribute through `object.__setattr__`, which was a sixth of a run's
time. Here the classes that the world loaded get the plain constructor. They only lose the check
that nobody changes them, which every other test of the project keeps.
"""

import dataclasses
import sys
from typing import Any

_PACKAGES = ("controller", "dispatch", "gpu_stages", "ownership", "rtc_output", "schemas", "stream")


def thaw() -> int:
    """How many classes got the plain constructor."""
    seen: set[type] = set()
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] in _PACKAGES or name.startswith("tests.sim."):
            for value in list(vars(module).values()):
                if isinstance(value, type) and dataclasses.is_dataclass(value):
                    seen.update(
                        one for one in value.__mro__ if "__dataclass_params__" in one.__dict__
                    )
    frozen = [one for one in seen if one.__dict__["__dataclass_params__"].frozen]
    return sum(_thaw(cls) for cls in sorted(frozen, key=lambda one: one.__qualname__))


def _thaw(cls: type) -> bool:
    fields = dataclasses.fields(cls)
    if any(not one.init or one.kw_only for one in fields) or "__init__" not in cls.__dict__:
        return False
    if "__setattr__" in cls.__dict__:
        del cls.__setattr__
        del cls.__delattr__
    cls.__init__ = _plain_init(cls, fields)  # type: ignore[misc]
    return True


def _plain_init(cls: type, fields: tuple[dataclasses.Field[Any], ...]) -> Any:
    names: dict[str, Any] = {}
    heads, lines = ["self"], []
    for one in fields:
        head, value = one.name, one.name
        if one.default is not dataclasses.MISSING:
            names[f"_default_{one.name}"] = one.default
            head += f"=_default_{one.name}"
        elif one.default_factory is not dataclasses.MISSING:
            names["_missing"] = dataclasses.MISSING
            names[f"_make_{one.name}"] = one.default_factory
            head += "=_missing"
            value = f"_make_{one.name}() if {one.name} is _missing else {one.name}"
        heads.append(head)
        lines.append(f"    self.{one.name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append("    self.__post_init__()")
    exec(f"def __init__({', '.join(heads)}):\n" + "\n".join(lines or ["    pass"]), names)
    return names["__init__"]
