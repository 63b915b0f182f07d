import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_stages.header import HEADER_BYTES, Header, MessageKind, pack_header, unpack_header
from schemas.media import TickFlag

u32 = st.integers(0, 2**32 - 1)
u64 = st.integers(0, 2**64 - 1)
i64 = st.integers(-(2**63), 2**63 - 1)


@given(
    st.builds(
        Header,
        kind=st.sampled_from(MessageKind),
        live_slot=u32,
        binding=u64,
        epoch=u64,
        utterance=u32,
        frame_index=i64,
        segment_id=u64,
        sample_start=i64,
        speech_samples=u32,
        flags=st.integers(0, 15).map(TickFlag),
        seed=u64,
        stamps_us=st.tuples(u64, u64, u64, u64),
        part_bytes=st.tuples(u32, u32, u32, u32),
    ),
    st.integers(0, 5),
)
def test_a_header_comes_back_as_it_was(header: Header, slot: int) -> None:
    memory = bytearray(b"\xff" * 6 * HEADER_BYTES)
    pack_header(memory, slot * HEADER_BYTES, header, header.part_bytes)
    assert unpack_header(memory, slot * HEADER_BYTES) == header
    before, after = memory[: slot * HEADER_BYTES], memory[(slot + 1) * HEADER_BYTES :]
    assert set(before + after) <= {0xFF}, "it stays within its 128 bytes"


def test_the_layout_is_the_one_that_is_written_down() -> None:
    memory = bytearray(HEADER_BYTES)
    header = Header(
        MessageKind.TICK_MEDIA, 3, 1, 2, 4, -5, 6, 7, 8, TickFlag.MUTED, 9, (10, 11, 12, 13)
    )
    pack_header(memory, 0, header, (14, 15))
    assert struct.unpack_from("<QQII", memory, 0) == (1, 2, 3, 4)
    assert struct.unpack_from("<qQq", memory, 24) == (-5, 6, 7)
    assert struct.unpack_from("<III4I", memory, 48) == (8, 8, 5, 14, 15, 0, 0)
    assert struct.unpack_from("<4QQQ", memory, 80) == (10, 11, 12, 13, 9, 0)


def test_what_does_not_fit_its_field_is_refused() -> None:
    with pytest.raises(struct.error):
        pack_header(bytearray(HEADER_BYTES), 0, Header(MessageKind.TICK_MEDIA, -1, 1, 1), ())


def test_an_unknown_kind_is_a_broken_invariant() -> None:
    with pytest.raises(ValueError, match="99"):
        unpack_header(bytes(56) + struct.pack("<I", 99) + bytes(68))
