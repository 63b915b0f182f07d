"""Writes Avro's binary encoding, in the one way that `schemas.avro_reading` takes.

Every schema becomes a function that appends pieces to a list. Records are written from objects
whose attributes are named as the schema's fields, so that no dictionary is made on the way.

https://avro.apache.org/docs/1.12.0/specification/#binary-encoding

PURE.
"""

import struct
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any

Append = Callable[[bytes], None]
# Appends the pieces of a value. Raises ValueError, TypeError or AttributeError for one that does
# not fit its schema: the caller's types are to see to that.
Writer = Callable[[Append, Any], None]

_DOUBLE = struct.Struct("<d")
_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1
# Integers are cut into pieces of 14 bits, each looked up: followed by more, or the last one.
_PIECE_BITS = 14
_PIECE = 1 << _PIECE_BITS
_FOLLOWED = tuple(bytes((n & 0x7F | 0x80, n >> 7 | 0x80)) for n in range(_PIECE))
_LAST = tuple(bytes((n,)) if n < 0x80 else bytes((n & 0x7F | 0x80, n >> 7)) for n in range(_PIECE))


def writer_of(schema: Any, named: dict[str, Writer] | None = None) -> Writer:
    """The writer of a schema as fastavro parsed it (names in full). Maps are not written.

    Of unions only an optional value, null first, is supported.
    """
    named = {} if named is None else named
    match schema:
        case ["null", inner]:
            return _optional(writer_of(inner, named))
        case {"type": "record", "name": str(name), "fields": list()}:
            named[name] = _record(fields_of(schema, named))
            return named[name]
        case {"type": "enum", "name": str(name), "symbols": list(symbols)}:
            named[name] = _enum(symbols)
            return named[name]
        case {"type": "array", "items": items}:
            return _array(writer_of(items, named))
        case {"type": str(inner)} if inner in _PRIMITIVES:
            return _PRIMITIVES[inner]
        case str(name) if name in named:
            return named[name]
        case str(name) if name in _PRIMITIVES:
            return _PRIMITIVES[name]
        case _:
            raise ValueError(f"no writer for {schema!r}")


def fields_of(schema: Any, named: dict[str, Writer] | None = None) -> list[tuple[str, Writer]]:
    """The name and the writer of each field of a record, in their order."""
    named = {} if named is None else named
    return [(field["name"], writer_of(field["type"], named)) for field in schema["fields"]]


def _long(append: Append, value: int) -> None:
    if not _INT64_MIN <= value <= _INT64_MAX:
        raise ValueError(f"{value} is no 64-bit integer")
    rest = value << 1 if value >= 0 else ~(value << 1)
    while rest >= _PIECE:
        append(_FOLLOWED[rest & (_PIECE - 1)])
        rest >>= _PIECE_BITS
    append(_LAST[rest])


def _int(append: Append, value: int) -> None:
    if not -(2**31) <= value < 2**31:
        raise ValueError(f"{value} is no 32-bit integer")
    _long(append, value)


def _bytes(append: Append, value: bytes) -> None:
    _long(append, len(value))
    append(value)


def _string(append: Append, value: str) -> None:
    encoded = value.encode()
    size = len(encoded) << 1
    if size < _PIECE:
        append(_LAST[size])
    else:
        _long(append, len(encoded))
    append(encoded)


def _double(append: Append, value: float) -> None:
    append(_DOUBLE.pack(value))


def _boolean(append: Append, value: bool) -> None:
    append(b"\x01" if value else b"\x00")


def _null(append: Append, value: None) -> None:
    pass


_PRIMITIVES: Mapping[str, Writer] = {
    "null": _null,
    "boolean": _boolean,
    "int": _int,
    "long": _long,
    "double": _double,
    "bytes": _bytes,
    "string": _string,
}


def _record(fields: list[tuple[str, Writer]]) -> Writer:
    pairs = [(attrgetter(name), write) for name, write in fields]

    def write_record(append: Append, value: Any) -> None:
        for get, write in pairs:
            write(append, get(value))

    return write_record


def _optional(inner: Writer) -> Writer:
    def write(append: Append, value: Any) -> None:
        if value is None:
            append(b"\x00")
        else:
            append(b"\x02")
            inner(append, value)

    return write


def _enum(symbols: list[str]) -> Writer:
    numbers = {symbol: _LAST[number << 1] for number, symbol in enumerate(symbols)}

    def write(append: Append, value: str) -> None:
        found = numbers.get(value)
        if found is None:
            raise ValueError(f"{value!r} is none of {symbols}")
        append(found)

    return write


def _array(item: Writer) -> Writer:
    def write(append: Append, value: Any) -> None:
        if value:
            _long(append, len(value))
            for one in value:
                item(append, one)
        append(b"\x00")

    return write
