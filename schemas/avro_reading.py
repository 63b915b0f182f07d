"""Reads Avro's binary encoding and takes it in one way only.

fastavro accepts over-long integers, negative branch and symbol numbers, negative lengths and
trailing bytes, all of which a value of ours never has. Here every schema becomes one Python
function that reads exactly what `schemas.avro_writing` writes. Its source is made and compiled once
(as `dataclasses` makes `__init__`), so that no function is called for a field of few bytes, and
reading takes no longer than with fastavro's compiled reader.

https://avro.apache.org/docs/1.12.0/specification/#binary-encoding

PURE.
"""

import struct
from collections.abc import Callable
from typing import Any, Final, Never

from schemas.bad_record import BadRecord, DeadLetterReason

# (bytes, where the value begins) -> (value, where the next one begins). IndexError: they end early.
Reader = Callable[[bytes, int], tuple[Any, int]]

_INT_MIN, _INT_MAX = -(2**31), 2**31 - 1
_UNSIGNED_LIMIT: Final = 1 << 64
_DOUBLE: Final = struct.Struct("<d")
_PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "double", "bytes", "string"})
# What an integer of one byte stands for.
_SMALL: Final = tuple((byte >> 1) ^ -(byte & 1) for byte in range(0x80))


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


def reader_of(schema: Any) -> Reader:
    """The reader of a schema as fastavro parsed it (names in full). Maps are not read.

    The schema must not be recursive (schemas.registry sees to that): what it names is written out
    wherever it is named. A record becomes a dictionary.
    """
    source = _Source()
    source.value(schema, "value", 1)
    lines = ["def read(data, at):", " size = len(data)", *source.lines, " return value, at"]
    exec("\n".join(lines), source.names)  # the source is made here, of no foreign text
    return source.names["read"]


# -- what is called out of line -------------------------------------------------------------------


def _refused(detail: str, reason: DeadLetterReason = DeadLetterReason.BAD_SHAPE) -> BadRecord:
    return BadRecord(reason, detail)


def read_long(data: bytes, at: int) -> tuple[int, int]:
    """The integer at `at`, of any length, and where the next value begins. Raises IndexError where
    the bytes end early, BadRecord for an integer that is not written in the one way."""
    byte = data[at]
    at += 1
    if byte < 0x80:
        return _SMALL[byte], at
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
    number, at = read_long(data, at)
    if not _INT_MIN <= number <= _INT_MAX:
        raise _refused(f"{number} is no 32-bit integer")
    return number, at


def _refuse_length(length: int) -> Never:
    """Of bytes that are not there, or fewer than none."""
    if length < 0:
        raise _refused(f"a length of {length}")
    raise IndexError


def _refuse_count(count: int) -> Never:
    """Avro lets a writer cut an array into blocks; ours writes one, and one is read."""
    if count < 0:
        raise _refused("an array of sized blocks")
    raise IndexError


def _refuse_choice(what: str, number: int, of: int) -> Never:
    raise _refused(f"{what} {number} of {of}")


def _refuse(detail: str) -> Never:
    raise _refused(detail)


# -- the source -----------------------------------------------------------------------------------


