"""The 128-byte header in front of every ring slot: whose the message is and what it holds.

Little-endian, fixed offsets, so that a slot can be read by any process without a schema:

    offset  0 binding u64         8 epoch u64          16 live_slot u32     20 utterance u32
           24 frame_index i64    32 segment_id u64     40 sample_start i64  48 speech_samples u32
           52 flags u32          56 kind u32           60 part_bytes u32 x 4
           80 stamps_us u64 x 4 112 seed u64          120 reserved, zero

PURE.
"""

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from schemas.media import TickFlag
from schemas.quick_init import quick_init

HEADER_BYTES: Final = 128
PARTS_MAX: Final = 4
_LAYOUT: Final = struct.Struct("<QQIIqQqIII4I4x4QQ8x")


class MessageKind(IntEnum):
    """What a slot's payload is; the parts are named in order."""

    SEGMENT_TEXT = 1  # controller -> speech: UTF-8 text
    SEGMENT_VOICE = 2  # speech -> motion: int16 PCM, phoneme table
    TICK_MOTION = 3  # motion -> render: 960 int16 PCM, face parameters float32
    TICK_PICTURE = 4  # render -> encode: 960 int16 PCM, picture u8: I420, or RGB by its length
    TICK_MEDIA = 5  # encode -> controller: Opus packet, Opus packet, Annex-B access unit
    SEGMENT_FAILED = 6  # any stage -> controller, past the stages between: UTF-8 reason


_KINDS: Final = (None, *sorted(MessageKind))
_FLAGS: Final = tuple(TickFlag(bits) for bits in range(2 * max(TickFlag)))
"""Looked up, since making an enum from a number costs more than the rest of a header."""
_NO_PARTS: Final = (0,) * PARTS_MAX


@quick_init
@dataclass(frozen=True, slots=True)
class Header:
    """One message's header.

    `sample_start` is the 24 kHz sample of the segment at which this tick's speech starts, -1 when
    the tick is idle; in SEGMENT_TEXT and SEGMENT_VOICE it is the first sample that is to be heard
    (the feeder's `skip_samples`): what lies before was already emitted by an earlier owner.
    `seed` is the segment's in segment messages, 0 in ticks. `part_bytes` is written by the ring:
    a sender may leave it alone. `stamps_us` are CLOCK_MONOTONIC times: fed, voiced, drawn, encoded.
    """

    kind: MessageKind
    live_slot: int
    binding: int
    epoch: int
    utterance: int = 0
    frame_index: int = 0
    segment_id: int = 0
    sample_start: int = -1
    speech_samples: int = 0
    flags: TickFlag = TickFlag.NONE
    seed: int = 0
    stamps_us: tuple[int, int, int, int] = (0, 0, 0, 0)
    part_bytes: tuple[int, ...] = ()


def pack_header(
    into: bytearray | memoryview, offset: int, header: Header, part_bytes: tuple[int, ...]
) -> None:
    """Write `header` with these part lengths (at most four) at `offset`.

    Raises `struct.error` for a value outside its field.
    """
    first, second, third, fourth = (part_bytes + _NO_PARTS)[:PARTS_MAX]
    fed, voiced, drawn, encoded = header.stamps_us
    _LAYOUT.pack_into(
        into,
        offset,
        header.binding,
        header.epoch,
        header.live_slot,
        header.utterance,
        header.frame_index,
        header.segment_id,
        header.sample_start,
        header.speech_samples,
        header.flags,
        header.kind,
        first,
        second,
        third,
        fourth,
        fed,
        voiced,
        drawn,
        encoded,
        header.seed,
    )


def unpack_header(of: bytes | bytearray | memoryview, offset: int = 0) -> Header:
    """Read the header at `offset`; `part_bytes` always has four entries.

    Raises `ValueError` for a kind or flag that does not exist, which in a published slot means
    that a process wrote outside its own slot: a broken invariant, not a message to skip.
    """
    (
        binding,
        epoch,
        live_slot,
        utterance,
        frame_index,
        segment_id,
        sample_start,
        speech_samples,
        flags,
        number,
        first,
        second,
        third,
        fourth,
        fed,
        voiced,
        drawn,
        encoded,
        seed,
    ) = _LAYOUT.unpack_from(of, offset)
    kind = _KINDS[number] if number < len(_KINDS) else None
    if kind is None or flags >= len(_FLAGS):
        raise ValueError(f"a header of kind {number} with flags {flags:#x}")
    return Header(
        kind,
        live_slot,
        binding,
        epoch,
        utterance,
        frame_index,
        segment_id,
        sample_start,
        speech_samples,
        _FLAGS[flags],
        seed,
        (fed, voiced, drawn, encoded),
        (first, second, third, fourth),
    )
