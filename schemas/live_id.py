"""What may name a live: the key of its records, part of store keys, of URLs and of log lines.

PURE.
"""

LIVE_ID_BYTES_MAX = 128


class BadLiveId(ValueError):
    """The caller's fault: not 1 to 128 bytes of UTF-8 without control characters."""


def check_live_id(live_id: str) -> str:
    """The id itself. Raises BadLiveId."""
    raise NotImplementedError


def decode_key(key: bytes | None) -> str:
    """The live a record belongs to. Raises BadRecord with the reason bad_key."""
    raise NotImplementedError
