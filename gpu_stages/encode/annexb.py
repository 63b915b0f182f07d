"""What an H.264 access unit in Annex B says of itself: key frame or not, and which profile.

ITU-T H.264, 7.3.1 (NAL unit), 7.3.2.1.1 (sequence parameter set) and annex B (start codes).

PURE.
"""

from collections.abc import Iterator
from typing import Final

BASELINE: Final = 66
_START: Final = b"\x00\x00\x01"
_SLICE, _IDR_SLICE, _SEQUENCE_PARAMETERS = 1, 5, 7


def _nal_starts(unit: bytes) -> Iterator[int]:
    at = unit.find(_START)
    while at >= 0 and at + len(_START) < len(unit):
        yield at + len(_START)
        at = unit.find(_START, at + len(_START))


def is_key_frame(unit: bytes) -> bool:
    """Whether its first slice is of an IDR picture: decoding may start here."""
    for at in _nal_starts(unit):
        kind = unit[at] & 31
        if kind in (_SLICE, _IDR_SLICE):
            return kind == _IDR_SLICE
    return False


def profile_of(unit: bytes) -> int | None:
    """profile_idc of the sequence parameter set in it, if there is one; 66 is baseline."""
    for at in _nal_starts(unit):
        if unit[at] & 31 == _SEQUENCE_PARAMETERS and at + 1 < len(unit):
            return unit[at + 1]
    return None