class _Source:
    """Writes the lines of one function. Each method appends those that read a value at `at` into
    the variable `to`, indented by `depth`, and move `at` behind it. `names` are its globals."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.names: dict[str, Any] = {
            "small": _SMALL,
            "long_": read_long,
            "int_": _int,
            "double_": _DOUBLE.unpack_from,
            "refuse_length": _refuse_length,
            "refuse_count": _refuse_count,
            "refuse_choice": _refuse_choice,
            "refuse": _refuse,
        }
        self._named: dict[str, Any] = {}
        self._temporaries = 0

    def value(self, schema: Any, to: str, depth: int) -> None:
        match schema:
            case ["null", inner]:
                self._optional(inner, to, depth)
            case list():
                self._union(schema, to, depth)
            case {"type": "record", "name": str(name), "fields": list(fields)}:
                self._named[name] = schema
                self._record(fields, to, depth)
            case {"type": "enum", "name": str(name), "symbols": list(symbols)}:
                self._named[name] = schema
                self._enum(tuple(symbols), to, depth)
            case {"type": "array", "items": items}:
                self._array(items, to, depth)
            case {"type": str(inner)} if inner in _PRIMITIVES:
                self._primitive(inner, to, depth)
            case str(name) if name in self._named:
                self.value(self._named[name], to, depth)
            case str(name) if name in _PRIMITIVES:
                self._primitive(name, to, depth)
            case _:
                raise ValueError(f"no reader for {schema!r}")

    def _add(self, depth: int, *lines: str) -> None:
        self.lines += [" " * depth + line for line in lines]

    def _temporary(self) -> str:
        self._temporaries += 1
        return f"t{self._temporaries}"

    def _primitive(self, name: str, to: str, depth: int) -> None:
        match name:
            case "int" | "long":
                self._integer(name, to, depth)
            case "string" | "bytes":
                self._bytes(to, ".decode()" if name == "string" else "", depth)
            case "double":
                self._add(
                    depth,
                    "if at + 8 > size: raise IndexError",
                    f"{to} = double_(data, at)[0]",
                    "at += 8",
                )
            case "boolean":
                self._add(
                    depth,
                    "byte = data[at]",
                    "if byte > 1: refuse(f'a boolean of {byte}')",
                    f"{to} = byte == 1",
                    "at += 1",
                )
            case _:
                self._add(depth, f"{to} = None")

    def _integer(self, kind: str, to: str, depth: int) -> None:
        """Nearly all are of one byte."""
        self._add(
            depth,
            "byte = data[at]",
            f"if byte < 0x80: {to} = small[byte]; at += 1",
            f"else: {to}, at = {kind}_(data, at)",
        )

    def _bytes(self, to: str, decoded: str, depth: int) -> None:
        self._integer("long", "length", depth)
        self._add(
            depth,
            "end = at + length",
            "if length < 0 or end > size: refuse_length(length)",
            f"{to} = data[at:end]{decoded}",
            "at = end",
        )

    def _record(self, fields: list[dict[str, Any]], to: str, depth: int) -> None:
        held: list[str] = []
        for field in fields:
            holder = self._temporary()
            self.value(field["type"], holder, depth)
            held.append(f"{field['name']!r}: {holder}")
        self._add(depth, f"{to} = {{{', '.join(held)}}}")

    def _optional(self, inner: Any, to: str, depth: int) -> None:
        self._add(
            depth, "byte = data[at]", "at += 1", f"if byte == 0: {to} = None", "elif byte == 2:"
        )
        self.value(inner, to, depth + 1)
        self._add(depth, "else: refuse('a branch that is neither null nor the other one')")

    def _union(self, branches: list[Any], to: str, depth: int) -> None:
        self._integer("long", "number", depth)
        for number, branch in enumerate(branches):
            self._add(depth, f"{'elif' if number else 'if'} number == {number}:")
            self.value(branch, to, depth + 1)
        self._add(depth, f"else: refuse_choice('branch', number, {len(branches)})")

    def _enum(self, symbols: tuple[str, ...], to: str, depth: int) -> None:
        known = f"symbols{len(self.names)}"
        self.names[known] = symbols
        self._integer("long", "number", depth)
        self._add(
            depth,
            f"if not 0 <= number < {len(symbols)}: refuse_choice('symbol', number, {len(symbols)})",
            f"{to} = {known}[number]",
        )

    def _array(self, items: Any, to: str, depth: int) -> None:
        """An item takes at least one byte: what cannot fit is not begun."""
        count, item = self._temporary(), self._temporary()
        self._integer("long", count, depth)
        self._add(
            depth,
            f"{to} = []",
            f"if {count}:",
            f" if not 0 < {count} <= size - at: refuse_count({count})",
            f" for _ in range({count}):",
        )
        self.value(items, item, depth + 2)
        self._add(
            depth + 1,
            f" {to}.append({item})",
            "if data[at] != 0: refuse('an array of several blocks')",
            "at += 1",
        )
