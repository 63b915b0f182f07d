"""Reading what libx264 writes, and not what only looks like it."""

from fractions import Fraction

import av
import numpy as np
import pytest

from rtc_output.h264 import (
    BadBitstream,
    length_prefixed,
    nal_type,
    parameter_sets,
    picture_size,
    split_nals,
)


def encoded(width: int, height: int, profile: str) -> bytes:
    video = av.CodecContext.create("libx264", "w")
    video.width, video.height = width, height
    video.pix_fmt = "yuv420p"
    video.time_base = Fraction(1, 25)
    video.profile = profile
    video.options = {"preset": "ultrafast", "tune": "zerolatency"}
    frame = av.VideoFrame.from_ndarray(np.zeros((height, width, 3), np.uint8), format="rgb24")
    frame.pts = 0
    return b"".join(bytes(packet) for packet in (*video.encode(frame), *video.encode(None)))


@pytest.mark.parametrize("profile", ["Baseline", "Main", "High"])
@pytest.mark.parametrize("size", [(256, 256), (320, 180), (1280, 720), (202, 118)])
def test_the_size_of_the_picture_is_read_from_its_parameters(
    profile: str, size: tuple[int, int]
) -> None:
    nals = split_nals(encoded(*size, profile))
    sets = parameter_sets(nals)
    assert sets is not None
    assert (sets.width_px, sets.height_px) == size
    sample = length_prefixed(nals, sets)
    kept: list[int] = []
    while sample:
        length = int.from_bytes(sample[:4], "big")
        kept.append(nal_type(sample[4:]))
        sample = sample[4 + length :]
    assert 5 in kept
    assert not {7, 8, 9} & set(kept)


def test_sets_that_changed_stay_in_the_sample() -> None:
    old = parameter_sets(split_nals(encoded(256, 256, "Baseline")))
    nals = split_nals(encoded(320, 180, "Baseline"))
    assert old is not None
    assert nals[0] != old.sps
    assert nals[0] in length_prefixed(nals, old)


def test_start_codes_of_three_and_four_bytes() -> None:
    nals = split_nals(b"\0\0\0\x01\x67\x01\0\0\x01\x68\x02\0\0\0\x01\x65\x03")
    assert nals == [b"\x67\x01", b"\x68\x02", b"\x65\x03"]
    assert parameter_sets([b"\x65\x03"]) is None


@pytest.mark.parametrize("bad", [b"", b"\x67\x42", b"junk\0\0\x01\x65"])
def test_what_has_no_start_code_is_no_access_unit(bad: bytes) -> None:
    with pytest.raises(BadBitstream):
        split_nals(bad)


@pytest.mark.parametrize("bad", [b"\x67", b"\x67\x42\xe0\x1f", b"\x67\x42\xe0\x1f" + bytes(20)])
def test_a_cut_or_empty_parameter_set_is_an_error(bad: bytes) -> None:
    with pytest.raises(BadBitstream):
        picture_size(bad)
