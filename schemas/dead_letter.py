"""The value of a record of the dead-letter topic: the original bytes and why they were refused."""

from dataclasses import dataclass
from typing import Final

from schemas.bad_record import BadRecord, DeadLetterReason
from schemas.codec import Codec

__all__ = ["DEAD_LETTER_BYTES_MAX", "DeadLetter", "DeadLetterReason"]

# Kafka's clients refuse records above 1 MiB unless told otherwise. The originals are cut so that
# a dead letter always fits: one that cannot be written would stop its partition.
DEAD_LETTER_BYTES_MAX = 1_000_000
ORIGINAL_VALUE_BYTES_MAX = 786_432
ORIGINAL_KEY_BYTES_MAX = 65_536
DETAIL_CHARS_MAX = 2_000

_CODEC: Final = Codec("dead_letter")


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One refused record. `key` and `value` are its original bytes, `at_ms` is Unix time."""

    reason: DeadLetterReason
    detail: str
    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    at_ms: int

    def encode(self) -> bytes:
        """An Avro single object. A value above 768 KiB is cut, and `detail` then says so."""
        detail = self.detail[:DETAIL_CHARS_MAX].encode(errors="replace").decode()
        key, value = self.key, self.value
        if value is not None and len(value) > ORIGINAL_VALUE_BYTES_MAX:
            detail += f" [value cut from {len(value)} bytes]"
            value = value[:ORIGINAL_VALUE_BYTES_MAX]
        if key is not None and len(key) > ORIGINAL_KEY_BYTES_MAX:
            detail += f" [key cut from {len(key)} bytes]"
            key = key[:ORIGINAL_KEY_BYTES_MAX]
        return _CODEC.encode_fields(
            {
                "reason": self.reason.value,
                "detail": detail,
                "topic": self.topic,
                "partition": self.partition,
                "offset": self.offset,
                "key": key,
                "value": value,
                "at_ms": self.at_ms,
            }
        )

    @classmethod
    def decode(cls, value: bytes | None) -> "DeadLetter":
        """Raises BadRecord."""
        if not value:
            raise BadRecord(DeadLetterReason.NOT_AVRO_OR_JSON, "the value is null or empty")
        fields = _CODEC.decode(value, bytes_max=DEAD_LETTER_BYTES_MAX)
        try:
            fields["reason"] = DeadLetterReason(fields["reason"])
        except ValueError as error:
            raise BadRecord(DeadLetterReason.BAD_SHAPE, str(error)) from error
        return cls(**fields)
