"""Text records as they are decoded on this worker: one place, so that every reader agrees."""

from collections.abc import Mapping

from schemas.text_record import BadRecord, TextRecord, decode_text_record
from stream.transport import KafkaRecord


class Decoder:
    """Reads values with the worker's map of schema registry ids, the same on every worker."""

    def __init__(self, confluent_ids: Mapping[int, int] | None = None) -> None:
        self._confluent_ids = dict(confluent_ids or {})

    def decode(self, raw: KafkaRecord) -> TextRecord | BadRecord:
        """The record, or why it cannot be read."""
        try:
            return decode_text_record(raw.value, confluent_ids=self._confluent_ids)
        except BadRecord as error:
            return error
