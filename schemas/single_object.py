"""Avro's single-object encoding: C3 01, the schema's fingerprint, the body.

https://avro.apache.org/docs/1.12.0/specification/#single-object-encoding

PURE.
"""

MARKER = b"\xc3\x01"
HEADER_BYTES = 10


def header(fingerprint: int) -> bytes:
    """The ten bytes before the body; `fingerprint` is unsigned 64 bit."""
    raise NotImplementedError


def split(value: bytes) -> tuple[int, bytes]:
    """(fingerprint, body). Raises BadRecord when the marker is missing or the header is cut."""
    raise NotImplementedError
