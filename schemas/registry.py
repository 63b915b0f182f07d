"""The schemas that come with the package: every version of every value, found by its fingerprint.

`avsc/<name>/v<N>.avsc` is never edited after a release; a change is a further version, which must
read what the one before wrote. Two kinds of schema are refused when they are loaded, because a
decoder cannot be kept within bounds on them: recursive ones (a few bytes nest until the stack
ends) and arrays or maps of items that take no bytes (a few bytes stand for billions of items).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, cast

import fastavro
from fastavro.schema import SchemaParseException, to_parsing_canonical_form
from fastavro.schema import fingerprint as fastavro_fingerprint

from schemas.single_object import header

Json = Any
_PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})


class BadSchema(ValueError):
    """A schema that must not be used to decode hostile bytes, or that cannot be read at all."""


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    """One version of one schema. `parsed` is fastavro's form, `header` the single-object header."""

    name: str
    version: int
    fingerprint: int
    header: bytes
    parsed: Mapping[str, Any]


def parsing_canonical_form(schema: Json) -> str:
    """The text that a fingerprint is made of: no docs, defaults or aliases, names in full."""
    return to_parsing_canonical_form(schema)


def fingerprint(schema: Json) -> int:
    """CRC-64-AVRO of the parsing canonical form, unsigned."""
    digest = fastavro_fingerprint(parsing_canonical_form(schema), "CRC-64-AVRO")
    return int.from_bytes(bytes.fromhex(digest), "little")


def refuse_unbounded(schema: Json) -> None:
    """Raises BadSchema for recursion and for arrays or maps whose items may take no bytes."""
    _walk(schema, "", {}, ())


def load_text(name: str, version: int, text: str) -> SchemaVersion:
    """Reads one schema from its JSON text. Raises BadSchema."""
    try:
        schema = json.loads(text)
        refuse_unbounded(schema)
        parsed = cast(Mapping[str, Any], fastavro.parse_schema(schema))
    except (ValueError, KeyError, TypeError, SchemaParseException) as error:
        raise BadSchema(f"schema {name} v{version}: {error}") from error
    number = fingerprint(schema)
    return SchemaVersion(name, version, number, header(number), parsed)


@cache
def versions(name: str) -> tuple[SchemaVersion, ...]:
    """All versions of a schema of this package, oldest first, numbered 1, 2, ... without a gap."""
    folder = resources.files("schemas") / "avsc" / name
    if not folder.is_dir():
        raise BadSchema(f"there is no schema named {name}")
    found = sorted(
        (int(entry.name[1:-5]), entry)
        for entry in folder.iterdir()
        if entry.name.startswith("v") and entry.name.endswith(".avsc")
    )
    if [number for number, _ in found] != list(range(1, len(found) + 1)):
        raise BadSchema(f"the versions of {name} are not numbered 1, 2, ... without a gap")
    return tuple(
        load_text(name, number, entry.read_text(encoding="utf-8")) for number, entry in found
    )


@cache
def names() -> tuple[str, ...]:
    """The names of all schemas of this package."""
    folder = resources.files("schemas") / "avsc"
    return tuple(sorted(entry.name for entry in folder.iterdir() if entry.is_dir()))


def _walk(schema: Json, space: str, named: dict[str, int], inside: tuple[str, ...]) -> int:
    """The fewest bytes that a value of `schema` can take.

    `named` holds that figure for every named type already closed, `inside` the names of those
    still open: meeting one of them again is recursion.
    """
    match schema:
        case str():
            return _walk_name(schema, space, named, inside)
        case list():
            branches = [_walk(branch, space, named, inside) for branch in cast(list[Json], schema)]
            return 1 + min(branches, default=0)
        case dict():
            return _walk_complex(cast(dict[str, Json], schema), space, named, inside)
        case _:
            raise BadSchema(f"{schema!r} is not a schema")


def _walk_name(name: str, space: str, named: Mapping[str, int], inside: Sequence[str]) -> int:
    if name in _PRIMITIVES:
        return {"null": 0, "float": 4, "double": 8}.get(name, 1)
    full = name if "." in name or not space else f"{space}.{name}"
    if full in inside:
        raise BadSchema(f"{full} contains itself")
    if full not in named:
        raise BadSchema(f"{full} is not defined before it is used")
    return named[full]


def _walk_complex(
    schema: dict[str, Json], space: str, named: dict[str, int], inside: tuple[str, ...]
) -> int:
    kind = schema.get("type")
    match kind:
        case "record" | "error" | "enum" | "fixed":
            name = str(schema["name"])
            space = name.rpartition(".")[0] or str(schema.get("namespace", space))
            full = name if "." in name or not space else f"{space}.{name}"
            if kind == "enum":
                least = 1
            elif kind == "fixed":
                least = int(schema["size"])
            else:
                fields = cast(list[dict[str, Json]], schema["fields"])
                open_names = (*inside, full)
                least = sum(_walk(field["type"], space, named, open_names) for field in fields)
            named[full] = least
            return least
        case "array" | "map":
            items = schema["items"] if kind == "array" else schema["values"]
            least = _walk(items, space, named, inside)
            if kind == "array" and least == 0:
                raise BadSchema("an array of items that take no bytes has no bound")
            return 1
        case _:
            return _walk(kind, space, named, inside)
