"""The value of a record of the text topic: Avro single object, Confluent framing or plain JSON.

The first byte decides: C3 is a single object, 00 is the framing of a schema registry's clients
(four bytes of schema id follow), `{` or white space is JSON, for people with a command line.
"""

import json
import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, final

from schemas.avro_reading import read_long
from schemas.bad_record import BadRecord, DeadLetterReason
from schemas.codec import Codec
from schemas.single_object import HEADER_BYTES
from schemas.value import Value

__all__ = [
    "EVENT_ID_BYTES_MAX",
    "TEXT_BYTES_MAX",
    "VALUE_BYTES_MAX",
    "BadRecord",
    "DeadLetterReason",
    "RecordKind",
    "TextRecord",
    "check_text_record",
    "decode_text_record",
    "encode_text_record",
]

TEXT_BYTES_MAX: Final = 16_384
VALUE_BYTES_MAX: Final = 65_536
EVENT_ID_BYTES_MAX: Final = 128

_INT64_MAX: Final = 2**63 - 1
_CONFLUENT_HEADER_BYTES: Final = 5
# All of Unicode's category Cc, but tab, line feed and carriage return, which a text may hold.
_CONTROL: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
# Those of them that are ASCII. Deleting them from bytes is a third of the work of looking at every
# character, from a certain length on.
_CONTROL_BYTES: Final = bytes([byte for byte in range(0x80) if _CONTROL.match(chr(byte))])
_DELETE_FROM_CHARS: Final = 256
# An id stands in one line of a log: there those three are refused too.
_CONTROL_IN_ID: Final = re.compile("[\x00-\x1f\x7f-\x9f]")
_JSON_KEYS: Final = frozenset({"kind", "text", "seq", "event_id", "sent_at_ms"})
_CODEC: Final = Codec("text_record")


class RecordKind(StrEnum):
    """What a text record asks for."""

    TEXT = "text"
    END_TURN = "end_turn"
    INTERRUPT = "interrupt"
    CLOSE = "close"


_KINDS: Final[Mapping[str, RecordKind]] = {kind.value.upper(): kind for kind in RecordKind}
# How `_read_plain_text` sees the newest schema.
_HEADER: Final = _CODEC.newest.header
_KIND_AT: Final = HEADER_BYTES
_TEXT: Final = RecordKind.TEXT
_TEXT_SYMBOL: Final = 0


@final
class TextRecord(Value):
    """One record of a live's input, in the order of its partition.

    `seq` grows per live and makes a producer's retries idempotent; `event_id` names the record in
    events that it causes; `sent_at_ms` is the producer's Unix time. Only TEXT carries a text.
    """

    __match_args__ = ("kind", "text", "seq", "event_id", "sent_at_ms")
    __slots__ = __match_args__

    def __init__(
        self,
        kind: RecordKind,
        text: str = "",
        seq: int | None = None,
        event_id: str = "",
        sent_at_ms: int | None = None,
    ) -> None:
        self.kind: Final = kind
        self.text: Final = text
        self.seq: Final = seq
        self.event_id: Final = event_id
        self.sent_at_ms: Final = sent_at_ms


def encode_text_record(record: TextRecord) -> bytes:
    """An Avro single object of the newest schema. Raises BadRecord for what decoding refuses."""
    check_text_record(record)
    return _CODEC.encode_fields(
        {
            "kind": record.kind.value.upper(),
            "text": record.text,
            "seq": record.seq,
            "event_id": record.event_id,
            "sent_at_ms": record.sent_at_ms,
        }
    )


def decode_text_record(
    value: bytes | None, *, confluent_ids: Mapping[int, int] | None = None
) -> TextRecord:
    """Reads hostile bytes; only BadRecord comes out of it.

    `confluent_ids` maps the ids of a schema registry to fingerprints; an id that is not in it is
    read with the newest schema.
    """
    if not value:
        raise BadRecord(DeadLetterReason.NOT_AVRO_OR_JSON, "the value is null or empty")
    if len(value) > VALUE_BYTES_MAX:
        raise BadRecord(DeadLetterReason.TOO_LARGE, f"{len(value)} of {VALUE_BYTES_MAX} bytes")
    record = _read_plain_text(value)
    if record is None:
        fields = _decode_other(value, confluent_ids or {})
        fields["kind"] = _KINDS[fields["kind"]]
        record = TextRecord(**fields)
        check_text_record(record)
    return record


def _read_plain_text(value: bytes) -> TextRecord | None:
    """What nearly every record of a token stream is, read in one go: a short text of the newest
    schema that passes `check_text_record`. None says nothing: the strict reader and all checks
    decide, and find the words for what is wrong."""
    if not value.startswith(_HEADER):
        return None
    try:
        if value[_KIND_AT] != _TEXT_SYMBOL:
            return None
        text, at = _read_short(value, _KIND_AT + 1, _DELETE_FROM_CHARS - 1)
        seq, at = _read_natural(value, at)
        event_id, at = _read_short(value, at, EVENT_ID_BYTES_MAX)
        sent_at_ms, at = _read_natural(value, at)
    except (IndexError, ValueError):
        return None
    if at != len(value) or not text or text.isspace():
        return None
    # No character of Unicode's category Cc is printable.
    if not (text.isprintable() and event_id.isprintable()):
        return None
    return TextRecord(_TEXT, text, seq, event_id, sent_at_ms)


def _read_short(value: bytes, at: int, bytes_max: int) -> tuple[str, int]:
    """A text and where the next field begins. Raises IndexError or ValueError for any other."""
    size, at = read_long(value, at)
    end = at + size
    if not 0 <= size <= bytes_max or end > len(value):
        raise IndexError
    return value[at:end].decode(), end


