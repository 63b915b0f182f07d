"""As much of H.264 (ITU-T H.264, Annex B and 7.3.2.1) as copying packets into a file needs.

PURE.
"""

from dataclasses import dataclass

NAL_SPS = 7
NAL_PPS = 8
NAL_DELIMITER = 9
START_CODE = b"\x00\x00\x01"
CHROMA_PROFILES = (100, 110, 122, 244, 44, 83, 86, 118, 128)


class BadBitstream(Exception):
    """These bytes are not the H.264 they claim to be."""


@dataclass(frozen=True, slots=True)
class ParameterSets:
    """What a decoder must have before the first key frame, and the picture's size in pixels."""

    sps: bytes
    pps: bytes
    width_px: int
    height_px: int


def split_nals(annex_b: bytes) -> list[bytes]:
    """The NAL units between the start codes, without trailing zeros."""
    parts = annex_b.split(START_CODE)
    if len(parts) < 2 or parts[0].strip(b"\x00"):
        raise BadBitstream("an access unit begins with a start code")
    return [nal for part in parts[1:] if (nal := part.rstrip(b"\x00"))]


def nal_type(nal: bytes) -> int:
    """Table 7-1."""
    return nal[0] & 0x1F


def parameter_sets(nals: list[bytes]) -> ParameterSets | None:
    """The sets of this access unit, when it carries both."""
    sps = next((nal for nal in nals if nal_type(nal) == NAL_SPS), None)
    pps = next((nal for nal in nals if nal_type(nal) == NAL_PPS), None)
    if sps is None or pps is None:
        return None
    width_px, height_px = picture_size(sps)
    return ParameterSets(sps=sps, pps=pps, width_px=width_px, height_px=height_px)


def length_prefixed(nals: list[bytes], known: ParameterSets) -> bytes:
    """One sample of an `avc1` track: delimiters, and sets that the track holds already, are out."""
    kept = [
        nal for nal in nals if nal_type(nal) != NAL_DELIMITER and nal not in (known.sps, known.pps)
    ]
    return b"".join(len(nal).to_bytes(4, "big") + nal for nal in kept)


class _Bits:
    """Reads an RBSP: emulation prevention bytes removed, most significant bit first."""

    def __init__(self, nal: bytes) -> None:
        raw = nal[1:].replace(b"\x00\x00\x03", b"\x00\x00")
        self._value = int.from_bytes(raw, "big")
        self._left = len(raw) * 8

    def u(self, bits: int) -> int:
        if bits > self._left:
            raise BadBitstream("the sequence parameter set ends early")
        self._left -= bits
        return (self._value >> self._left) & ((1 << bits) - 1)

    def ue(self) -> int:
        zeros = 0
        while self.u(1) == 0:
            zeros += 1
            if zeros > 31:
                raise BadBitstream("an Exp-Golomb code is too long")
        return (1 << zeros) - 1 + self.u(zeros)

    def se(self) -> int:
        code = self.ue()
        return (code + 1) // 2 if code % 2 else -(code // 2)


def picture_size(sps: bytes) -> tuple[int, int]:
    """(width, height) in pixels after cropping. Raises BadBitstream."""
    bits = _Bits(sps)
    profile = bits.u(8)
    bits.u(16)
    bits.ue()
    chroma = 1
    if profile in CHROMA_PROFILES:
        chroma = _skip_chroma(bits)
    bits.ue()
    order = bits.ue()
    if order == 0:
        bits.ue()
    elif order == 1:
        bits.u(1)
        bits.se()
        bits.se()
        for _ in range(bits.ue()):
            bits.se()
    bits.ue()
    bits.u(1)
    width = (bits.ue() + 1) * 16
    rows = bits.ue() + 1
    frames_only = bits.u(1)
    height = rows * 16 * (2 - frames_only)
    if not frames_only:
        bits.u(1)
    bits.u(1)
    if bits.u(1):
        left, right, top, bottom = (bits.ue() for _ in range(4))
        across = 2 if chroma in (1, 2) else 1
        down = (2 if chroma == 1 else 1) * (2 - frames_only)
        width -= (left + right) * across
        height -= (top + bottom) * down
    if not 0 < width <= 16384 or not 0 < height <= 16384:
        raise BadBitstream(f"a picture of {width} x {height}")
    return width, height


def _skip_chroma(bits: _Bits) -> int:
    chroma = bits.ue()
    if chroma == 3:
        bits.u(1)
    bits.ue()
    bits.ue()
    bits.u(1)
    if bits.u(1):
        for index in range(8 if chroma != 3 else 12):
            if bits.u(1):
                _skip_scaling_list(bits, 16 if index < 6 else 64)
    return chroma


def _skip_scaling_list(bits: _Bits, size: int) -> None:
    last = following = 8
    for _ in range(size):
        if following:
            following = (last + bits.se()) % 256
        last = following or last
