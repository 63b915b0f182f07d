"""The last gate of a live on this worker: authority, pace and fan-out of its encoded media."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from rtc_output.pacer import LatenessSummary, PacerSettings
from rtc_output.units import Subscriber
from schemas.media import MediaTick


class TickRefusal(StrEnum):
    """Why a tick was not taken, or was dropped before it was sent."""

    WRONG_BINDING = "wrong_binding"
    LOWER_EPOCH = "lower_epoch"
    OUT_OF_ORDER = "out_of_order"
    BACKLOG_FULL = "backlog_full"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class SentPosition:
    """How far a live was heard: the last tick whose first packet went out.

    `next_frame` is the frame that a new owner makes first. `sample_end` is the 24 kHz sample of
    `segment_id` up to which it was spoken (exclusive, whole ticks); segment 0 means idle.
    """

    next_frame: int
    segment_id: int
    sample_end: int
    utterance: int
    at_us: int


@dataclass(frozen=True, slots=True)
class EgressStats:
    """Counters since the egress was made. Lateness in microseconds."""

    ticks_sent: int
    ticks_muted: int
    refused: dict[TickRefusal, int]
    lateness: LatenessSummary
    reanchors: int
    slipped_us: int
    lead_frames: int
    subscribers: int
    keyframes_requested: int
    queued: int


class LiveEgress:
    """One bound live's way out. Everything runs on the event loop, nothing waits."""

    def __init__(
        self,
        *,
        live_id: str,
        binding: int,
        epoch: int,
        start_frame: int,
        on_sent: Callable[[MediaTick, int], None],
        set_credit: Callable[[int], None],
        request_keyframe: Callable[[], None],
        now_us: Callable[[], int],
        settings: PacerSettings | None = None,
    ) -> None:
        raise NotImplementedError

    def push(self, tick: MediaTick) -> TickRefusal | None:
        """Take a tick from the encode stage; None when it was accepted."""
        raise NotImplementedError

    def interrupt(self, utterance: int) -> SentPosition:
        """Silence every tick of a lower utterance from now on, queued ones included."""
        raise NotImplementedError

    def raise_epoch(self, epoch: int) -> None:
        """Refuse every tick of a lower epoch from now on, queued ones included."""
        raise NotImplementedError

    def rebind(self, *, binding: int, epoch: int, start_frame: int) -> None:
        """Go on with a new binding; the viewers stay."""
        raise NotImplementedError

    def subscribe(self, subscriber: Subscriber) -> None:
        """Send every later unit to `subscriber`, and ask for a key frame."""
        raise NotImplementedError

    def unsubscribe(self, subscriber: Subscriber) -> None:
        """Forget `subscriber`; harmless when it is not known."""
        raise NotImplementedError

    def request_keyframe(self) -> None:
        """A viewer cannot decode: ask the encoder, at most once per interval."""
        raise NotImplementedError

    def advance(self, now_us: int) -> int | None:
        """Send all that is due; returns when to call again (None: after the next push)."""
        raise NotImplementedError

    @property
    def position(self) -> SentPosition:
        """Last sent position, for checkpoints."""
        raise NotImplementedError

    def stats(self) -> EgressStats:
        """A snapshot of the counters."""
        raise NotImplementedError

    def close(self) -> SentPosition:
        """Send the second packet of a tick half sent, end the subscriptions, refuse the rest."""
        raise NotImplementedError


class PacingLoop:
    """The one timer that paces all lives of a worker."""

    def __init__(self, now_us: Callable[[], int] | None = None) -> None:
        raise NotImplementedError

    def add(self, egress: LiveEgress) -> None:
        """Pace this egress from now on."""
        raise NotImplementedError

    def remove(self, egress: LiveEgress) -> None:
        """Stop pacing it; harmless when it is not known."""
        raise NotImplementedError

    def close(self) -> None:
        """Stop the timer."""
        raise NotImplementedError