def _read_natural(value: bytes, at: int) -> tuple[int | None, int]:
    """A number from 0 on or none, and where the next field begins. Raises IndexError or ValueError
    for any other."""
    branch = value[at]
    if branch == 0:
        return None, at + 1
    number, at = read_long(value, at + 1)
    if branch != 2 or number < 0:
        raise IndexError
    return number, at


def _decode_other(value: bytes, confluent_ids: Mapping[int, int]) -> dict[str, Any]:
    """The fields of whatever the first byte announces."""
    first = value[0]
    if first == 0xC3:
        return _CODEC.decode(value, bytes_max=VALUE_BYTES_MAX)
    if first == 0x00:
        return _decode_confluent(value, confluent_ids)
    if first in b"{ \t\r\n":
        return _decode_json(value)
    raise BadRecord(DeadLetterReason.NOT_AVRO_OR_JSON, f"the first byte is {first:02x}")


def check_text_record(record: TextRecord) -> None:
    """Raises BadRecord unless every field is within its bounds."""
    _check_text(record.kind, record.text)
    event_id = record.event_id
    if _utf8_bytes("event_id", event_id) > EVENT_ID_BYTES_MAX:
        raise BadRecord(
            DeadLetterReason.TOO_LARGE, f"event_id is longer than {EVENT_ID_BYTES_MAX} bytes"
        )
    if not event_id.isprintable() and _CONTROL_IN_ID.search(event_id):
        raise BadRecord(DeadLetterReason.CONTROL_CHARACTERS, "event_id holds control characters")
    seq, sent_at_ms = record.seq, record.sent_at_ms
    if seq is not None and not 0 <= seq <= _INT64_MAX:
        raise BadRecord(DeadLetterReason.BAD_SHAPE, f"seq is {seq}, not 0 to 2^63-1")
    if sent_at_ms is not None and not 0 <= sent_at_ms <= _INT64_MAX:
        raise BadRecord(DeadLetterReason.BAD_SHAPE, f"sent_at_ms is {sent_at_ms}, not 0 to 2^63-1")


def _check_text(kind: RecordKind, text: str) -> None:
    text_bytes = _utf8_bytes("text", text)
    if text_bytes > TEXT_BYTES_MAX:
        raise BadRecord(
            DeadLetterReason.TOO_LARGE, f"the text has {text_bytes} of {TEXT_BYTES_MAX} bytes"
        )
    if kind is not RecordKind.TEXT:
        if text:
            raise BadRecord(DeadLetterReason.BAD_SHAPE, f"a text in a record of kind {kind}")
        return
    if not text or text.isspace():
        raise BadRecord(DeadLetterReason.EMPTY_TEXT, "nothing to speak")
    if _surely_without_control(text):
        return
    found = _CONTROL.search(text)
    if found is not None:
        raise BadRecord(
            DeadLetterReason.CONTROL_CHARACTERS,
            f"U+{ord(found.group()):04X} at character {found.start()}",
        )


def _surely_without_control(text: str) -> bool:
    """What most texts pass, with less work than a search takes. False says nothing."""
    if len(text) < _DELETE_FROM_CHARS or not text.isascii():
        return text.isprintable()
    return len(text.encode().translate(None, _CONTROL_BYTES)) == len(text)


def _utf8_bytes(name: str, text: str) -> int:
    if text.isascii():
        return len(text)
    try:
        return len(text.encode())
    except UnicodeEncodeError as error:
        raise BadRecord(DeadLetterReason.BAD_UTF8, f"{name}: {error.reason}") from error


def _decode_confluent(value: bytes, confluent_ids: Mapping[int, int]) -> dict[str, Any]:
    if len(value) < _CONFLUENT_HEADER_BYTES:
        raise BadRecord(DeadLetterReason.TRUNCATED, f"{len(value)} bytes, the framing alone is 5")
    schema_id = int.from_bytes(value[1:_CONFLUENT_HEADER_BYTES], "big")
    return _CODEC.decode_body(value[_CONFLUENT_HEADER_BYTES:], confluent_ids.get(schema_id))


def _decode_json(value: bytes) -> dict[str, Any]:
    try:
        text = value.decode("utf-8", errors="strict")
    except UnicodeDecodeError as error:
        raise BadRecord(DeadLetterReason.BAD_UTF8, str(error)) from error
    try:
        given = json.loads(text, object_pairs_hook=_once, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise BadRecord(DeadLetterReason.NOT_AVRO_OR_JSON, f"not JSON: {error}") from error
    if not isinstance(given, dict):
        raise BadRecord(DeadLetterReason.BAD_SHAPE, "the JSON is not an object")
    fields: dict[str, Any] = {
        "kind": "TEXT",
        "text": "",
        "seq": None,
        "event_id": "",
        "sent_at_ms": None,
    }
    fields.update(given)
    unknown = fields.keys() - _JSON_KEYS
    if unknown:
        raise BadRecord(DeadLetterReason.BAD_SHAPE, f"unknown key {min(unknown)[:64]!r}")
    for name in ("kind", "text", "event_id"):
        if not isinstance(fields[name], str):
            raise BadRecord(DeadLetterReason.BAD_SHAPE, f"{name} is not a string")
    for name in ("seq", "sent_at_ms"):
        if fields[name] is not None and type(fields[name]) is not int:
            raise BadRecord(DeadLetterReason.BAD_SHAPE, f"{name} is not an integer")
    fields["kind"] = fields["kind"].upper()
    if fields["kind"] not in _KINDS:
        raise BadRecord(DeadLetterReason.BAD_SHAPE, f"unknown kind {fields['kind'][:64]!r}")
    return fields


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key comes twice")
    return found


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")
