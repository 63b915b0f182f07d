"""What the session machine wants done. The shell does it and answers with an event where noted.

A closed set: the shell ends its match with `assert_never`. Instructions of one event are carried
out in order, at once; those that wait for the outside are begun and answer later.

PURE.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from controller.fence import Permit
from schemas.bad_record import DeadLetterReason
from schemas.events import EventKind
from schemas.options import LiveOptions
from schemas.quick_init import quick_init
from schemas.store_values import Checkpoint, SegmentBounds

EventData = Mapping[str, str | int | float | bool | None]


@quick_init
@dataclass(frozen=True, slots=True)
class SpokenSegment:
    """One segment as it goes to the stages. `skip_samples` (24 kHz) were sent by an earlier owner
    or binding; `seed` and `segment_id` depend on the live and on where the segment starts only."""

    segment_id: int
    bounds: SegmentBounds
    text: str
    seed: int
    utterance: int
    skip_samples: int = 0


@dataclass(frozen=True, slots=True)
class Claim:
    """Claim the generation. Answers ClaimDone or ClaimRefused."""

    claim_id: str


@dataclass(frozen=True, slots=True)
class ReadFrom:
    """Hand over every record at and after `start`. Below `released_below` they were released by an
    earlier owner. `last_seq` is the producer's number of the last one below it. Answers RecordsRead
    and InterruptSeen."""

    start: int
    released_below: int
    last_seq: int | None


@dataclass(frozen=True, slots=True)
class StopReading:
    """Hand over nothing more."""


@dataclass(frozen=True, slots=True)
class Bind:
    """Take a slot of the stages; the first frame has index `start_frame`. Answers Bound or
    BindRefused."""

    options: LiveOptions
    start_frame: int
    utterance: int


@dataclass(frozen=True, slots=True)
class Unbind:
    """Stop all media of the live at once."""


@dataclass(frozen=True, slots=True)
class SendLetter:
    """Put a record into the dead-letter topic. Answers LetterSent."""

    offset: int
    reason: DeadLetterReason
    detail: str
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True, slots=True)
class WantRelease:
    """There is something to release. Answers ReleaseTurn when a commit is about to begin, so that
    what is asked for then is planned on everything that came meanwhile."""


@quick_init
@dataclass(frozen=True, slots=True)
class RequestRelease:
    """Commit this step under our generation. Answers ReleaseDone, ReleaseStale or CursorFound.

    The permit that comes with ReleaseDone is good for `segments`, once each.
    """

    release_id: str
    expected_next_offset: int
    new_next_offset: int
    last_seq: int | None
    checkpoint: Checkpoint
    skipped: tuple[int, int] | None
    segments: tuple[SpokenSegment, ...]


@quick_init
@dataclass(frozen=True, slots=True)
class Feed:
    """Let the segment into the first ring. Answers FeedRefused when there is no room."""

    permit: Permit
    segment: SpokenSegment


@dataclass(frozen=True, slots=True)
class Silence:
    """Silence everything of a lower utterance, in the stages and at the egress."""

    utterance: int


@dataclass(frozen=True, slots=True)
class Freeze:
    """Send no further tick, so that the position stays true."""


@dataclass(frozen=True, slots=True)
class Thaw:
    """The hand-over did not happen: go on sending."""


@dataclass(frozen=True, slots=True)
class HandOver:
    """Commit the target's generation with this checkpoint. Answers HandOverDone/-Refused."""

    target: str
    token: str | None
    checkpoint: Checkpoint


@dataclass(frozen=True, slots=True)
class CloseLive:
    """Close the live in the store. Answers CloseDone or OwnershipLost."""

    reason: str


@dataclass(frozen=True, slots=True)
class ConfirmGone:
    """Say that nothing of this generation runs here any more. Answers GoneConfirmed."""


@dataclass(frozen=True, slots=True)
class Publish:
    """An event for the events topic; it never waits. `source_event_id` names the record."""

    kind: EventKind
    source_event_id: str = ""
    offset: int | None = None
    data: EventData = field(default_factory=dict[str, "str | int | float | bool | None"])


@dataclass(frozen=True, slots=True)
class CheckRefusal:
    """A release was refused: look again whether rightly so, and count the answer."""

    release_id: str


Instruction = (
    Claim
    | ReadFrom
    | StopReading
    | Bind
    | Unbind
    | SendLetter
    | WantRelease
    | RequestRelease
    | Feed
    | Silence
    | Freeze
    | Thaw
    | HandOver
    | CloseLive
    | ConfirmGone
    | Publish
    | CheckRefusal
)
