"""The boxes of a fragmented MP4 with one H.264 and one Opus track.

ISO/IEC 14496-12 (the file), 14496-15 (`avc1`), "Encapsulation of Opus in ISO Base Media File
Format" (`Opus`, `dOps`). Track 1 is the picture at 90 kHz, track 2 the sound at 48 kHz.

PURE.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rtc_output.h264 import CHROMA_PROFILES, ParameterSets
from schemas.media import (
    FRAMES_PER_S,
    OPUS_PACKETS_PER_TICK,
    RTP_AUDIO_CLOCK_HZ,
    RTP_VIDEO_CLOCK_HZ,
    SAMPLE_RATE_HZ,
)

VIDEO_TRACK = 1
AUDIO_TRACK = 2
PICTURE_DURATION = RTP_VIDEO_CLOCK_HZ // FRAMES_PER_S
PACKET_DURATION = RTP_AUDIO_CLOCK_HZ // FRAMES_PER_S // OPUS_PACKETS_PER_TICK
# What libopus delays speech by (its look-ahead of 6.5 ms): samples at 48 kHz to skip at the start.
PRE_SKIP = 312
SYNC_SAMPLE = 0x0200_0000
DEPENDENT_SAMPLE = 0x0101_0000
MATRIX = b"".join(
    value.to_bytes(4, "big") for value in (0x10000, 0, 0, 0, 0x10000, 0, 0, 0, 0x4000_0000)
)


@dataclass(frozen=True, slots=True)
class Sample:
    """One access unit (length-prefixed) or Opus packet."""

    data: bytes
    sync: bool = True


def u16(*values: int) -> bytes:
    """Big-endian 16-bit numbers."""
    return b"".join((value & 0xFFFF).to_bytes(2, "big") for value in values)


def u32(*values: int) -> bytes:
    """Big-endian 32-bit numbers."""
    return b"".join((value & 0xFFFF_FFFF).to_bytes(4, "big") for value in values)


def box(kind: bytes, *parts: bytes) -> bytes:
    """A box of this four-character kind."""
    body = b"".join(parts)
    return u32(len(body) + 8) + kind + body


def full_box(kind: bytes, version: int, flags: int, *parts: bytes) -> bytes:
    """A box that begins with its version and flags."""
    return box(kind, u32(version << 24 | flags), *parts)


def init_segment(sets: ParameterSets) -> bytes:
    """`ftyp` and `moov`: all that a player must know before the first fragment."""
    return box(b"ftyp", b"iso6", u32(1), b"iso6", b"mp41", b"avc1") + box(
        b"moov",
        full_box(
            b"mvhd", 0, 0, u32(0, 0, 1000, 0, 0x10000), u16(0x0100), bytes(10), MATRIX,
            bytes(24), u32(AUDIO_TRACK + 1),
        ),
        _video_track(sets),
        _audio_track(),
        box(b"mvex", _trex(VIDEO_TRACK, PICTURE_DURATION), _trex(AUDIO_TRACK, PACKET_DURATION)),
    )  # fmt: skip


def fragment(
    sequence: int,
    *,
    video_start: int,
    audio_start: int,
    pictures: Sequence[Sample],
    packets: Sequence[Sample],
) -> bytes:
    """`moof` and `mdat`. Starts are decode times on each track's clock."""

    def moof(video_offset: int, audio_offset: int) -> bytes:
        return box(
            b"moof",
            full_box(b"mfhd", 0, 0, u32(sequence)),
            _traf(VIDEO_TRACK, video_start, pictures, video_offset),
            _traf(AUDIO_TRACK, audio_start, packets, audio_offset),
        )

    head = len(moof(0, 0)) + 8
    picture_bytes = b"".join(sample.data for sample in pictures)
    packet_bytes = b"".join(sample.data for sample in packets)
    return moof(head, head + len(picture_bytes)) + box(b"mdat", picture_bytes, packet_bytes)


