"""What every record and segment makes several of: immutable values that cost little.

PURE.
"""

from typing import Any, ClassVar


class Value:
    """Equal to another of its class by its fields, hashed and written by them too.

    For the classes of the core that are made most often. A frozen dataclass does the same, but
    mypyc makes no native class of one that is quick to make, and here the makers and readers are
    compiled: each of these is made and read several times as fast. A subclass names its fields in
    `__slots__` and `__match_args__`, in the order of its `__init__`, which sets each as `Final`:
    type checkers let nobody change one, and compiled nobody can.
    """

    __slots__ = ()
    __match_args__: ClassVar[tuple[str, ...]] = ()

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__match_args__)

    def __hash__(self) -> int:
        return hash(tuple([getattr(self, name) for name in self.__match_args__]))

    def as_dict(self) -> dict[str, Any]:
        """The fields by name."""
        return {name: getattr(self, name) for name in self.__match_args__}

    def __repr__(self) -> str:
        fields = [f"{name}={getattr(self, name)!r}" for name in self.__match_args__]
        return f"{type(self).__name__}({', '.join(fields)})"
