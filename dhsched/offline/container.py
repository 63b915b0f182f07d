"""The frame of an Avro object container file: its header, and blocks between sync markers.

fastavro reads such files too, but says neither where the last whole block of a damaged file ends
nor how much a block may expand to, and a schema that contains itself ends its process. So the frame
is read here, and what goes to fastavro are whole, expanded blocks of a schema that is known.

https://avro.apache.org/docs/1.12.0/specification/#object-container-files
"""

import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import BinaryIO, Final

from dhsched.offline.codecs import BLOCK_BYTES_MAX, BadBlock, BlockCodec

MAGIC: Final = b"Obj\x01"
SYNC_BYTES: Final = 16
SCHEMA_KEY: Final = "avro.schema"
CODEC_KEY: Final = "avro.codec"
_HEADER_BYTES_MAX: Final = 1024 * 1024
_LONG_BYTES_MAX: Final = 10


class NotAContainer(ValueError):
    """The file does not begin as a container does."""


class _EndsEarly(Exception):
    """The bytes end within what was being read."""


@dataclass(frozen=True, slots=True)
class ContainerHeader:
    """`size` is where the first block begins."""

    metadata: Mapping[str, bytes]
    sync: bytes
    size: int

    @property
    def codec(self) -> str:
        return self.metadata.get(CODEC_KEY, b"null").decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class Block:
    """`payload` holds `count` entries, expanded; the block takes [start, end) of the file."""

    start: int
    end: int
    count: int
    payload: bytes


def write_long(number: int) -> bytes:
    """A count or length as Avro writes it."""
    rest, out = number << 1, bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def write_header(metadata: Mapping[str, bytes], sync: bytes) -> bytes:
    """A container's beginning."""
    parts = [MAGIC, write_long(len(metadata))]
    for name, value in metadata.items():
        raw = name.encode()
        parts += [write_long(len(raw)), raw, write_long(len(value)), value]
    return b"".join([*parts, write_long(0), sync])


def write_block(count: int, payload: bytes, codec: BlockCodec, sync: bytes) -> bytes:
    """One block."""
    packed = codec.compress(payload)
    return b"".join([write_long(count), write_long(len(packed)), packed, sync])


def read_header(file: BinaryIO) -> ContainerHeader:
    """From the file's beginning. Raises NotAContainer."""
    file.seek(0)
    head = io.BytesIO(file.read(_HEADER_BYTES_MAX))
    if head.read(len(MAGIC)) != MAGIC:
        raise NotAContainer("it does not begin with the bytes 'Obj' 01 of an Avro container")
    try:
        metadata = _read_metadata(head)
        sync = _take(head, SYNC_BYTES)
    except _EndsEarly:
        raise NotAContainer("its header is cut off") from None
    except (ValueError, UnicodeDecodeError) as error:
        raise NotAContainer(f"its header cannot be read: {error}") from error
    return ContainerHeader(metadata, sync, head.tell())


class Blocks:
    """Iterates over the whole blocks from the header on.

    When the rest of the file is no whole block, iteration ends, `truncated_at` is where that rest
    begins and `trouble` says what is wrong with it.
    """

    def __init__(self, file: BinaryIO, header: ContainerHeader, codec: BlockCodec) -> None:
        self._file = file
        self._header = header
        self._codec = codec
        self.truncated_at: int | None = None
        self.trouble = ""

    def __iter__(self) -> Iterator[Block]:
        at = self._header.size
        self._file.seek(at)
        while True:
            try:
                block = self._next(at)
            except _EndsEarly:
                self.truncated_at, self.trouble = at, "the file ends within a block"
                return
            except ValueError as error:
                self.truncated_at, self.trouble = at, f"what follows is no block: {error}"
                return
            if block is None:
                return
            yield block
            at = block.end
            self._file.seek(at)

    def _next(self, at: int) -> Block | None:
        first = self._file.read(1)
        if not first:
            return None
        count = _read_long(self._file, first)
        size = _read_long(self._file)
        if count < 0 or not 0 <= size <= BLOCK_BYTES_MAX:
            raise ValueError(f"{count} entries in {size} bytes")
        packed = _take(self._file, size)
        if _take(self._file, SYNC_BYTES) != self._header.sync:
            raise ValueError("the sync marker is missing")
        try:
            payload = self._codec.expand(packed)
        except BadBlock as error:
            raise ValueError(str(error)) from error
        if count > len(payload):
            raise ValueError(f"{count} entries in {len(payload)} bytes")
        return Block(at, self._file.tell(), count, payload)


class PlainStream:
    """The same container as a file without compression, made block by block while it is read.

    `block` is the one that was handed out last.
    """

    def __init__(self, header: ContainerHeader, blocks: Blocks) -> None:
        plain = {**header.metadata, CODEC_KEY: b"null"}
        self._sync = header.sync
        self._pieces = iter(blocks)
        self._now = io.BytesIO(write_header(plain, header.sync))
        self.block: Block | None = None

    def read(self, size: int = -1) -> bytes:
        """`size` bytes, or fewer at a block's end; b"" at the file's."""
        found = self._now.read(size)
        if found or size == 0:
            return found
        block = next(self._pieces, None)
        if block is None:
            return b""
        self.block = block
        frame = write_long(block.count), write_long(len(block.payload)), block.payload, self._sync
        self._now = io.BytesIO(b"".join(frame))
        return self._now.read(size)


def _read_metadata(head: BinaryIO) -> dict[str, bytes]:
    metadata: dict[str, bytes] = {}
    while count := _read_long(head):
        if count < 0:
            _read_long(head)  # How many bytes they take.
        for _ in range(abs(count)):
            name = _take(head, _length(head)).decode()
            metadata[name] = _take(head, _length(head))
    return metadata


def _length(file: BinaryIO) -> int:
    size = _read_long(file)
    if size < 0:
        raise ValueError(f"a length of {size}")
    return size


def _read_long(file: BinaryIO, first: bytes = b"") -> int:
    number = 0
    for shift in range(0, 7 * _LONG_BYTES_MAX, 7):
        byte = (first or _take(file, 1))[0]
        first = b""
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1)
    raise ValueError("an integer of more than ten bytes")


def _take(file: BinaryIO, size: int) -> bytes:
    found = file.read(size)
    if len(found) < size:
        raise _EndsEarly
    return found
