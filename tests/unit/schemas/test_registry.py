"""Fingerprints, and which schemas are not loaded at all."""

import json
from typing import Any

import pytest

from schemas import registry
from schemas.registry import BadSchema, fingerprint, load_text, parsing_canonical_form

# share/test/data/schema-tests.txt of Apache Avro.
KNOWN = {
    '"null"': 7195948357588979594,
    '"boolean"': -6970731678124411036,
    '"int"': 8247732601305521295,
    '"long"': -3434872931120570953,
    '"float"': 5583340709985441680,
    '"double"': -8181574048448539266,
    '"bytes"': 5746618253357095269,
    '"string"': -8142146995180207161,
}


@pytest.mark.parametrize(("text", "signed"), KNOWN.items())
def test_the_specifications_fingerprints(text: str, signed: int) -> None:
    schema = json.loads(text)
    assert parsing_canonical_form(schema) == text
    assert fingerprint(schema) == signed % 2**64


def crc_64_avro(text: bytes) -> int:
    """As the specification spells it, bit by bit."""
    empty = 0xC15D213AA4D7A795
    found = empty
    for byte in text:
        found ^= byte
        for _ in range(8):
            found = (found >> 1) ^ (empty if found & 1 else 0)
    return found


@pytest.mark.parametrize("name", registry.names())
def test_ours_are_found_by_the_right_fingerprint(name: str) -> None:
    for version in registry.versions(name):
        text = parsing_canonical_form(version.parsed)
        assert version.fingerprint == crc_64_avro(text.encode())
        assert version.header == b"\xc3\x01" + version.fingerprint.to_bytes(8, "little")


def test_no_two_schemas_share_a_fingerprint() -> None:
    found = [v.fingerprint for name in registry.names() for v in registry.versions(name)]
    assert len(found) == len(set(found))
    assert len(found) >= 14


def record(name: str, **fields: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": key, "type": value} for key, value in fields.items()],
    }


@pytest.mark.parametrize(
    "schema",
    [
        record("Node", next=["null", "Node"]),
        record("Node", children={"type": "array", "items": "Node"}),
        record("Node", inner=record("Inner", back={"type": "map", "values": "Node"})),
        {**record("Node", next=["null", "a.b.Node"]), "namespace": "a.b"},
        record("Holder", items={"type": "array", "items": "null"}),
        record("Holder", items={"type": "array", "items": record("Empty")}),
        record(
            "Holder", items={"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}
        ),
        record("Holder", items={"type": "array", "items": record("Nulls", a="null", b="null")}),
        record("Holder", item="Missing"),
    ],
)
def test_schemas_without_a_bound_are_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(BadSchema):
        load_text("test", 1, json.dumps(schema))


@pytest.mark.parametrize(
    "schema",
    [
        record("Pair", left=record("Side", x="int"), right="Side"),
        record("Holder", items={"type": "array", "items": ["null", "int"]}),
        {**record("Pair", left=record("Side", x="int"), right="a.b.Side"), "namespace": "a.b"},
    ],
)
def test_named_types_may_be_used_again(schema: dict[str, Any]) -> None:
    assert load_text("test", 1, json.dumps(schema)).version == 1


@pytest.mark.parametrize("text", ["", "{", "7", '{"type": "record"}', '"nothing"', "null"])
def test_what_is_no_schema(text: str) -> None:
    with pytest.raises(BadSchema):
        load_text("test", 1, text)


def test_an_unknown_name() -> None:
    with pytest.raises(BadSchema, match="no schema named"):
        registry.versions("nothing")
