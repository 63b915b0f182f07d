"""What may happen to a live on this worker. The session machine takes these and nothing else.

A closed set: `Event` is their union, and the machine ends its match with `assert_never`. Every
event names itself for the transition table (`session_states`).

PURE.
"""

from dataclasses import dataclass
from typing import ClassVar, Final, final

from controller.fence import Permit
from controller.session_states import EventName
from schemas.bad_record import DeadLetterReason
from schemas.options import LiveOptions
from schemas.store_values import Checkpoint, Cursor, Generation
from schemas.text_record import TextRecord
from schemas.value import Value


@final
class Accepted(Value):
    """A record of this live that could be read and was not seen before."""

    __match_args__ = ("offset", "record")
    __slots__ = __match_args__

    def __init__(self, offset: int, record: TextRecord) -> None:
        self.offset: Final = offset
        self.record: Final = record


@dataclass(frozen=True, slots=True)
class Refused:
    """A record of this live that cannot be spoken, with its original bytes for the dead letter."""

    offset: int
    reason: DeadLetterReason
    detail: str
    key: bytes | None
    value: bytes | None


Incoming = Accepted | Refused


@dataclass(frozen=True, slots=True)
class Started:
    """The store names this worker as the live's owner. `claim_id` was minted for this session."""

    name: ClassVar[EventName] = EventName.STARTED
    claim_id: str


@dataclass(frozen=True, slots=True)
class ClaimDone:
    """The claim is durable. `finished_below`: everything below it in the partition is disposed."""

    name: ClassVar[EventName] = EventName.CLAIM_DONE
    options: LiveOptions
    cursor: Cursor
    checkpoint: Checkpoint | None
    finished_below: int


@dataclass(frozen=True, slots=True)
class ClaimRefused:
    """Somebody else owns the live already."""

    name: ClassVar[EventName] = EventName.CLAIM_REFUSED
    actual: Generation | None


@final
class RecordsRead(Value):
    """Records in offset order. Every record of this live below `read_to` has been handed over."""

    name: ClassVar[EventName] = EventName.RECORDS_READ
    __match_args__ = ("records", "read_to")
    __slots__ = __match_args__

    def __init__(self, records: tuple[Incoming, ...], read_to: int) -> None:
        self.records: Final = records
        self.read_to: Final = read_to


@dataclass(frozen=True, slots=True)
class InterruptSeen:
    """An INTERRUPT, handed over ahead of the unreleased text that lies before it.

    `last_seq`: the highest number of the producer up to it, those of skipped records included.
    """

    name: ClassVar[EventName] = EventName.INTERRUPT_SEEN
    offset: int
    record: TextRecord
    last_seq: int | None


@dataclass(frozen=True, slots=True)
class LetterSent:
    """The dead letter of the record at `offset` is in the log."""

    name: ClassVar[EventName] = EventName.LETTER_SENT
    offset: int


@dataclass(frozen=True, slots=True)
class ReleaseTurn:
    """A commit is about to begin: now is the time to say what is to be released."""

    name: ClassVar[EventName] = EventName.RELEASE_TURN


@final
class ReleaseDone(Value):
    """The requested commit happened, under our generation. The permit is good for its segments."""

    name: ClassVar[EventName] = EventName.RELEASE_DONE
    __match_args__ = ("permit",)
    __slots__ = __match_args__

    def __init__(self, permit: Permit) -> None:
        self.permit: Final = permit


@dataclass(frozen=True, slots=True)
class ReleaseStale:
    """Fenced: the live belongs to `actual`."""

    name: ClassVar[EventName] = EventName.RELEASE_STALE
    release_id: str
    actual: Generation | None


@dataclass(frozen=True, slots=True)
class CursorFound:
    """The generation is ours, yet the cursor stands elsewhere: what we know is not the truth."""

    name: ClassVar[EventName] = EventName.CURSOR_FOUND
    release_id: str
    actual: Cursor | None


