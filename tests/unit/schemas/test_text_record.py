"""The values of the text topic, and what hostile bytes make of them."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas import registry
from schemas.bad_record import BadRecord, DeadLetterReason
from schemas.codec import Codec
from schemas.text_record import (
    TEXT_BYTES_MAX,
    VALUE_BYTES_MAX,
    RecordKind,
    TextRecord,
    _read_plain_text,
    decode_text_record,
    encode_text_record,
)

HEADER = registry.versions("text_record")[-1].header
FINGERPRINT = registry.versions("text_record")[-1].fingerprint
R = DeadLetterReason


def reason_of(value: bytes | None, **options: Any) -> DeadLetterReason:
    with pytest.raises(BadRecord) as caught:
        decode_text_record(value, **options)
    return caught.value.reason


speakable = st.text(
    st.characters(exclude_categories=("Cs", "Cc"), include_characters="\t\n\r"),
    min_size=1,
    max_size=400,
).filter(lambda text: not text.isspace())
numbers = st.none() | st.integers(0, 2**63 - 1)
ids = st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=32)
records = st.builds(
    TextRecord, st.just(RecordKind.TEXT), speakable, numbers, ids, numbers
) | st.builds(
    TextRecord,
    st.sampled_from([RecordKind.END_TURN, RecordKind.INTERRUPT, RecordKind.CLOSE]),
    st.just(""),
    numbers,
    ids,
    numbers,
)


@given(records)
def test_a_record_is_read_as_it_was_written(record: TextRecord) -> None:
    value = encode_text_record(record)
    assert value.startswith(HEADER)
    assert decode_text_record(value) == record
    body = value[len(HEADER) :]
    assert decode_text_record(b"\x00\x00\x00\x00\x07" + body) == record
    as_json = {
        "kind": str(record.kind),
        "text": record.text,
        "seq": record.seq,
        "event_id": record.event_id,
        "sent_at_ms": record.sent_at_ms,
    }
    assert decode_text_record(json.dumps(as_json).encode()) == record


@pytest.mark.parametrize(
    ("value", "record"),
    [
        (b'{"text": "Hi"}', TextRecord(RecordKind.TEXT, "Hi")),
        (b' \n{"text": "Hi", "seq": 0}', TextRecord(RecordKind.TEXT, "Hi", 0)),
        (b'{"kind":"interrupt"}', TextRecord(RecordKind.INTERRUPT)),
        (b'{"kind":"End_Turn"}', TextRecord(RecordKind.END_TURN)),
        (b'{"kind":"CLOSE","event_id":"e","sent_at_ms":5}',
         TextRecord(RecordKind.CLOSE, event_id="e", sent_at_ms=5)),
        ('{"text": "Gr\\u00fc\\u00dfe\\tü"}'.encode(), TextRecord(RecordKind.TEXT, "Grüße\tü")),
    ],
)  # fmt: skip
def test_json_for_people(value: bytes, record: TextRecord) -> None:
    assert decode_text_record(value) == record


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, R.NOT_AVRO_OR_JSON),
        (b"", R.NOT_AVRO_OR_JSON),
        (b"Hi", R.NOT_AVRO_OR_JSON),
        (b"[1]", R.NOT_AVRO_OR_JSON),
        (b"{", R.NOT_AVRO_OR_JSON),
        (b"  ", R.NOT_AVRO_OR_JSON),
        (b" 7", R.BAD_SHAPE),
        (b'{"text": NaN}', R.NOT_AVRO_OR_JSON),
        (b'{"text": "a", "text": "b"}', R.NOT_AVRO_OR_JSON),
        (b'{"seq":' + b"9" * 5_000 + b"}", R.NOT_AVRO_OR_JSON),
        (b'{"a":' * 10_000, R.NOT_AVRO_OR_JSON),
        (b" " + b"[" * 60_000, R.NOT_AVRO_OR_JSON),
        (b'{"text": "\xff"}', R.BAD_UTF8),
        (b'{"text": "\\ud800"}', R.BAD_UTF8),
        (b'{"text": "a", "event_id": "\\ud800"}', R.BAD_UTF8),
        (b'{"txt": "a"}', R.BAD_SHAPE),
        (b'{"text": 7}', R.BAD_SHAPE),
        (b'{"kind": null, "text": "a"}', R.BAD_SHAPE),
        (b'{"kind": "sing", "text": "a"}', R.BAD_SHAPE),
        (b'{"kind": "interrupt", "text": "a"}', R.BAD_SHAPE),
        (b'{"text": "a", "seq": true}', R.BAD_SHAPE),
        (b'{"text": "a", "seq": 1.0}', R.BAD_SHAPE),
        (b'{"text": "a", "seq": -1}', R.BAD_SHAPE),
        (b'{"text": "a", "seq": 9223372036854775808}', R.BAD_SHAPE),
        (b'{"text": "a", "sent_at_ms": "5"}', R.BAD_SHAPE),
        (b"{}", R.EMPTY_TEXT),
        (b'{"text": " \\n\\t\\u00a0"}', R.EMPTY_TEXT),
        (b'{"text": "a\\u0000"}', R.CONTROL_CHARACTERS),
        (b'{"text": "a\\u001b[2J"}', R.CONTROL_CHARACTERS),
        (b'{"text": "a\\u0085"}', R.CONTROL_CHARACTERS),
        (b'{"text": "a", "event_id": "a\\nb"}', R.CONTROL_CHARACTERS),
        (b'{"text": "' + b"a" * (TEXT_BYTES_MAX + 1) + b'"}', R.TOO_LARGE),
        (b'{"text": "a", "event_id": "' + b"e" * 129 + b'"}', R.TOO_LARGE),
        (b" " * (VALUE_BYTES_MAX + 1), R.TOO_LARGE),
        (b"\xc3", R.TRUNCATED),
        (b"\xc3\x02" + bytes(20), R.NOT_AVRO_OR_JSON),
        (HEADER[:9], R.TRUNCATED),
        (HEADER, R.TRUNCATED),
        (b"\xc3\x01" + bytes(8) + b"\x00", R.UNKNOWN_SCHEMA),
        (b"\x00\x00\x00", R.TRUNCATED),
        (b"\x00\x00\x00\x00\x01", R.TRUNCATED),
    ],
)
def test_what_is_refused_and_why(value: bytes | None, reason: DeadLetterReason) -> None:
    assert reason_of(value) is reason


# kind TEXT, text "Hi", no seq, no event id, no time
BODY = b"\x00\x04Hi\x00\x00\x00"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (BODY + b"\x00", R.TRAILING_BYTES),
        (BODY[:-1], R.TRUNCATED),
        (b"\x80\x00\x04Hi\x00\x00\x00", R.BAD_SHAPE),  # an over-long kind
        (b"\x00\x84\x00Hi\x00\x00\x00", R.BAD_SHAPE),  # an over-long length
        (b"\x00\x04Hi\x80\x80\x80\x00\x00\x00", R.BAD_SHAPE),  # an over-long branch
        (b"\x01\x04Hi\x00\x00\x00", R.BAD_SHAPE),  # symbol -1
        (b"\x07\x04Hi\x00\x00\x00", R.BAD_SHAPE),  # symbol -4
        (b"\x08\x04Hi\x00\x00\x00", R.BAD_SHAPE),  # symbol 4
        (b"\x00\x04Hi\x01\x02\x00\x00", R.BAD_SHAPE),  # branch -1
        (b"\x00\x04Hi\x04\x00\x00", R.BAD_SHAPE),  # branch 2
        (b"\x00\x03Hi\x00\x00\x00", None),  # length -2
        (b"\x00\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01Hi", None),  # length 2^63-1
        (b"\x00" + b"\xff" * 30 + BODY[1:], None),  # an integer without an end
        (b"\x00\x04\xff\xfe\x00\x00\x00", R.BAD_UTF8),
        (b"\x00\x06\xed\xa0\x80\x00\x00\x00", R.BAD_UTF8),  # a surrogate
        (b"\x00\x04Hi\x02\x01\x00\x00", R.BAD_SHAPE),  # seq -1
        (b"\x00\x00\x00\x00\x00", R.EMPTY_TEXT),
    ],
)
def test_bytes_that_fastavro_alone_would_take(body: bytes, reason: DeadLetterReason | None) -> None:
    assert decode_text_record(HEADER + BODY) == TextRecord(RecordKind.TEXT, "Hi")
    found = reason_of(HEADER + body)
    assert reason is None or found is reason


def test_confluent_ids() -> None:
    value = b"\x00\x00\x00\x00\x07" + BODY
    assert decode_text_record(value, confluent_ids={7: FINGERPRINT}).text == "Hi"
    assert decode_text_record(value, confluent_ids={8: 1}).text == "Hi"
    assert reason_of(value, confluent_ids={7: 1}) is R.UNKNOWN_SCHEMA
    assert reason_of(value + b"\x00") is R.TRAILING_BYTES


small = st.sampled_from(["", " ", "a", "a b", "\t", "\n", "\x00", "\x7f", "\x85", "ä", "\u2028"])
anything = st.builds(
    TextRecord,
    st.sampled_from(RecordKind),
    st.lists(small, max_size=3).map("".join) | small.map(lambda text: 130 * text),
    st.none() | st.sampled_from([-(2**63), -1, 0, 63, 64, 2**63 - 1]),
    small.map(lambda name: name * 65) | small,
    st.none() | st.sampled_from([-1, 0, 1_764_000_000_000]),
)


def outcome(value: bytes) -> TextRecord | DeadLetterReason:
    try:
        return decode_text_record(value, confluent_ids={7: FINGERPRINT})
    except BadRecord as error:
        return error.reason


@settings(max_examples=500)
@given(
    anything, st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 7)), max_size=2), st.data()
)
def test_what_is_read_in_one_go_is_what_the_strict_reader_takes(
    record: TextRecord, flips: list[tuple[int, int]], data: st.DataObject
) -> None:
    fields = {**record.as_dict(), "kind": record.kind.value.upper()}
    body = Codec("text_record").encode_fields(fields)[len(HEADER) :]
    for at, bit in flips:
        body = flip(body, at, bit)
    body = body[: data.draw(st.just(len(body)) | st.integers(0, len(body)))]
    assert outcome(HEADER + body) == outcome(b"\x00\x00\x00\x00\x07" + body)


@pytest.mark.parametrize("text", ["A ", "word", "Grüße, ", "a" * 255, "これは文です。"])
def test_a_token_stream_is_read_in_one_go(text: str) -> None:
    record = TextRecord(RecordKind.TEXT, text, 7, "e" * 26, 1_764_000_000_000)
    assert _read_plain_text(encode_text_record(record)) == record


def only_bad_records(value: bytes) -> None:
    """Whatever comes out is a checked record or a BadRecord."""
    try:
        record = decode_text_record(value, confluent_ids={7: FINGERPRINT})
    except BadRecord:
        return
    assert decode_text_record(encode_text_record(record)) == record


@settings(max_examples=300)
@given(st.binary(max_size=300))
def test_random_bytes(value: bytes) -> None:
    for framed in (value, HEADER + value, b"\x00\x00\x00\x00\x07" + value, b"{" + value):
        only_bad_records(framed)


def flip(value: bytes, at: int, bit: int) -> bytes:
    changed = bytearray(value)
    changed[at % len(value)] ^= 1 << bit
    return bytes(changed)


@settings(max_examples=300)
@given(
    records.map(encode_text_record)
    | records.map(lambda record: json.dumps({"text": record.text, "seq": record.seq}).encode()),
    st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 7)), min_size=1, max_size=4),
    st.integers(0, 10_000),
)
def test_damaged_values(value: bytes, flips: list[tuple[int, int]], cut: int) -> None:
    only_bad_records(value[: cut % len(value)])
    only_bad_records(value + value[: cut % len(value)])
    for at, bit in flips:
        value = flip(value, at, bit)
        only_bad_records(value)


@given(records, st.integers(0, 10_000))
def test_a_cut_value_is_never_taken(record: TextRecord, cut: int) -> None:
    value = encode_text_record(record)
    reason_of(value[: cut % len(value)])


@pytest.mark.parametrize(
    "change",
    [
        lambda: TextRecord(RecordKind.TEXT, ""),
        lambda: TextRecord(RecordKind.TEXT, "a\x00"),
        lambda: TextRecord(RecordKind.TEXT, "\ud800"),
        lambda: TextRecord(RecordKind.TEXT, "a" * (TEXT_BYTES_MAX + 1)),
        lambda: TextRecord(RecordKind.CLOSE, "a"),
        lambda: TextRecord(RecordKind.TEXT, "a", seq=2**63),
        lambda: TextRecord(RecordKind.TEXT, "a", event_id="e" * 129),
    ],
)
def test_what_would_be_refused_is_not_written(change: Callable[[], TextRecord]) -> None:
    with pytest.raises(BadRecord):
        encode_text_record(change())
