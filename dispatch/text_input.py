"""Text of clients on its way to the topic: checked against the live's state, then appended.

The state is read before each append, so a client learns that its live is closed; an append that
races with the close is dead-lettered by the worker, with that reason, and never lost silently.
"""

from dataclasses import dataclass

from dispatch.activity import ActivityBook
from dispatch.clock import Clock
from dispatch.publish import Published, Publisher
from ownership import keys
from ownership.kv import Database
from ownership.model import AlreadyClosed, UnknownLive
from schemas.store_values import LiveState, LiveStatus
from schemas.text_record import RecordKind
from stream.transport import BrokerAway, SendRefused, SendUnknown


@dataclass(frozen=True, slots=True)
class Turn:
    """What one request appends: text, the end of a turn, or both. `seq` belongs to the text."""

    text: str | None = None
    end_turn: bool = False
    seq: int | None = None


@dataclass(frozen=True, slots=True)
class Pushed:
    """What is in the log now. At least one of the two is there."""

    text: Published | None
    end_turn: Published | None


class EndTurnNotSent(Exception):
    """The text is in the log, the end of the turn may not be; to repeat it alone does no harm."""

    def __init__(self, text: Published) -> None:
        super().__init__("the text was accepted, the end of the turn perhaps not")
        self.text = text


class TextInput:
    """Appends records for lives that are open."""

    def __init__(
        self, db: Database, publisher: Publisher, activity: ActivityBook, clock: Clock
    ) -> None:
        self._db = db
        self._publisher = publisher
        self._activity = activity
        self._clock = clock

    async def push(self, live_id: str, turn: Turn) -> Pushed | UnknownLive | AlreadyClosed:
        """Raises BadRecord, SendRefused, SendUnknown, BrokerAway, TooBusy, EndTurnNotSent,
        StoreError.
        """
        live = await self._open_live(live_id)
        if not isinstance(live, LiveState):
            return live
        text = end = None
        if turn.text is not None:
            text = await self._publisher.text(
                live_id, live.partition, RecordKind.TEXT, text=turn.text, seq=turn.seq
            )
        if turn.end_turn:
            # Only after the text was acknowledged: otherwise the two could change places.
            try:
                end = await self._publisher.text(live_id, live.partition, RecordKind.END_TURN)
            except (SendRefused, SendUnknown, BrokerAway) as error:
                if text is None:
                    raise
                raise EndTurnNotSent(text) from error
        self._activity.use(live_id, self._clock.wall_ms())
        return Pushed(text, end)

    async def interrupt(self, live_id: str) -> Published | UnknownLive | AlreadyClosed:
        """Ends what is being spoken and skips what waits. Raises as `push`."""
        live = await self._open_live(live_id)
        if not isinstance(live, LiveState):
            return live
        done = await self._publisher.text(live_id, live.partition, RecordKind.INTERRUPT)
        self._activity.use(live_id, self._clock.wall_ms())
        return done

    async def check(self, live_id: str) -> UnknownLive | AlreadyClosed | None:
        """None when the live is open. Raises StoreError."""
        live = await self._open_live(live_id)
        return None if isinstance(live, LiveState) else live

    async def _open_live(self, live_id: str) -> LiveState | UnknownLive | AlreadyClosed:
        key = keys.live(live_id)
        raw = await self._db.read(lambda tr: tr.get(key))
        if raw is None:
            return UnknownLive(live_id)
        live = LiveState.decode(raw)
        if live.state is not LiveStatus.OPEN:
            return AlreadyClosed(live.close_reason)
        return live
