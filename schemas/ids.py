"""Identifiers that sort by the time they were made.

PURE.
"""


def ulid(now_ms: int, entropy: bytes) -> str:
    """26 characters of Crockford base 32: 48 bits of Unix time and 10 bytes of `entropy`."""
    raise NotImplementedError
