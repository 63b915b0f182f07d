"""Why a value was not accepted: the reasons are closed, so that counters and alerts can name them.

PURE.
"""

from enum import StrEnum


class DeadLetterReason(StrEnum):
    """Why a record went to the dead-letter topic (or would have to)."""

    BAD_KEY = "bad_key"
    WRONG_PARTITION = "wrong_partition"
    NOT_AVRO_OR_JSON = "not_avro_or_json"
    TRUNCATED = "truncated"
    TRAILING_BYTES = "trailing_bytes"
    UNKNOWN_SCHEMA = "unknown_schema"
    TOO_LARGE = "too_large"
    BAD_SHAPE = "bad_shape"
    BAD_UTF8 = "bad_utf8"
    CONTROL_CHARACTERS = "control_characters"
    EMPTY_TEXT = "empty_text"
    UNKNOWN_LIVE = "unknown_live"
    LIVE_CLOSED = "live_closed"
    DUPLICATE_SEQ = "duplicate_seq"
    BEFORE_LOG_START = "before_log_start"
    PROCESSING_ERROR = "processing_error"


class BadRecord(ValueError):
    """The only exception a decoder of this package raises, whatever bytes it is given."""

    def __init__(self, reason: DeadLetterReason, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail
