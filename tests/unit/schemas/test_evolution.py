"""Every version of a schema reads what the one before wrote; the ones in use have not changed."""

import io
import json
from typing import Any

import fastavro
import pytest

from schemas import registry
from schemas.bad_record import BadRecord, DeadLetterReason
from schemas.codec import Codec
from schemas.registry import SchemaVersion

# What has been written with these must stay readable: a change is a further version, and a
# further line here.
RELEASED = {
    ("capture_entry", 1): "e45da3ed6f71b839",
    ("checkpoint", 1): "f0caa3fbb80d7a7f",
    ("claim", 1): "c3ef21995f13ca8a",
    ("cursor", 1): "77ae280da936f624",
    ("dead_letter", 1): "7540c78126c2e0f3",
    ("generation", 1): "1273de77fb4bdd3c",
    ("idempotency", 1): "7b033afa60bec3cb",
    ("live_event", 1): "b105daa5ee523d6b",
    ("live_state", 1): "273252c8d9d510ab",
    ("load_view", 1): "cb652d320b3d88c1",
    ("meta", 1): "b21ebd629635c4ff",
    ("meta", 2): "877b0e92b139c6a6",
    ("orphan", 1): "78762532ff273f5e",
    ("slot", 1): "042edf13efc93121",
    ("text_record", 1): "88fad3aa00995b8d",
    ("worker", 1): "a50942ecc328455a",
}


def example(schema: Any) -> Any:
    """Some value of a schema, the first branch of unions left aside where there is another."""
    match schema:
        case [*branches]:
            return example(branches[-1])
        case {"type": "record", "fields": fields}:
            return {field["name"]: example(field["type"]) for field in fields}
        case {"type": "array", "items": items}:
            return [example(items), example(items)]
        case {"type": "enum", "symbols": symbols}:
            return symbols[-1]
        case {"type": str() as inner}:
            return example(inner)
        case "string":
            return "text"
        case "bytes":
            return b"bytes"
        case "double" | "float":
            return 1.5
        case "boolean":
            return True
        case "null":
            return None
        case _:
            return 7


def by_fastavro(version: SchemaVersion, value: Any) -> bytes:
    out = io.BytesIO()
    out.write(version.header)
    fastavro.schemaless_writer(out, dict(version.parsed), value)
    return out.getvalue()


@pytest.mark.parametrize("name", registry.names())
def test_each_version_reads_the_one_before(name: str) -> None:
    versions = registry.versions(name)
    for at in range(len(versions)):
        written = by_fastavro(versions[at], example(versions[at].parsed))
        for later in range(at, len(versions)):
            reader = Codec(name, versions[: later + 1])
            expected = {field["name"] for field in versions[later].parsed["fields"]}
            assert reader.decode(written, bytes_max=10_000).keys() == expected


V1 = {
    "type": "record",
    "name": "Thing",
    "fields": [{"name": "a", "type": "long"}, {"name": "gone", "type": "string"}],
}
V2 = {
    "type": "record",
    "name": "Thing",
    "fields": [
        {"name": "a", "type": "long"},
        {"name": "new", "type": ["null", "string"], "default": None},
    ],
}


def thing(*schemas: dict[str, Any]) -> Codec:
    loaded = [
        registry.load_text("thing", at, json.dumps(schema)) for at, schema in enumerate(schemas, 1)
    ]
    return Codec("thing", loaded)


def test_a_field_may_go_and_another_come() -> None:
    old, new = thing(V1), thing(V1, V2)
    written = old.encode_fields({"a": 5, "gone": "x"})
    assert new.decode(written, bytes_max=100) == {"a": 5, "new": None}
    assert new.decode(new.encode_fields({"a": 6, "new": "y"}), bytes_max=100) == {
        "a": 6,
        "new": "y",
    }


def test_the_version_before_does_not_guess_at_the_one_after() -> None:
    with pytest.raises(BadRecord) as caught:
        thing(V1).decode(thing(V1, V2).encode_fields({"a": 1, "new": None}), bytes_max=100)
    assert caught.value.reason is DeadLetterReason.UNKNOWN_SCHEMA


def test_a_version_that_cannot_read_the_one_before_is_noticed() -> None:
    broken = {
        **V2,
        "fields": [{"name": "a", "type": "long"}, {"name": "needed", "type": "string"}],
    }
    with pytest.raises(BadRecord) as caught:
        thing(V1, broken).decode(thing(V1).encode_fields({"a": 1, "gone": ""}), bytes_max=100)
    assert caught.value.reason is DeadLetterReason.BAD_SHAPE


def test_old_bytes_are_checked_as_strictly_as_new_ones() -> None:
    written = thing(V1).encode_fields({"a": 1, "gone": "x"})
    for damaged in (written + b"\x00", written[:-1], written[:10] + b"\x82\x00" + written[11:]):
        with pytest.raises(BadRecord):
            thing(V1, V2).decode(damaged, bytes_max=100)


def test_released_schemas_have_not_been_edited() -> None:
    found = {
        (name, version.version): f"{version.fingerprint:016x}"
        for name in registry.names()
        for version in registry.versions(name)
    }
    assert found == RELEASED
