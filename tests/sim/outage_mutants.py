"""Mutants of what is done when store, broker or log fail, and of what is heard twice.

Each leaves out one rule that only the outages of `tests.sim.outages` or the checker of
`tests.sim.heard_again` can miss. They run with those of `tests.sim.ablations`.
"""

import asyncio
from dataclasses import replace
from typing import Any

import controller.custody
import controller.dead_letters
import controller.partition_feed
import controller.rebuild
import controller.session_speech
import controller.unowned
import dispatch.publish
import ownership.release
from ownership.kv import CommitUnknown, StoreAway
from ownership.model import Released
from schemas.dead_letter import DeadLetter
from schemas.topics import DEAD_LETTER_TOPIC, TEXT_TOPIC
from stream.transport import BrokerAway, SendRefused, SendUnknown
from tests.sim import egress

_publish_text = dispatch.publish.Publisher.text
_heard = controller.session_speech.SessionSpeech._heard
_segments = controller.rebuild.Rebuild.segments


# -- the store is away -------------------------------------------------------------------------


async def release_guessed(db: Any, items: Any) -> Any:
    """A worker that gets no answer takes it for a yes."""
    try:
        return await ownership.release.release(db, items)
    except (StoreAway, CommitUnknown):
        return [Released(item) for item in items]


# -- the broker does not answer ----------------------------------------------------------------


async def _letter_once(
    self: Any, partition: int, offset: int, reason: Any, detail: str, key: Any, value: Any
) -> None:
    """A dead letter without an acknowledgement counts as sent."""
    letter = DeadLetter(reason, detail, TEXT_TOPIC, partition, offset, key, value, 0)
    while True:
        try:
            await self._producer.send(DEAD_LETTER_TOPIC, key=key, value=letter.encode())
        except BrokerAway:
            await asyncio.sleep(0.05)
        except (SendRefused, SendUnknown):
            return
        else:
            return


async def _publish_again(self: Any, *args: Any, **named: Any) -> Any:
    """Text without a number is sent again when its outcome is unknown."""
    try:
        return await _publish_text(self, *args, **named)
    except SendUnknown:
        return await _publish_text(self, *args, **named)


# -- the log was truncated ---------------------------------------------------------------------


def _skip_deleted(self: Any, log_start: int, _: int) -> None:
    """A live goes on where the log begins, and says nothing."""
    behind = self.ahead.kept_to < self.released_below
    if self.ahead.jump(log_start) and (self._batch or behind):
        self._flush(self.ahead.kept_to)


async def _say_nothing(self: Any, book: Any, lost_from: int, log_start: int) -> None:
    """A custodian goes on where the log begins, and says nothing."""


async def _raise_unasked(db: Any, partition: int, offset: int, lettered: Any, *_: Any) -> int:
    """The watermark passes what was deleted, whoever does not know of it yet."""
    return await controller.custody.raise_watermark(db, partition, offset, lettered)


# -- what is heard twice -----------------------------------------------------------------------


def _from_its_start(self: Any, live_id: str, utterance: int) -> Any:
    """A segment is said again from its beginning, whatever was heard of it."""
    before = self.checkpoint
    self.checkpoint = replace(before, samples_emitted=0)
    try:
        return _segments(self, live_id, utterance)
    finally:
        self.checkpoint = before


def _goes_on_sounding(self: Any) -> Any:
    """The source of a planned move is heard while it hands over."""
    return self.position


def _only_with_releases(self: Any, event: Any, now_ms: int) -> None:
    """No checkpoint is made in the middle of a segment, however long it is."""
    _heard(self, event, now_ms)
    if not event.last:
        self._dirty = False


REPLACEMENTS: tuple[tuple[str, str, tuple[tuple[Any, str, Any], ...]], ...] = (
    (
        "letter-believed",
        "a dead letter without an acknowledgement counts as sent",
        ((controller.dead_letters.DeadLetters, "send", _letter_once),),
    ),
    (
        "text-sent-again",
        "Dispatch repeats text without a number when it does not know whether it was written",
        ((dispatch.publish.Publisher, "text", _publish_again),),
    ),
    (
        "skips-what-was-deleted",
        "a live whose records were deleted goes on behind them without a word",
        ((controller.partition_feed.Route, "truncated", _skip_deleted),),
    ),
    (
        "custodian-skips",
        "a custodian goes on behind what was deleted without a word",
        ((controller.unowned.Unowned, "tell_deleted", _say_nothing),),
    ),
    (
        "watermark-over-untold",
        "the watermark passes what was deleted before every open live was told",
        ((controller.custody, "raise_past_deleted", _raise_unasked),),
    ),
    (
        "said-from-the-start",
        "a new owner says the whole segment again, not what was not heard",
        ((controller.rebuild.Rebuild, "segments", _from_its_start),),
    ),
    (
        "sounds-while-handing-over",
        "the source of a planned move is not frozen",
        ((egress.SimEgress, "freeze", _goes_on_sounding),),
    ),
    (
        "no-checkpoint-interval",
        "no checkpoint is made in the middle of a segment, however long it is",
        ((controller.session_speech.SessionSpeech, "_heard", _only_with_releases),),
    ),
)
