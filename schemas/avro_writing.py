"""Writes Avro's binary encoding, in the one way that `schemas.avro_reading` takes.

Every schema becomes one Python expression, compiled once (as `dataclasses` makes `__init__`): a
tuple of the pieces of the value, each from the attribute that is named as the schema's field. So no
dictionary is made on the way, and no function is called for a field whose encoding is looked up.
What goes into the source are names of ours and numbers; field names must be identifiers.

https://avro.apache.org/docs/1.12.0/specification/#binary-encoding

PURE.
"""

import struct
from collections.abc import Callable
from typing import Any, Final, cast

# Raises ValueError, TypeError, LookupError or AttributeError for a value that does not fit its
# schema: the caller's types are to see to that.
Writer = Callable[[Any], bytes]

_DOUBLE: Final = struct.Struct("<d")
_INT32_MIN, _INT32_MAX = -(2**31), 2**31 - 1
_INT64_MIN: Final = -(2**63)
_INT64_MAX: Final = 2**63 - 1
# Integers are cut into pieces of 14 bits, each looked up: followed by more, or the last one.
_PIECE_BITS: Final = 14
_PIECE: Final = 1 << _PIECE_BITS
_FOLLOWED: Final = tuple(bytes((n & 0x7F | 0x80, n >> 7 | 0x80)) for n in range(_PIECE))
_LAST: Final = tuple(
    bytes((n,)) if n < 0x80 else bytes((n & 0x7F | 0x80, n >> 7)) for n in range(_PIECE)
)
# Whole integers from _SMALL_MIN up to, not including, _SMALL_END, at their own index: Python counts
# a negative one from the end.
_SMALL_MIN, _SMALL_END = -64, _PIECE >> 1
_SMALL: Final = tuple(
    _LAST[n << 1 if n >= 0 else ~(n << 1)] for n in (*range(_SMALL_END), *range(_SMALL_MIN, 0))
)


def writer_of(schema: Any, before: bytes = b"") -> Writer:
    """The writer of a schema as fastavro parsed it (names in full); it puts `before` in front.

    Of unions only an optional value, null first, is supported, and no map.
    """
    return _compiled(schema, {}, before)


def _long(value: int) -> bytes:
    if not _INT64_MIN <= value <= _INT64_MAX:
        raise ValueError(f"{value} is no 64-bit integer")
    rest = value << 1 if value >= 0 else ~(value << 1)
    if rest < _PIECE:
        return _LAST[rest]
    found = _FOLLOWED[rest & (_PIECE - 1)]
    rest >>= _PIECE_BITS
    while rest >= _PIECE:
        found += _FOLLOWED[rest & (_PIECE - 1)]
        rest >>= _PIECE_BITS
    return found + _LAST[rest]


def _int(value: int) -> bytes:
    if not _INT32_MIN <= value <= _INT32_MAX:
        raise ValueError(f"{value} is no 32-bit integer")
    return _long(value)


def _compiled(schema: Any, named: dict[str, Any], before: bytes = b"") -> Writer:
    source = _Source(named)
    pieces = source.pieces(schema, "value")
    if before:
        pieces.insert(0, source.known("before", before))
    code = f"lambda value: {_joined(pieces)}"
    return cast(Writer, eval(code, source.names))  # the source is made here, of no foreign text


def _joined(pieces: list[str]) -> str:
    return pieces[0] if len(pieces) == 1 else f"join(({', '.join(pieces)}{',' * bool(pieces)}))"


class _Source:
    """Makes the expressions of one function. `names` are its globals."""

    def __init__(self, named: dict[str, Any]) -> None:
        self._named = named
        self._temporaries = 0
        self.names: dict[str, Any] = {
            "join": b"".join,
            "small": _SMALL,
            "long_": _long,
            "int_": _int,
            "double_": _DOUBLE.pack,
        }

    def known(self, stem: str, thing: object) -> str:
        """A name by which the source reaches `thing`."""
        name = f"{stem}_{len(self.names)}"
        self.names[name] = thing
        return name

    def pieces(self, schema: Any, value: str) -> list[str]:
        """Expressions that give the pieces of what the expression `value` gives, in order.

        `value` stands in them once.
        """
        match schema:
            case ["null", inner]:
                return [self._optional(inner, value)]
            case {"type": "record", "name": str(name), "fields": list(fields)}:
                self._named[name] = schema
                return self._record(fields, value)
            case {"type": "enum", "name": str(name), "symbols": list(symbols)}:
                self._named[name] = schema
                numbers = {symbol: _SMALL[number] for number, symbol in enumerate(symbols)}
                return [f"{self.known('symbols', numbers)}[{value}]"]
            case {"type": "array", "items": items}:
                return [self._array(items, value)]
            case {"type": str(inner)} if inner in _PRIMITIVES:
                return self._primitive(inner, value)
            case str(name) if name in self._named:
                return self.pieces(self._named[name], value)
            case str(name) if name in _PRIMITIVES:
                return self._primitive(name, value)
            case _:
                raise ValueError(f"no writer for {schema!r}")

    def _primitive(self, name: str, value: str) -> list[str]:
        match name:
            case "int" | "long":
                return [self._integer(name, value)]
            case "string" | "bytes":
                raw = self._temporary()
                encoded = f"{value}.encode()" if name == "string" else value
                return [self._integer("long", f"len({raw} := {encoded})"), raw]
            case "double":
                return [f"double_({value})"]
            case "boolean":
                return [rf'(b"\x01" if {value} else b"\x00")']
            case _:
                return []

    def _integer(self, kind: str, value: str) -> str:
        number = self._temporary()
        within = f"{_SMALL_MIN} <= ({number} := {value}) < {_SMALL_END}"
        return f"(small[{number}] if {within} else {kind}_({number}))"

    def _record(self, fields: list[dict[str, Any]], value: str) -> list[str]:
        """Its first piece takes the record into a temporary, which all the others look at."""
        found: list[str] = []
        holder = value if value.isidentifier() else self._temporary()
        for field in fields:
            name = str(field["name"])
            if not name.isidentifier():
                raise ValueError(f"no writer for a field named {name!r}")
            first = not found and holder != value
            of = f"({holder} := {value})" if first else holder
            found += self.pieces(field["type"], f"{of}.{name}")
        return found

    def _optional(self, inner: Any, value: str) -> str:
        taken = self._temporary()
        there = _joined([r'b"\x02"', *self.pieces(inner, taken)])
        return rf'(b"\x00" if ({taken} := {value}) is None else {there})'

    def _array(self, items: Any, value: str) -> str:
        taken = self._temporary()
        item = self.known("item", _compiled(items, self._named))
        count = self._integer("long", f"len({taken})")
        some = rf'join(({count}, *map({item}, {taken}), b"\x00"))'
        return rf'({some} if ({taken} := {value}) else b"\x00")'

    def _temporary(self) -> str:
        self._temporaries += 1
        return f"t{self._temporaries}"


_PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "double", "bytes", "string"})
