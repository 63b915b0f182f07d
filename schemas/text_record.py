"""The value of a record of the text topic: Avro single object, Confluent framing or plain JSON."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from schemas.bad_record import BadRecord, DeadLetterReason

__all__ = [
    "TEXT_BYTES_MAX",
    "VALUE_BYTES_MAX",
    "BadRecord",
    "DeadLetterReason",
    "RecordKind",
    "TextRecord",
    "decode_text_record",
    "encode_text_record",
]

TEXT_BYTES_MAX = 16_384
VALUE_BYTES_MAX = 65_536


class RecordKind(StrEnum):
    """What a text record asks for."""

    TEXT = "text"
    END_TURN = "end_turn"
    INTERRUPT = "interrupt"
    CLOSE = "close"


@dataclass(frozen=True, slots=True)
class TextRecord:
    """One record of a live's input, in the order of its partition.

    `seq` grows per live and makes a producer's retries idempotent; `event_id` names the record in
    events that it causes; `sent_at_ms` is the producer's Unix time.
    """

    kind: RecordKind
    text: str = ""
    seq: int | None = None
    event_id: str = ""
    sent_at_ms: int | None = None


def encode_text_record(record: TextRecord) -> bytes:
    """The record as an Avro single object of the newest schema. Raises BadRecord as decoding does."""
    raise NotImplementedError


def decode_text_record(
    value: bytes | None, *, confluent_ids: Mapping[int, int] | None = None
) -> TextRecord:
    """Reads hostile bytes; only BadRecord comes out of it.

    `confluent_ids` maps the ids of a schema registry to fingerprints; an id that is not in it is
    read with the newest schema.
    """
    raise NotImplementedError
