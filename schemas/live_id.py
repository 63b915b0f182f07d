"""What may name a live: the key of its records, part of store keys, of URLs and of log lines.

PURE.
"""

import unicodedata

from schemas.bad_record import BadRecord, DeadLetterReason

LIVE_ID_BYTES_MAX = 128


class BadLiveId(ValueError):
    """The caller's fault: not 1 to 128 bytes of UTF-8 without control characters."""


def check_live_id(live_id: str) -> str:
    """The id itself. Raises BadLiveId."""
    try:
        size = len(live_id.encode())
    except UnicodeEncodeError as error:
        raise BadLiveId("a live id must be valid Unicode") from error
    if not 1 <= size <= LIVE_ID_BYTES_MAX:
        raise BadLiveId(f"a live id has 1 to {LIVE_ID_BYTES_MAX} bytes, this one has {size}")
    if not live_id.isprintable() and any(unicodedata.category(c) == "Cc" for c in live_id):
        raise BadLiveId("a live id holds no control characters")
    return live_id


def decode_key(key: bytes | None) -> str:
    """The live a record belongs to. Raises BadRecord with the reason bad_key."""
    if key is None:
        raise BadRecord(DeadLetterReason.BAD_KEY, "the record has no key; the key names the live")
    try:
        return check_live_id(key.decode())
    except UnicodeDecodeError as error:
        raise BadRecord(DeadLetterReason.BAD_KEY, f"the key is not UTF-8: {error}") from error
    except BadLiveId as error:
        raise BadRecord(DeadLetterReason.BAD_KEY, str(error)) from error
