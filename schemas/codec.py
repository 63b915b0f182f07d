"""One named value in all its versions: writes the newest, reads any of them, trusts no bytes.

fastavro alone accepts over-long integers, negative branch and symbol numbers, negative lengths and
trailing bytes. All of that Avro allows to be written in one way only, so what was decoded is
written again and compared: bytes that our writer would not have produced are refused. (An array
may be cut into blocks in several ways, ours writes one block; no schema for hostile bytes has one.)
"""

import io
from collections.abc import Iterable, Mapping
from typing import Any, cast

import fastavro

from schemas.bad_record import BadRecord, DeadLetterReason
from schemas.registry import SchemaVersion, versions
from schemas.single_object import HEADER_BYTES, split

# FoundationDB's limit for a value; the store's contract takes it for every backend.
STORE_VALUE_BYTES_MAX = 100_000


class Codec:
    """Encodes and decodes one schema's values as dictionaries of fields. Keeps no state."""

    def __init__(self, name: str, given: Iterable[SchemaVersion] | None = None) -> None:
        """`given` replaces the package's own versions of `name`, oldest first (for tests)."""
        known = tuple(versions(name) if given is None else given)
        self.name = name
        self.newest = known[-1]
        self.by_fingerprint: Mapping[int, SchemaVersion] = {v.fingerprint: v for v in known}
        self._header = self.newest.header
        # fastavro's own types ask for its schema class; a parsed schema is a plain dictionary.
        self._schema = cast(Any, self.newest.parsed)

    def encode(self, fields: Mapping[str, object]) -> bytes:
        """An Avro single object. `fields` must fit the schema: checked by the caller's types."""
        out = io.BytesIO()
        out.write(self._header)
        fastavro.schemaless_writer(out, self._schema, fields)
        return out.getvalue()

    def decode_own(self, value: bytes) -> dict[str, Any]:
        """Reads what this system wrote itself: complete and consumed, not compared byte for byte.

        Raises BadRecord.
        """
        if len(value) > STORE_VALUE_BYTES_MAX:
            raise BadRecord(DeadLetterReason.TOO_LARGE, f"{len(value)} bytes")
        if value[:HEADER_BYTES] == self._header:
            source = io.BytesIO(value)
            source.seek(HEADER_BYTES)
            return self._read(source, len(value), self.newest)
        fingerprint, body = split(value)
        return self._read(io.BytesIO(body), len(body), self._version(fingerprint))

    def decode(self, value: bytes, *, bytes_max: int) -> dict[str, Any]:
        """Reads hostile bytes as a single object. Raises BadRecord."""
        if len(value) > bytes_max:
            raise BadRecord(DeadLetterReason.TOO_LARGE, f"{len(value)} of {bytes_max} bytes")
        fingerprint, body = split(value)
        return self.decode_body(body, self._version(fingerprint))

    def decode_body(self, body: bytes, version: SchemaVersion) -> dict[str, Any]:
        """Reads a hostile body, whose length the caller has checked. Raises BadRecord."""
        writer = cast(Any, version.parsed)
        written = self._read(io.BytesIO(body), len(body), version, resolve=False)
        again = io.BytesIO()
        fastavro.schemaless_writer(again, writer, written)
        if again.getvalue() != body:
            raise BadRecord(DeadLetterReason.BAD_SHAPE, "not the canonical encoding of its value")
        if version is self.newest:
            return written
        return self._read(io.BytesIO(body), len(body), version)

    def _version(self, fingerprint: int) -> SchemaVersion:
        found = self.by_fingerprint.get(fingerprint)
        if found is None:
            raise BadRecord(
                DeadLetterReason.UNKNOWN_SCHEMA,
                f"no {self.name} has fingerprint {fingerprint:016x}",
            )
        return found

    def _read(
        self, source: io.BytesIO, end: int, version: SchemaVersion, *, resolve: bool = True
    ) -> dict[str, Any]:
        reader = self._schema if resolve and version is not self.newest else None
        try:
            # Bounded: the schemas are not recursive, array items take bytes, and a length is a
            # slice of `source`, whose size the caller has checked.
            fields = fastavro.schemaless_reader(source, cast(Any, version.parsed), reader)
        except EOFError as error:
            raise BadRecord(DeadLetterReason.TRUNCATED, f"the {self.name} ends early") from error
        except UnicodeDecodeError as error:
            raise BadRecord(DeadLetterReason.BAD_UTF8, str(error)) from error
        except Exception as error:
            # Which exceptions hostile bytes raise inside fastavro is nowhere written down.
            raise BadRecord(
                DeadLetterReason.BAD_SHAPE, f"not a {self.name}: {type(error).__name__}: {error}"
            ) from error
        if source.tell() != end:
            raise BadRecord(
                DeadLetterReason.TRAILING_BYTES, f"{end - source.tell()} bytes after the value"
            )
        return cast("dict[str, Any]", fields)
