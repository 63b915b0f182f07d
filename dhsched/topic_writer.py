"""Produces to the text topic as any Kafka client may, for the commands of this package."""

import contextlib
import os
import time
from collections.abc import AsyncGenerator
from typing import Final

from dhsched.output import CommandFailed
from dhsched.text_source import records
from schemas.ids import ulid
from schemas.text_record import RecordKind, TextRecord, encode_text_record
from schemas.topics import TEXT_TOPIC
from stream.aiokafka_transport import AiokafkaTransport
from stream.transport import BrokerAway, Producer, SendRefused, SendUnknown, Sent

ATTEMPTS_MAX: Final = 5


class TopicWriter:
    """Writes records of lives to `dhsched.text`, in order, each with an event id of its own."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer

    @classmethod
    @contextlib.asynccontextmanager
    async def to(cls, kafka: str) -> AsyncGenerator["TopicWriter"]:
        """A writer to the cluster at `kafka` (host:port, ...)."""
        transport = AiokafkaTransport(kafka)
        try:
            producer = await transport.producer()
            try:
                yield cls(producer)
            finally:
                await producer.close()
        except BrokerAway as error:
            raise CommandFailed(
                f"no Kafka broker answers at {kafka}: {error}; name one with --kafka"
            ) from error
        finally:
            await transport.close()

    async def write(
        self, live_id: str, kind: RecordKind, text: str = "", seq: int | None = None
    ) -> Sent:
        """Write one record and wait until it is in the log.

        With `seq` an unknown outcome is tried again, since a repeated record is recognised by it.
        """
        now_ms = time.time_ns() // 1_000_000
        record = TextRecord(
            kind=kind, text=text, seq=seq, event_id=ulid(now_ms, os.urandom(10)), sent_at_ms=now_ms
        )
        value = encode_text_record(record)
        for attempt in range(1, ATTEMPTS_MAX + 1):
            try:
                return await self._producer.send(TEXT_TOPIC, key=live_id.encode(), value=value)
            except SendRefused as error:
                raise CommandFailed(f"the broker refused the record: {error.reason}") from error
            except SendUnknown as error:
                if seq is None or attempt == ATTEMPTS_MAX:
                    raise CommandFailed(
                        f"it is unknown whether the record for live {live_id} is in the log "
                        f"({error}); look at the live's events before you send it again"
                    ) from error
        raise AssertionError("unreachable")

    async def speak(self, live_id: str, text: str) -> list[Sent]:
        """Write text as one turn, cut into records; returns where they lie."""
        pieces = list(records(text))
        sent = [
            await self.write(live_id, RecordKind.TEXT, piece, seq=number)
            for number, piece in enumerate(pieces)
        ]
        sent.append(await self.write(live_id, RecordKind.END_TURN, seq=len(pieces)))
        return sent
