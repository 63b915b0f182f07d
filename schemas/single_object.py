"""Avro's single-object encoding: C3 01, the schema's fingerprint, the body.

https://avro.apache.org/docs/1.12.0/specification/#single-object-encoding

PURE.
"""

from schemas.bad_record import BadRecord, DeadLetterReason

MARKER = b"\xc3\x01"
HEADER_BYTES = 10


def header(fingerprint: int) -> bytes:
    """The ten bytes before the body; `fingerprint` is unsigned 64 bit."""
    return MARKER + fingerprint.to_bytes(8, "little")


def split(value: bytes) -> tuple[int, bytes]:
    """(fingerprint, body). Raises BadRecord when the marker is missing or the header is cut."""
    if value[:2] != MARKER[: len(value)]:
        raise BadRecord(
            DeadLetterReason.NOT_AVRO_OR_JSON, f"starts with {value[:2].hex()} and not with c301"
        )
    if len(value) < HEADER_BYTES:
        raise BadRecord(DeadLetterReason.TRUNCATED, f"{len(value)} bytes, the header alone is 10")
    return int.from_bytes(value[2:HEADER_BYTES], "little"), value[HEADER_BYTES:]
