"""Reads Avro's binary encoding and takes it in one way only.

fastavro accepts over-long integers, negative branch and symbol numbers, negative lengths and
trailing bytes, all of which a value of ours never has. Here every schema becomes a function that
reads exactly what `schemas.avro_writing` writes; with closures made once per schema it takes no
longer than fastavro's compiled reader.

https://avro.apache.org/docs/1.12.0/specification/#binary-encoding

PURE.
"""

import struct
from collections.abc import Callable, Mapping
from typing import Any

from schemas.bad_record import BadRecord, DeadLetterReason

# (bytes, where the value begins) -> (value, where the next one begins). IndexError: they end early.
Reader = Callable[[bytes, int], tuple[Any, int]]

_INT_MIN, _INT_MAX = -(2**31), 2**31 - 1
_UNSIGNED_LIMIT = 1 << 64
_DOUBLE = struct.Struct("<d")


def read_whole(reader: Reader, data: bytes, at: int = 0) -> Any:
    """The value that begins at `at` and ends with `data`. Raises BadRecord and nothing else."""
    try:
        value, end = reader(data, at)
    except IndexError as error:
        raise _refused("the value ends early", DeadLetterReason.TRUNCATED) from error
    except UnicodeDecodeError as error:
        raise _refused(str(error), DeadLetterReason.BAD_UTF8) from error
    if end != len(data):
        raise _refused(f"{len(data) - end} bytes after the value", DeadLetterReason.TRAILING_BYTES)
    return value


def reader_of(schema: Any, named: dict[str, Reader] | None = None) -> Reader:
    """The reader of a schema as fastavro parsed it (names in full). Maps are not read.

    The schema must not be recursive (schemas.registry sees to that).
    """
    named = {} if named is None else named
    match schema:
        case list():
            return _union([reader_of(branch, named) for branch in schema])
        case {"type": "record", "name": str(name), "fields": list(fields)}:
            made = _record([(field["name"], reader_of(field["type"], named)) for field in fields])
            named[name] = made
            return made
        case {"type": "enum", "name": str(name), "symbols": list(symbols)}:
            named[name] = _enum(tuple(symbols))
            return named[name]
        case {"type": "array", "items": items}:
            return _array(reader_of(items, named))
        case {"type": str(inner)} if inner in _PRIMITIVES:
            return _PRIMITIVES[inner]
        case str(name) if name in named:
            return named[name]
        case str(name) if name in _PRIMITIVES:
            return _PRIMITIVES[name]
        case _:
            raise ValueError(f"no reader for {schema!r}")


def _refused(detail: str, reason: DeadLetterReason = DeadLetterReason.BAD_SHAPE) -> BadRecord:
    return BadRecord(reason, detail)


def _long(data: bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    at += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at
    number, shift = byte & 0x7F, 7
    while True:
        byte = data[at]
        at += 1
        if byte < 0x80:
            break
        number |= (byte & 0x7F) << shift
        shift += 7
        if shift > 63:
            raise _refused("an integer of more than ten bytes")
    if byte == 0:
        raise _refused("an integer with empty bytes at its end")
    number |= byte << shift
    if number >= _UNSIGNED_LIMIT:
        raise _refused("an integer of more than 64 bits")
    return (number >> 1) ^ -(number & 1), at


def _int(data: bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at + 1
    number, at = _long(data, at)
    if not _INT_MIN <= number <= _INT_MAX:
        raise _refused(f"{number} is no 32-bit integer")
    return number, at


def _bytes(data: bytes, at: int) -> tuple[bytes, int]:
    size, at = _long(data, at)
    end = at + size
    if size < 0:
        raise _refused(f"a length of {size}")
    if end > len(data):
        raise IndexError
    return data[at:end], end


def _string(data: bytes, at: int) -> tuple[str, int]:
    byte = data[at]
    # Nearly all strings are shorter than 64 bytes: their length is one byte.
    if byte < 0x80 and not byte & 1:
        at += 1
        end = at + (byte >> 1)
        if end > len(data):
            raise IndexError
        return str(data[at:end], "utf-8"), end
    found, end = _bytes(data, at)
    return str(found, "utf-8"), end


def _double(data: bytes, at: int) -> tuple[float, int]:
    end = at + 8
    if end > len(data):
        raise IndexError
    return _DOUBLE.unpack_from(data, at)[0], end


def _boolean(data: bytes, at: int) -> tuple[bool, int]:
    byte = data[at]
    if byte > 1:
        raise _refused(f"a boolean of {byte}")
    return byte == 1, at + 1


def _null(data: bytes, at: int) -> tuple[None, int]:
    return None, at


_PRIMITIVES: Mapping[str, Reader] = {
    "null": _null,
    "boolean": _boolean,
    "int": _int,
    "long": _long,
    "double": _double,
    "bytes": _bytes,
    "string": _string,
}


def _record(fields: list[tuple[str, Reader]]) -> Reader:
    def read(data: bytes, at: int) -> tuple[dict[str, Any], int]:
        found: dict[str, Any] = {}
        for name, field in fields:
            found[name], at = field(data, at)
        return found, at

    return read


def _union(branches: list[Reader]) -> Reader:
    if len(branches) == 2 and branches[0] is _null:
        return _optional(branches[1])

    def read(data: bytes, at: int) -> tuple[Any, int]:
        number, at = _long(data, at)
        if not 0 <= number < len(branches):
            raise _refused(f"branch {number} of {len(branches)}")
        return branches[number](data, at)

    return read


def _optional(inner: Reader) -> Reader:
    def read(data: bytes, at: int) -> tuple[Any, int]:
        byte = data[at]
        if byte == 0:
            return None, at + 1
        if byte == 2:
            return inner(data, at + 1)
        raise _refused("a branch that is neither null nor the other one")

    return read


def _enum(symbols: tuple[str, ...]) -> Reader:
    def read(data: bytes, at: int) -> tuple[str, int]:
        number, at = _long(data, at)
        if not 0 <= number < len(symbols):
            raise _refused(f"symbol {number} of {len(symbols)}")
        return symbols[number], at

    return read


def _array(item: Reader) -> Reader:
    """Avro lets a writer cut an array into blocks; ours writes one, and one is read."""

    def read(data: bytes, at: int) -> tuple[list[Any], int]:
        count, at = _long(data, at)
        found: list[Any] = []
        if count == 0:
            return found, at
        if count < 0:
            raise _refused("an array of sized blocks")
        # An item takes at least one byte: what cannot fit is not begun.
        if count > len(data) - at:
            raise IndexError
        for _ in range(count):
            value, at = item(data, at)
            found.append(value)
        if data[at] != 0:
            raise _refused("an array of several blocks")
        return found, at + 1

    return read
