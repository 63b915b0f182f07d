"""The value of a record of the dead-letter topic: the original bytes and why they were refused."""

from dataclasses import dataclass

from schemas.bad_record import DeadLetterReason

__all__ = ["DeadLetter", "DeadLetterReason"]


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One refused record. `key` and `value` are its original bytes, `at_ms` is Unix time."""

    reason: DeadLetterReason
    detail: str
    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    at_ms: int

    def encode(self) -> bytes:
        """An Avro single object."""
        raise NotImplementedError

    @classmethod
    def decode(cls, value: bytes | None) -> "DeadLetter":
        """Raises BadRecord."""
        raise NotImplementedError
