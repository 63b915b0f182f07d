"""A capture as a file: one Avro object container of `capture_entry`, readable by any Avro tool.

Written as `<name>.part`, which gets its final name when it is whole: under that name there is never
half a file. Blocks are written whole and are small, so what a killed capture leaves behind is whole
up to its last block, and `CaptureWriter.resume` goes on from there.
"""

import contextlib
import errno
import fcntl
import io
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

import fastavro
from fastavro.read import reader as fastavro_reader

from dhsched.offline.closing import ClosesAtEnd
from dhsched.offline.codecs import CODECS
from dhsched.offline.container import (
    CODEC_KEY,
    SCHEMA_KEY,
    SYNC_BYTES,
    Blocks,
    ContainerHeader,
    NotAContainer,
    PlainStream,
    read_header,
    write_block,
    write_header,
)
from dhsched.offline.entries import CapturedRecord, CaptureHeader, Entry
from dhsched.offline.rows import (
    METADATA_KEY,
    BadRow,
    event_of,
    header_of,
    headers_of,
    metadata_of,
    row_of,
)
from schemas.registry import BadSchema, SchemaVersion, fingerprint, refuse_unbounded, versions

SCHEMA: Final = "capture_entry"
PART_SUFFIX: Final = ".part"
# What a kill loses at most, and what a reader holds at once, apart from one entry.
BLOCK_BYTES: Final = 64 * 1024


class CaptureError(Exception):
    """The file cannot be read (or not be written) as a capture; `str()` says why."""


