"""Identifiers that sort by the time they were made.

PURE.
"""

from functools import lru_cache
from typing import Final

_CROCKFORD: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_PAIRS: Final = tuple(high + low for high in _CROCKFORD for low in _CROCKFORD)
_TIME_SHIFTS: Final = tuple(range(40, -1, -10))
_MS_MAX: Final = 2**48 - 1
ENTROPY_BYTES: Final = 10
_HALF_BYTES: Final = 5


def ulid(now_ms: int, entropy: bytes) -> str:
    """26 characters of Crockford base 32: 48 bits of Unix time and 10 bytes of `entropy`.

    Raises ValueError for a time outside 48 bits or another length of `entropy`.
    """
    if len(entropy) != ENTROPY_BYTES:
        raise ValueError(f"a ULID takes {ENTROPY_BYTES} bytes of entropy, not {len(entropy)}")
    high, low = entropy[:_HALF_BYTES], entropy[_HALF_BYTES:]
    return _time_part(now_ms) + _half(high) + _half(low)


def _half(entropy: bytes) -> str:
    """40 bits as eight characters: a number that fits into a register."""
    number = int.from_bytes(entropy, "big")
    return (
        _PAIRS[number >> 30]
        + _PAIRS[number >> 20 & 0x3FF]
        + _PAIRS[number >> 10 & 0x3FF]
        + _PAIRS[number & 0x3FF]
    )


@lru_cache(maxsize=16)
def _time_part(now_ms: int) -> str:
    """The first ten characters, which all ids of a millisecond have in common."""
    if not 0 <= now_ms <= _MS_MAX:
        raise ValueError(f"{now_ms} ms does not fit into 48 bits")
    return "".join([_PAIRS[now_ms >> shift & 0x3FF] for shift in _TIME_SHIFTS])
