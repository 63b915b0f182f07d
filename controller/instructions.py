"""What the session machine wants done. The shell does it and answers with an event where noted.

A closed set: the shell ends its match with `assert_never`. Instructions of one event are carried
out in order, at once; those that wait for the outside are begun and answer later.

PURE.
"""

from dataclasses import dataclass
from typing import Final, final

from controller.fence import Permit
from schemas.bad_record import DeadLetterReason
from schemas.events import EventData, EventKind
from schemas.options import LiveOptions
from schemas.store_values import Checkpoint, SegmentBounds
from schemas.value import Value


@final
class SpokenSegment(Value):
    """One segment as it goes to the stages. `skip_samples` (24 kHz) were sent by an earlier owner
    or binding; `seed` and `segment_id` depend on the live and on where the segment starts only."""

    __match_args__ = ("segment_id", "bounds", "text", "seed", "utterance", "skip_samples")
    __slots__ = __match_args__

    def __init__(
        self,
        segment_id: int,
        bounds: SegmentBounds,
        text: str,
        seed: int,
        utterance: int,
        skip_samples: int = 0,
    ) -> None:
        self.segment_id: Final = segment_id
        self.bounds: Final = bounds
        self.text: Final = text
        self.seed: Final = seed
        self.utterance: Final = utterance
        self.skip_samples: Final = skip_samples

    def skipping(self, samples: int) -> "SpokenSegment":
        """The same, of which so many samples were sent already."""
        return SpokenSegment(
            self.segment_id, self.bounds, self.text, self.seed, self.utterance, samples
        )


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


@final
class RequestRelease(Value):
    """Commit this step under our generation. Answers ReleaseDone, ReleaseStale or CursorFound.

    The permit that comes with ReleaseDone is good for `segments`, once each.
    """

    __match_args__ = (
        "release_id",
        "expected_next_offset",
        "new_next_offset",
        "last_seq",
        "checkpoint",
        "skipped",
        "segments",
    )
    __slots__ = __match_args__

    def __init__(
        self,
        release_id: str,
        expected_next_offset: int,
        new_next_offset: int,
        last_seq: int | None,
        checkpoint: Checkpoint,
        skipped: tuple[int, int] | None,
        segments: tuple[SpokenSegment, ...],
    ) -> None:
        self.release_id: Final = release_id
        self.expected_next_offset: Final = expected_next_offset
        self.new_next_offset: Final = new_next_offset
        self.last_seq: Final = last_seq
        self.checkpoint: Final = checkpoint
        self.skipped: Final = skipped
        self.segments: Final = segments


@final
class Feed(Value):
    """Let the segment into the first ring. Answers FeedRefused when there is no room."""

    __match_args__ = ("permit", "segment")
    __slots__ = __match_args__

    def __init__(self, permit: Permit, segment: SpokenSegment) -> None:
        self.permit: Final = permit
        self.segment: Final = segment


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


@final
class Publish(Value):
    """An event for the events topic; it never waits. `source_event_id` names the record."""

    __match_args__ = ("kind", "source_event_id", "offset", "data")
    __slots__ = __match_args__

    def __init__(
        self,
        kind: EventKind,
        source_event_id: str = "",
        offset: int | None = None,
        data: EventData | None = None,
    ) -> None:
        self.kind: Final = kind
        self.source_event_id: Final = source_event_id
        self.offset: Final = offset
        self.data: Final[EventData] = {} if data is None else data


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
