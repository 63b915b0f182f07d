"""Identifiers that sort by the time they were made.

PURE.
"""

from functools import lru_cache

_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_PAIRS = tuple(high + low for high in _CROCKFORD for low in _CROCKFORD)
_TIME_SHIFTS = tuple(range(40, -1, -10))
_ENTROPY_SHIFTS = tuple(range(70, -1, -10))
_MS_MAX = 2**48 - 1
ENTROPY_BYTES = 10


def ulid(now_ms: int, entropy: bytes) -> str:
    """26 characters of Crockford base 32: 48 bits of Unix time and 10 bytes of `entropy`.

    Raises ValueError for a time outside 48 bits or another length of `entropy`.
    """
    if len(entropy) != ENTROPY_BYTES:
        raise ValueError(f"a ULID takes {ENTROPY_BYTES} bytes of entropy, not {len(entropy)}")
    number = int.from_bytes(entropy, "big")
    return _time_part(now_ms) + "".join(
        [_PAIRS[number >> shift & 0x3FF] for shift in _ENTROPY_SHIFTS]
    )


@lru_cache(maxsize=16)
def _time_part(now_ms: int) -> str:
    """The first ten characters, which all ids of a millisecond have in common."""
    if not 0 <= now_ms <= _MS_MAX:
        raise ValueError(f"{now_ms} ms does not fit into 48 bits")
    return "".join([_PAIRS[now_ms >> shift & 0x3FF] for shift in _TIME_SHIFTS])
