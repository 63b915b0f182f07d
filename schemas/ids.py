"""Identifiers that sort by the time they were made.

PURE.
"""

from functools import lru_cache
from typing import Final

_CROCKFORD: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_PAIRS: Final = tuple(high + low for high in _CROCKFORD for low in _CROCKFORD)
_TIME_SHIFTS: Final = tuple(range(40, -1, -10))
# 80 bits in two halves: numbers that fit into a register.
_HALF_BYTES: Final = 5
_HALF_SHIFTS: Final = (30, 20, 10, 0)
_MS_MAX: Final = 2**48 - 1
ENTROPY_BYTES: Final = 10


def ulid(now_ms: int, entropy: bytes) -> str:
    """26 characters of Crockford base 32: 48 bits of Unix time and 10 bytes of `entropy`.

    Raises ValueError for a time outside 48 bits or another length of `entropy`.
    """
    if len(entropy) != ENTROPY_BYTES:
        raise ValueError(f"a ULID takes {ENTROPY_BYTES} bytes of entropy, not {len(entropy)}")
    high = int.from_bytes(entropy[:_HALF_BYTES], "big")
    low = int.from_bytes(entropy[_HALF_BYTES:], "big")
    return _time_part(now_ms) + "".join(
        [
            *[_PAIRS[high >> shift & 0x3FF] for shift in _HALF_SHIFTS],
            *[_PAIRS[low >> shift & 0x3FF] for shift in _HALF_SHIFTS],
        ]
    )


@lru_cache(maxsize=16)
def _time_part(now_ms: int) -> str:
    """The first ten characters, which all ids of a millisecond have in common."""
    if not 0 <= now_ms <= _MS_MAX:
        raise ValueError(f"{now_ms} ms does not fit into 48 bits")
    return "".join([_PAIRS[now_ms >> shift & 0x3FF] for shift in _TIME_SHIFTS])