@dataclass(frozen=True, slots=True)
class FeedRefused:
    """The first ring took no further segment; this one needs a permit of its own later."""

    name: ClassVar[EventName] = EventName.FEED_REFUSED
    segment_id: int


@dataclass(frozen=True, slots=True)
class Bound:
    """The stages gave the live a slot."""

    name: ClassVar[EventName] = EventName.BOUND
    live_slot: int
    binding: int


@dataclass(frozen=True, slots=True)
class BindRefused:
    """The stages have no slot for the live now."""

    name: ClassVar[EventName] = EventName.BIND_REFUSED
    reason: str
    retryable: bool


@final
class TickSent(Value):
    """A tick with speech went out to the viewers. `sample_end`: spoken up to it, 24 kHz."""

    name: ClassVar[EventName] = EventName.TICK_SENT
    __match_args__ = ("segment_id", "sample_end", "last", "muted")
    __slots__ = __match_args__

    def __init__(self, segment_id: int, sample_end: int, last: bool, muted: bool) -> None:
        self.segment_id: Final = segment_id
        self.sample_end: Final = sample_end
        self.last: Final = last
        self.muted: Final = muted


@dataclass(frozen=True, slots=True)
class SegmentBroken:
    """A stage could not make this segment."""

    name: ClassVar[EventName] = EventName.SEGMENT_BROKEN
    segment_id: int
    reason: str


@dataclass(frozen=True, slots=True)
class StagesLost:
    """A stage died: the binding is void and what was fed is lost."""

    name: ClassVar[EventName] = EventName.STAGES_LOST
    reason: str


@dataclass(frozen=True, slots=True)
class TimeReached:
    """The machine's deadline (or any later moment) was reached."""

    name: ClassVar[EventName] = EventName.TIME_REACHED


@dataclass(frozen=True, slots=True)
class OwnershipLost:
    """The store names another owner, or nobody."""

    name: ClassVar[EventName] = EventName.OWNERSHIP_LOST
    reason: str


@dataclass(frozen=True, slots=True)
class HandOverAsked:
    """Give the live to worker `target` at the next tick boundary."""

    name: ClassVar[EventName] = EventName.HAND_OVER_ASKED
    target: str
    token: str | None


@dataclass(frozen=True, slots=True)
class HandOverDone:
    """The target's generation is committed, with our checkpoint."""

    name: ClassVar[EventName] = EventName.HAND_OVER_DONE
    successor: Generation


@dataclass(frozen=True, slots=True)
class HandOverRefused:
    """The target took it not. `lost`: because we do not own the live any more."""

    name: ClassVar[EventName] = EventName.HAND_OVER_REFUSED
    reason: str
    lost: bool


@dataclass(frozen=True, slots=True)
class StopAsked:
    """This worker ends: leave an exact checkpoint behind for whoever recovers the live."""

    name: ClassVar[EventName] = EventName.STOP_ASKED


@dataclass(frozen=True, slots=True)
class CloseDone:
    """The live is closed in the store (by us or by somebody else)."""

    name: ClassVar[EventName] = EventName.CLOSE_DONE


@dataclass(frozen=True, slots=True)
class GoneConfirmed:
    """The store knows that nothing of this generation runs here."""

    name: ClassVar[EventName] = EventName.GONE_CONFIRMED


Event = (
    Started
    | ClaimDone
    | ClaimRefused
    | RecordsRead
    | InterruptSeen
    | LetterSent
    | ReleaseTurn
    | ReleaseDone
    | ReleaseStale
    | CursorFound
    | FeedRefused
    | Bound
    | BindRefused
    | TickSent
    | SegmentBroken
    | StagesLost
    | TimeReached
    | OwnershipLost
    | HandOverAsked
    | HandOverDone
    | HandOverRefused
    | StopAsked
    | CloseDone
    | GoneConfirmed
)
