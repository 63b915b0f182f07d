"""Refused records on their way to the dead-letter topic: at least once, each with its reason.

A record counts as disposed of only when its dead letter is in the log, so a send is repeated until
that is certain. A value too large for the topic loses its end, and says so.
"""

import asyncio
from dataclasses import replace
from random import Random

import structlog

from controller.clock import Clock
from controller.counters import Counters
from schemas.bad_record import DeadLetterReason
from schemas.dead_letter import DeadLetter
from schemas.topics import DEAD_LETTER_TOPIC, TEXT_TOPIC
from stream.transport import BrokerAway, Producer, SendRefused, SendUnknown

_log = structlog.get_logger(__name__)

BACK_OFF_MS_MIN = 50
BACK_OFF_MS_MAX = 2_000


class DeadLetters:
    """The way there."""

    def __init__(
        self,
        producer: Producer,
        clock: Clock,
        rng: Random,
        counters: Counters,
        value_bytes_max: int,
    ) -> None:
        self._producer = producer
        self._clock = clock
        self._rng = rng
        self._counters = counters
        self._value_bytes_max = value_bytes_max

    async def send(
        self,
        partition: int,
        offset: int,
        reason: DeadLetterReason,
        detail: str,
        key: bytes | None,
        value: bytes | None,
    ) -> None:
        """Returns when the dead letter of this record of the text topic is in the log."""
        letter = self._fitting(
            DeadLetter(
                reason, detail, TEXT_TOPIC, partition, offset, key, value, self._clock.wall_ms()
            )
        )
        wait_ms = BACK_OFF_MS_MIN
        while True:
            try:
                await self._producer.send(DEAD_LETTER_TOPIC, key=key, value=letter.encode())
            except SendRefused as error:
                # Certain, and repeating would not help: the log of this worker is all that is left.
                self._counters.letters_lost += 1
                _log.error(
                    "dead_letter_refused",
                    partition=partition,
                    offset=offset,
                    reason=reason.value,
                    error=error.reason,
                )
                return
            except (SendUnknown, BrokerAway) as error:
                self._counters.retries["dead_letter"] += 1
                _log.warning("dead_letter_repeated", offset=offset, error=str(error))
            else:
                self._counters.dead_letters[reason.value] += 1
                return
            await asyncio.sleep(wait_ms * self._rng.uniform(0.5, 1.0) / 1000)
            wait_ms = min(2 * wait_ms, BACK_OFF_MS_MAX)

    def _fitting(self, letter: DeadLetter) -> DeadLetter:
        value = letter.value
        if value is None or len(value) <= self._value_bytes_max:
            return letter
        self._counters.letters_cut += 1
        kept = self._value_bytes_max
        detail = f"{letter.detail} (only the first {kept} of {len(value)} bytes are kept)"
        return replace(letter, detail=detail, value=value[:kept])
