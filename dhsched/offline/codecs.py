"""How blocks of an Avro container are compressed, by the names that Avro gives.

Expanding is bounded: a few bytes of a hostile file stand for gigabytes otherwise.

https://avro.apache.org/docs/1.12.0/specification/#object-container-files

PURE.
"""

import bz2
import lzma
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import cramjam

BLOCK_BYTES_MAX: Final = 64 * 1024 * 1024
_FIRST_GUESS_BYTES: Final = 1024 * 1024
_RAW_DEFLATE: Final = -15
_CRC_BYTES: Final = 4


class BadBlock(ValueError):
    """A block's bytes are not what its codec writes, or expand beyond BLOCK_BYTES_MAX."""


@dataclass(frozen=True, slots=True)
class BlockCodec:
    """`expand` raises BadBlock."""

    compress: Callable[[bytes], bytes]
    expand: Callable[[bytes], bytes]


def _same(data: bytes) -> bytes:
    return data


def _deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(6, zlib.DEFLATED, _RAW_DEFLATE)
    return packer.compress(data) + packer.flush()


def _inflate(data: bytes) -> bytes:
    unpacker = zlib.decompressobj(_RAW_DEFLATE)
    try:
        return _whole(unpacker.decompress(data, BLOCK_BYTES_MAX), unpacker.eof)
    except zlib.error as error:
        raise BadBlock(str(error)) from error


def _bunzip2(data: bytes) -> bytes:
    unpacker = bz2.BZ2Decompressor()
    try:
        return _whole(unpacker.decompress(data, BLOCK_BYTES_MAX), unpacker.eof)
    except OSError as error:
        raise BadBlock(str(error)) from error


def _unxz(data: bytes) -> bytes:
    unpacker = lzma.LZMADecompressor(memlimit=4 * BLOCK_BYTES_MAX)
    try:
        return _whole(unpacker.decompress(data, BLOCK_BYTES_MAX), unpacker.eof)
    except lzma.LZMAError as error:
        raise BadBlock(str(error)) from error


def _whole(expanded: bytes, at_end: bool) -> bytes:
    if not at_end:
        raise BadBlock(f"it does not end within {BLOCK_BYTES_MAX} bytes")
    return expanded


def _snappy(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data)) + zlib.crc32(data).to_bytes(_CRC_BYTES, "big")


def _unsnappy(data: bytes) -> bytes:
    packed, crc = data[:-_CRC_BYTES], data[-_CRC_BYTES:]
    try:
        if cramjam.snappy.decompress_raw_len(packed) > BLOCK_BYTES_MAX:
            raise BadBlock(f"it expands to more than {BLOCK_BYTES_MAX} bytes")
        expanded = bytes(cramjam.snappy.decompress_raw(packed))
    except cramjam.DecompressionError as error:
        raise BadBlock(str(error)) from error
    if zlib.crc32(expanded).to_bytes(_CRC_BYTES, "big") != crc:
        raise BadBlock("its checksum does not fit")
    return expanded


def _zstandard(data: bytes) -> bytes:
    return bytes(cramjam.zstd.compress(data))


def _unzstandard(data: bytes) -> bytes:
    room = _FIRST_GUESS_BYTES
    while True:
        expanded = bytearray(room)
        try:
            size = cramjam.zstd.decompress_into(data, expanded)
        except cramjam.DecompressionError as error:
            if room >= BLOCK_BYTES_MAX:
                raise BadBlock(str(error)) from error
            room *= 4
        else:
            return bytes(memoryview(expanded)[:size])


CODECS: Final[Mapping[str, BlockCodec]] = {
    "null": BlockCodec(_same, _same),
    "deflate": BlockCodec(_deflate, _inflate),
    "zstandard": BlockCodec(_zstandard, _unzstandard),
    "snappy": BlockCodec(_snappy, _unsnappy),
    "bzip2": BlockCodec(bz2.compress, _bunzip2),
    "xz": BlockCodec(lzma.compress, _unxz),
}