class CaptureReader(ClosesAtEnd):
    """Iterates over the entries, one block in memory at a time; each iteration starts over.

    A file that ends within a block, or goes on with something else, gives every whole entry before
    it; then `truncated_at` is the byte where the whole part ends, `trouble` says what is there, and
    iteration ends as if the file did. Raises CaptureError when opened: not a container, another
    schema, an unknown codec; and within an iteration for entries that contradict the schema.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.truncated_at: int | None = None
        self.trouble = ""
        self.whole_bytes = 0
        """Where the last block that was read ends."""
        try:
            self._file: BinaryIO = path.open("rb")
        except OSError as error:
            raise CaptureError(f"cannot read {path}: {error.strerror}") from error
        try:
            self._head, self._version = _open(path, self._file)
            self.header = header_of(self._head.metadata.get(METADATA_KEY))
        except BadRow as error:
            self.close()
            raise CaptureError(f"{path}: {error}") from error
        except BaseException:
            self.close()
            raise

    @property
    def codec(self) -> str:
        return self._head.codec

    def __iter__(self) -> Iterator[Entry]:
        self.truncated_at, self.trouble = None, ""
        self.whole_bytes = self._head.size
        blocks = Blocks(self._file, self._head, CODECS[self.codec])
        stream = PlainStream(self._head, blocks)
        newest = versions(SCHEMA)[-1]
        resolved = None if self._version is newest else cast(Any, newest.parsed)
        try:
            for row in fastavro_reader(cast(Any, stream), resolved):
                row = cast("dict[str, Any]", row)
                if row["event"] is None:
                    yield CapturedRecord(
                        row["topic"],
                        row["partition"],
                        row["offset"],
                        row["timestamp_ms"],
                        row["key"],
                        row["value"],
                        headers_of(row["headers"]) if row["headers"] else (),
                    )
                else:
                    yield event_of(row)
        except (EOFError, LookupError, ValueError, TypeError, StopIteration) as error:
            at = self._head.size if stream.block is None else stream.block.start
            raise CaptureError(
                f"{self.path}: the block at byte {at} does not decode: {error or type(error)}"
            ) from error
        self.truncated_at, self.trouble = blocks.truncated_at, blocks.trouble
        if stream.block is not None:
            self.whole_bytes = stream.block.end

    def close(self) -> None:
        self._file.close()


def _open(path: Path, file: BinaryIO) -> tuple[ContainerHeader, SchemaVersion]:
    """Raises CaptureError for what is no capture of ours."""
    try:
        head = read_header(file)
    except OSError as error:
        raise CaptureError(f"cannot read {path}: {error.strerror}") from error
    except NotAContainer as error:
        size = os.fstat(file.fileno()).st_size
        what = "it is empty" if not size else str(error)
        raise CaptureError(f"{path} is no Avro object container file: {what}") from error
    if head.codec not in CODECS:
        known = ", ".join(CODECS)
        raise CaptureError(f"{path}: the codec {head.codec!r} is not known here; known: {known}")
    return head, _version_of(path, head.metadata.get(SCHEMA_KEY, b""))


def _version_of(path: Path, text: bytes) -> SchemaVersion:
    name = ""
    try:
        schema: Any = json.loads(text)
        if isinstance(schema, dict):
            name = str(cast("dict[str, Any]", schema).get("name", ""))
        refuse_unbounded(schema)
        found = fingerprint(schema)
    except (BadSchema, ValueError, KeyError, TypeError, RecursionError) as error:
        raise CaptureError(f"{path}: its schema cannot be read: {error!r}") from error
    except Exception as error:  # fastavro's own kinds, of which some are no ValueError.
        raise CaptureError(f"{path}: its schema cannot be read: {error}") from error
    for version in versions(SCHEMA):
        if version.fingerprint == found:
            return version
    raise CaptureError(
        f"{path} holds {name or 'values'!r} of another schema, not {SCHEMA}: it is no capture"
    )


class CaptureWriter(ClosesAtEnd):
    """Writes entries block by block; see the module. One process writes a file at a time.

    Raises CaptureError: the path exists, an interrupted capture lies there, the disk is full.
    """

    def __init__(
        self,
        path: Path,
        header: CaptureHeader,
        *,
        codec: str = "deflate",
        overwrite: bool = False,
    ) -> None:
        check_codec(codec)
        self.path, self.part = path, part_of(path)
        refuse_existing(path, overwrite=overwrite)
        self._overwrite = overwrite
        self._begin(header, codec)
        if self.part.exists() and self.part.stat().st_size and not overwrite:
            raise CaptureError(
                f"{self.part} is left of a capture that was interrupted: go on with --resume, "
                "or start over with --overwrite"
            )
        try:
            self._file = _locked(self.part, os.O_RDWR | os.O_CREAT)
            self._file.truncate(0)
        except OSError as error:
            raise CaptureError(f"cannot write {self.part}: {error.strerror}") from error
        metadata = {
            CODEC_KEY: codec.encode(),
            SCHEMA_KEY: json.dumps(_plain(versions(SCHEMA)[-1].parsed)).encode(),
            METADATA_KEY: metadata_of(header),
        }
        sync = os.urandom(SYNC_BYTES)
        head = write_header(metadata, sync)
        self._head = ContainerHeader(metadata, sync, len(head))
        try:
            self._file.write(head)
            self._file.flush()
        except OSError as error:
            self.discard()
            raise CaptureError(f"cannot write {self.part}: {error.strerror}") from error

    @classmethod
    def resume(
        cls, path: Path, seen: Callable[[Entry], None], *, overwrite: bool = False
    ) -> "CaptureWriter":
        """Goes on behind the last whole block of an interrupted capture, whose entries are shown to
        `seen`; what lies behind it is cut off. Raises CaptureError.
        """
        part = part_of(path)
        refuse_existing(path, overwrite=overwrite)
        if not part.exists():
            raise CaptureError(f"there is no interrupted capture {part} to go on with")
        self = cls.__new__(cls)
        self.path, self.part = path, part
        self._overwrite = overwrite
        try:
            self._file = _locked(part, os.O_RDWR)
        except OSError as error:
            raise CaptureError(f"cannot write {part}: {error.strerror}") from error
        try:
            with CaptureReader(part) as reader:
                self._head, version = _open(part, self._file)
                if version is not versions(SCHEMA)[-1]:
                    raise CaptureError(f"{part} was begun by another version; start over")
                self._begin(reader.header, reader.codec)
                for entry in reader:
                    seen(entry)
                    self.entries += 1
                self._file.truncate(reader.whole_bytes)
                self._file.seek(reader.whole_bytes)
        except BaseException:
            self._file.close()
            raise
        return self

    def _begin(self, header: CaptureHeader, codec: str) -> None:
        self.header = header
        self.entries = 0
        self._codec = CODECS[codec]
        self._schema = cast(Any, versions(SCHEMA)[-1].parsed)
        self._payload = io.BytesIO()
        self._count = 0

    @property
    def bytes_written(self) -> int:
        """How long the part file is."""
        return self._file.tell()

    def write(self, entry: Entry) -> None:
        row = row_of(entry, self.header.events_topic)
        fastavro.schemaless_writer(self._payload, self._schema, row)
        self._count += 1
        self.entries += 1
        if self._payload.tell() >= BLOCK_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write what was gathered as a block."""
        if not self._count:
            return
        payload = self._payload.getvalue()
        self._payload = io.BytesIO()
        count, self._count = self._count, 0
        self._put(write_block(count, payload, self._codec, self._head.sync))

    def start_over(self) -> None:
        """Take out every entry again; the header stays."""
        self._payload, self._count, self.entries = io.BytesIO(), 0, 0
        self._file.truncate(self._head.size)
        self._file.seek(self._head.size)

    def discard(self) -> None:
        """Leave nothing behind. Nothing may be written after it."""
        self.part.unlink(missing_ok=True)
        self.close()

    def commit(self) -> None:
        """Whole and on the disk, under its final name. Nothing may be written after it."""
        self.flush()
        try:
            os.fsync(self._file.fileno())
            refuse_existing(self.path, overwrite=self._overwrite)
            self.part.replace(self.path)
            self._sync_folder()
        except OSError as error:
            raise self._failed(error) from error
        self.close()

    def close(self) -> None:
        """Without a commit the part file stays, for `resume`."""
        # What a full disk did not take is not taken now either.
        with contextlib.suppress(OSError):
            self._file.close()

    def _put(self, data: bytes) -> None:
        try:
            self._file.write(data)
            self._file.flush()
        except OSError as error:
            raise self._failed(error) from error

    def _failed(self, error: OSError) -> CaptureError:
        where = self.part.parent
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            return CaptureError(
                f"no space left in {where} ({error.strerror}). {self.part.name} holds what was "
                "captured until then: make room and go on with --resume"
            )
        return CaptureError(f"cannot write {self.part}: {error.strerror}")

    def _sync_folder(self) -> None:
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def part_of(path: Path) -> Path:
    """Where a capture lies until it is whole."""
    return path.with_name(path.name + PART_SUFFIX)


