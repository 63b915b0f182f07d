"""One named value in all its versions: writes the newest, reads any of them, trusts no bytes.

Bytes are read by `schemas.avro_reading`, which takes exactly what `schemas.avro_writing` writes.
What an older version wrote is read as strictly by that version first; only then fastavro, which is
generous with bytes but knows Avro's rules of schema resolution, makes the newest out of it.
"""

import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Final, cast

import fastavro

from schemas.avro_reading import Reader, read_whole, reader_of
from schemas.avro_writing import writer_of
from schemas.bad_record import BadRecord, DeadLetterReason
from schemas.registry import SchemaVersion, versions
from schemas.single_object import HEADER_BYTES, split

# FoundationDB's limit for a value; the store's contract takes it for every backend.
STORE_VALUE_BYTES_MAX: Final = 100_000


@dataclass(frozen=True, slots=True)
class _Version:
    schema: SchemaVersion
    reader: Reader


class Codec:
    """Encodes and decodes the values of one schema. Keeps no state."""

    def __init__(self, name: str, given: Iterable[SchemaVersion] | None = None) -> None:
        """`given` replaces the package's own versions of `name`, oldest first (for tests)."""
        known = [_Version(v, reader_of(v.parsed)) for v in given or versions(name)]
        self.name = name
        self._by_fingerprint = {v.schema.fingerprint: v for v in known}
        self._newest = known[-1]
        self._header = self._newest.schema.header
        self._write = writer_of(self._newest.schema.parsed, self._header)

    @property
    def newest(self) -> SchemaVersion:
        return self._newest.schema

    def encode(self, value: object) -> bytes:
        """An Avro single object, from an object with the schema's fields as attributes.

        Raises BadRecord when a field does not fit, which the caller's types mostly exclude.
        """
        try:
            return self._write(value)
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            raise BadRecord(DeadLetterReason.BAD_SHAPE, f"{self.name}: {error}") from error

    def encode_fields(self, fields: Mapping[str, object]) -> bytes:
        """The same from a mapping."""
        return self.encode(SimpleNamespace(**fields))

    def decode(self, value: bytes, *, bytes_max: int = STORE_VALUE_BYTES_MAX) -> dict[str, Any]:
        """The fields of a single object, as the newest version names them. Raises BadRecord."""
        if len(value) > bytes_max:
            raise BadRecord(DeadLetterReason.TOO_LARGE, f"{len(value)} of {bytes_max} bytes")
        if value[:HEADER_BYTES] == self._header:
            return read_whole(self._newest.reader, value, HEADER_BYTES)
        fingerprint, body = split(value)
        return self.decode_body(body, fingerprint)

    def decode_body(self, body: bytes, fingerprint: int | None = None) -> dict[str, Any]:
        """The fields of a body whose length the caller has checked; None is the newest version."""
        version = self._newest if fingerprint is None else self._by_fingerprint.get(fingerprint)
        if version is None:
            raise BadRecord(
                DeadLetterReason.UNKNOWN_SCHEMA,
                f"no {self.name} has fingerprint {fingerprint:016x}",
            )
        fields = read_whole(version.reader, body)
        if version is self._newest:
            return fields
        try:
            resolved = fastavro.schemaless_reader(
                io.BytesIO(body),
                cast(Any, version.schema.parsed),
                cast(Any, self._newest.schema.parsed),
            )
        except Exception as error:
            # The bytes are good: the schemas do not go together, or fastavro has an opinion.
            raise BadRecord(DeadLetterReason.BAD_SHAPE, f"{self.name}: {error}") from error
        return cast("dict[str, Any]", resolved)
