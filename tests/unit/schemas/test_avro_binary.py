"""Our binary encoding against fastavro's, and what fastavro takes that ours does not."""

import io
import json
from types import SimpleNamespace
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import registry
from schemas.avro_reading import read_whole, reader_of
from schemas.avro_writing import writer_of
from schemas.bad_record import BadRecord, DeadLetterReason
from schemas.registry import load_text

R = DeadLetterReason


def values_of(schema: Any, named: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Values of a schema as fastavro parsed it, nested records as dictionaries."""
    match schema:
        case list():
            return st.one_of([values_of(branch, named) for branch in schema])
        case {"type": "record", "name": name, "fields": fields}:
            named[name] = st.fixed_dictionaries(
                {field["name"]: values_of(field["type"], named) for field in fields}
            )
            return named[name]
        case {"type": "enum", "name": name, "symbols": symbols}:
            named[name] = st.sampled_from(symbols)
            return named[name]
        case {"type": "array", "items": items}:
            return st.lists(values_of(items, named), max_size=4)
        case {"type": str(inner)}:
            return values_of(inner, named)
        case str(name) if name in named:
            return named[name]
    return {
        "null": st.none(),
        "boolean": st.booleans(),
        "int": st.integers(-(2**31), 2**31 - 1),
        "long": st.integers(-(2**63), 2**63 - 1) | st.integers(-9_000, 9_000),
        "double": st.floats(allow_nan=False),
        "bytes": st.binary(max_size=200),
        "string": st.text(st.characters(exclude_categories=("Cs",)), max_size=200),
    }[schema]


def as_object(value: Any) -> Any:
    if isinstance(value, dict):
        return SimpleNamespace(**{name: as_object(inner) for name, inner in value.items()})
    if isinstance(value, list):
        return [as_object(inner) for inner in value]
    return value


def record(**fields: Any) -> str:
    return json.dumps(
        {
            "type": "record",
            "name": "R",
            "fields": [{"name": name, "type": type_} for name, type_ in fields.items()],
        }
    )


EVERYTHING = load_text(
    "everything",
    1,
    record(
        flag="boolean", small="int", large="long", real="double", blob="bytes", text="string",
        nothing="null", maybe=["null", "string"],
        inner={"type": "record", "name": "I", "fields": [{"name": "a", "type": "long"}]},
        again={"type": "array", "items": "I"}, many={"type": "array", "items": "string"},
        kind={"type": "enum", "name": "E", "symbols": ["X", "Y"]}, same="E",
    ),
)  # fmt: skip
SCHEMAS = [EVERYTHING, *(v for name in registry.names() for v in registry.versions(name))]


@pytest.mark.parametrize("version", SCHEMAS, ids=lambda version: version.name)
@given(st.data())
def test_the_same_bytes_as_fastavro_in_both_directions(
    version: registry.SchemaVersion, data: st.DataObject
) -> None:
    value = data.draw(values_of(version.parsed, {}))
    out = io.BytesIO()
    fastavro.schemaless_writer(out, dict(version.parsed), value)
    assert writer_of(version.parsed, b"in front")(as_object(value)) == b"in front" + out.getvalue()
    assert read_whole(reader_of(version.parsed), out.getvalue()) == value


def reason_of(schema: str, data: bytes) -> DeadLetterReason:
    with pytest.raises(BadRecord) as caught:
        read_whole(reader_of(load_text("t", 1, schema).parsed), data)
    return caught.value.reason


@pytest.mark.parametrize(
    ("type_", "data", "reason"),
    [
        ("long", b"\x80\x00", R.BAD_SHAPE),  # zero, over-long
        ("long", b"\x80" * 9 + b"\x00", R.BAD_SHAPE),
        ("long", b"\xff" * 9 + b"\x02", R.BAD_SHAPE),  # 65 bits
        ("long", b"\xff" * 11, R.BAD_SHAPE),
        ("long", b"\xff" * 4, R.TRUNCATED),
        ("int", b"\x80\x80\x80\x80\x10", R.BAD_SHAPE),  # 2^31
        ("boolean", b"\x02", R.BAD_SHAPE),
        ("boolean", b"", R.TRUNCATED),
        ("double", b"\x00" * 7, R.TRUNCATED),
        ("bytes", b"\x01", R.BAD_SHAPE),  # length -1
        ("bytes", b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01", R.TRUNCATED),  # length 2^63-1
        ("string", b"\x01", R.BAD_SHAPE),
        ("string", b"\x06ab", R.TRUNCATED),
        ("string", b"\x04\xc0\x80", R.BAD_UTF8),  # an over-long NUL
        (["null", "long"], b"\x01\x00", R.BAD_SHAPE),  # branch -1
        (["null", "long"], b"\x82\x00\x00", R.BAD_SHAPE),  # branch 1, over-long
        (["long", "string"], b"\x01\x00", R.BAD_SHAPE),
        (["long", "string"], b"\x04\x00", R.BAD_SHAPE),
        ({"type": "array", "items": "long"}, b"\x01\x02\x02\x00", R.BAD_SHAPE),  # sized block
        ({"type": "array", "items": "long"}, b"\x02\x02\x02\x02\x00", R.BAD_SHAPE),  # two blocks
        ({"type": "array", "items": "long"}, b"\x02\x02", R.TRUNCATED),
        ({"type": "array", "items": "long"}, b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01\x02",
         R.TRUNCATED),  # 2^63-1 items
        ({"type": "enum", "name": "E", "symbols": ["X"]}, b"\x01", R.BAD_SHAPE),
        ({"type": "enum", "name": "E", "symbols": ["X"]}, b"\x02", R.BAD_SHAPE),
        ("long", b"\x02\x02", R.TRAILING_BYTES),
    ],
)  # fmt: skip
def test_what_is_not_taken(type_: Any, data: bytes, reason: DeadLetterReason) -> None:
    assert reason_of(record(a=type_), data) is reason


@given(st.binary(max_size=120))
def test_what_is_taken_is_written_the_same(data: bytes) -> None:
    try:
        value = read_whole(reader_of(EVERYTHING.parsed), data)
    except BadRecord:
        return
    assert writer_of(EVERYTHING.parsed)(as_object(value)) == data


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        ("long", 2**63),
        ("long", -(2**63) - 1),
        ("int", 2**31),
        ("string", "\ud800"),
        ({"type": "enum", "name": "E", "symbols": ["X"]}, "Y"),
    ],
)
def test_what_does_not_fit_is_not_written(type_: Any, value: Any) -> None:
    write = writer_of(load_text("t", 1, record(a=type_)).parsed)
    with pytest.raises((ValueError, LookupError)):
        write(SimpleNamespace(a=value))


def test_what_is_not_supported_is_said_when_it_is_made() -> None:
    schema = load_text("t", 1, record(a={"type": "map", "values": "long"})).parsed
    with pytest.raises(ValueError, match="no reader"):
        reader_of(schema)
    with pytest.raises(ValueError, match="no writer"):
        writer_of(schema)
