"""Keeps aiokafka's log readable: an absent broker is one line now and then, not a hundred.

It logs every attempt to connect as an error, for each of its clients. Those lines say nothing new
after the first; what is new is raised to our callers anyway.
"""

import logging
from typing import Final

REPEAT_AFTER_S: Final = 10.0
_LOGGERS: Final = (
    "aiokafka",
    "aiokafka.conn",
    "aiokafka.consumer.fetcher",
    "aiokafka.consumer.group_coordinator",
    "aiokafka.producer.sender",
)
# The embedded broker gives out no producer ids. That is asked on purpose and told in our own words.
_EXPECTED: Final = ("Unexpected error during InitProducerIdRequest: %s",)


class Repeats(logging.Filter):
    """Lets a message of one logger through once in `REPEAT_AFTER_S`, whatever its arguments."""

    def __init__(self) -> None:
        super().__init__()
        self._last_s: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        message = str(record.msg)
        if message in _EXPECTED:
            return False
        if record.levelno < logging.WARNING:
            return True
        last_s = self._last_s.get(message)
        if last_s is not None and 0 <= record.created - last_s < REPEAT_AFTER_S:
            return False
        self._last_s[message] = record.created
        return True


def keep_readable() -> None:
    """Safe to call again."""
    for name in _LOGGERS:
        logger = logging.getLogger(name)
        if not any(isinstance(known, Repeats) for known in logger.filters):
            logger.addFilter(Repeats())