def _traf(track: int, start: int, samples: Sequence[Sample], offset: int) -> bytes:
    rows = b"".join(
        u32(len(sample.data), SYNC_SAMPLE if sample.sync else DEPENDENT_SAMPLE)
        for sample in samples
    )
    return box(
        b"traf",
        full_box(b"tfhd", 0, 0x020000, u32(track)),
        full_box(b"tfdt", 1, 0, start.to_bytes(8, "big")),
        full_box(b"trun", 0, 0x000601, u32(len(samples), offset), rows),
    )


def _trex(track: int, duration: int) -> bytes:
    return full_box(b"trex", 0, 0, u32(track, 1, duration, 0, 0))


def _track(
    number: int, volume: int, size_px: tuple[int, int], edits: bytes, media: Sequence[bytes]
) -> bytes:
    width_px, height_px = size_px
    return box(
        b"trak",
        full_box(
            b"tkhd", 0, 7, u32(0, 0, number, 0, 0), bytes(8), u16(0, 0, volume, 0), MATRIX,
            u32(width_px << 16, height_px << 16),
        ),
        edits,
        box(b"mdia", *media),
    )  # fmt: skip


def _media(clock_hz: int, handler: bytes, name: bytes, header: bytes, entry: bytes) -> list[bytes]:
    tables = [full_box(kind, 0, 0, u32(0)) for kind in (b"stts", b"stsc")]
    tables += [full_box(b"stsz", 0, 0, u32(0, 0)), full_box(b"stco", 0, 0, u32(0))]
    return [
        full_box(b"mdhd", 0, 0, u32(0, 0, clock_hz, 0), u16(0x55C4, 0)),
        full_box(b"hdlr", 0, 0, u32(0), handler, bytes(12), name + b"\x00"),
        box(
            b"minf",
            header,
            box(b"dinf", full_box(b"dref", 0, 0, u32(1), full_box(b"url ", 0, 1))),
            box(b"stbl", full_box(b"stsd", 0, 0, u32(1), entry), *tables),
        ),
    ]


def _video_track(sets: ParameterSets) -> bytes:
    entry = box(
        b"avc1", bytes(6), u16(1), bytes(16), u16(sets.width_px, sets.height_px),
        u32(0x480000, 0x480000, 0), u16(1), bytes(32), u16(24, 0xFFFF), _avcc(sets),
    )  # fmt: skip
    header = full_box(b"vmhd", 0, 1, bytes(8))
    media = _media(RTP_VIDEO_CLOCK_HZ, b"vide", b"picture", header, entry)
    return _track(VIDEO_TRACK, 0, (sets.width_px, sets.height_px), b"", media)


def _avcc(sets: ParameterSets) -> bytes:
    tail = b""
    if sets.sps[1] in CHROMA_PROFILES:
        tail = bytes((0xFC | 1, 0xF8, 0xF8, 0))
    return box(
        b"avcC", bytes((1, *sets.sps[1:4], 0xFF, 0xE1)), u16(len(sets.sps)), sets.sps,
        bytes((1,)), u16(len(sets.pps)), sets.pps, tail,
    )  # fmt: skip


def _audio_track() -> bytes:
    dops = box(b"dOps", bytes((0, 1)), u16(PRE_SKIP), u32(SAMPLE_RATE_HZ), u16(0), bytes(1))
    entry = box(
        b"Opus", bytes(6), u16(1), bytes(8), u16(1, 16, 0, 0), u32(RTP_AUDIO_CLOCK_HZ << 16), dops
    )
    header = full_box(b"smhd", 0, 0, bytes(4))
    media = _media(RTP_AUDIO_CLOCK_HZ, b"soun", b"sound", header, entry)
    # Duration 0 in a fragmented file: from this media time to the end.
    edits = box(b"edts", full_box(b"elst", 0, 0, u32(1, 0, PRE_SKIP, 0x10000)))
    return _track(AUDIO_TRACK, 0x0100, (0, 0), edits, media)
