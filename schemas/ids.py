"""Identifiers that sort by the time they were made.

PURE.
"""

_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_PAIRS = tuple(high + low for high in _CROCKFORD for low in _CROCKFORD)
_SHIFTS = tuple(range(120, -1, -10))
_MS_MAX = 2**48 - 1
ENTROPY_BYTES = 10


def ulid(now_ms: int, entropy: bytes) -> str:
    """26 characters of Crockford base 32: 48 bits of Unix time and 10 bytes of `entropy`.

    Raises ValueError for a time outside 48 bits or another length of `entropy`.
    """
    if not 0 <= now_ms <= _MS_MAX:
        raise ValueError(f"{now_ms} ms does not fit into 48 bits")
    if len(entropy) != ENTROPY_BYTES:
        raise ValueError(f"a ULID takes {ENTROPY_BYTES} bytes of entropy, not {len(entropy)}")
    number = now_ms << 80 | int.from_bytes(entropy, "big")
    return "".join([_PAIRS[number >> shift & 0x3FF] for shift in _SHIFTS])