def check_codec(codec: str) -> str:
    """Raises CaptureError for a codec that is not known here."""
    if codec not in CODECS:
        raise CaptureError(f"there is no codec {codec!r}; known: {', '.join(CODECS)}")
    return codec


def refuse_existing(path: Path, *, overwrite: bool) -> None:
    """Raises CaptureError when nothing can or may be written there."""
    if path.is_dir():
        raise CaptureError(f"{path} is a folder; name a file")
    if path.exists() and not overwrite:
        raise CaptureError(f"{path} exists; name another file, or replace it with --overwrite")
    if not path.parent.is_dir():
        raise CaptureError(f"the folder {path.parent} does not exist; make it first")


def _locked(part: Path, flags: int) -> BinaryIO:
    """Raises OSError, and CaptureError when another process writes it."""
    file = os.fdopen(os.open(part, flags, 0o666), "r+b")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        file.close()
        raise CaptureError(f"another process writes {part} right now") from error
    if not part.exists() or os.fstat(file.fileno()).st_ino != part.stat().st_ino:
        # Between opening and locking it, its writer gave it its final name: hands off.
        file.close()
        raise CaptureError(f"another process has just finished {part}")
    return file


def _plain(schema: Any) -> Any:
    """A schema as other tools write it, without the marks of fastavro's parser."""
    match schema:
        case dict():
            given = cast("dict[str, Any]", schema)
            return {name: _plain(at) for name, at in given.items() if not name.startswith("__")}
        case list():
            return [_plain(at) for at in cast("list[Any]", schema)]
        case _:
            return schema
