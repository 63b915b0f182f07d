"""Every bound of a worker in one place, checked against each other at start.

PURE.
"""

from dataclasses import dataclass, field, fields

from controller.segmenter import SegmenterLimits
from controller.session_core import SessionLimits
from controller.text_queue import QueueLimits
from schemas.text_record import TEXT_BYTES_MAX


class BadLimits(ValueError):
    """An operator's mistake: these limits do not go together."""


@dataclass(frozen=True, slots=True)
class ReadingLimits:
    """`records_max` per fetch. `unowned_max`: records of lives that are not owned here waiting to
    be looked at; the main reading pauses above it."""

    records_max: int = 2_000
    wait_ms: int = 500
    poll_ms: int = 100
    back_off_ms_min: int = 50
    back_off_ms_max: int = 400
    unowned_max: int = 10_000
    unowned_at_once: int = 64
    maintain_ms: int = 1_000


@dataclass(frozen=True, slots=True)
class Limits:
    """Times in milliseconds of this worker's own clock.

    `ownership_poll_ms`: how often what the store says of us is read even if no signal came.
    `reservation_ms`: how long a slot is kept for a planned move that does not come.
    `outside_at_once`: store calls and dead letters of single lives under way at once.
    `events_waiting_max`: reports kept while the broker is away, two minutes of 500 lives'.
    `events_at_once`: events that go together in one send.
    """

    session: SessionLimits = field(default_factory=SessionLimits)
    reading: ReadingLimits = field(default_factory=ReadingLimits)
    beat_ms: int = 1_000
    ownership_poll_ms: int = 1_000
    reservation_ms: int = 10_000
    release_items_max: int = 512
    outside_at_once: int = 64
    events_waiting_max: int = 32_768
    events_at_once: int = 4_096
    letter_value_bytes_max: int = 900_000
    hand_overs_at_once: int = 16
    drain_retry_ms: int = 500
    drain_ms: int = 20_000
    stop_ms: int = 3_000

    def check(self) -> "Limits":
        """Itself, when the limits go together. Raises BadLimits."""
        for part in (self, self.session, self.reading, self.segmenter, self.queue):
            for one in fields(part):
                value = getattr(part, one.name)
                if isinstance(value, int) and value < 1:
                    raise BadLimits(f"{one.name} must be at least 1")
        self._check_segments()
        if self.session.checkpoint_ms > 500:
            raise BadLimits("checkpoint_ms above 500 would let more be heard again after a crash")
        if self.queue.chars_max < TEXT_BYTES_MAX:
            raise BadLimits(f"chars_max must hold one record: at least {TEXT_BYTES_MAX}")
        if self.reading.back_off_ms_min > self.reading.back_off_ms_max:
            raise BadLimits("back_off_ms_min must not exceed back_off_ms_max")
        if self.reservation_ms < 2 * self.ownership_poll_ms:
            raise BadLimits("reservation_ms must be at least twice ownership_poll_ms")
        return self

    def _check_segments(self) -> None:
        segmenter = self.segmenter
        if not segmenter.clause_chars_min < segmenter.first_chars < segmenter.chars_max // 2:
            raise BadLimits("clause_chars_min < first_chars < chars_max / 2 must hold")
        if segmenter.chars_max < 120:
            raise BadLimits("chars_max must be at least 120")
        if segmenter.settled_ms > segmenter.quiet_ms:
            raise BadLimits("settled_ms must not exceed quiet_ms")

    @property
    def segmenter(self) -> SegmenterLimits:
        """Where text is cut."""
        return self.session.segmenter

    @property
    def queue(self) -> QueueLimits:
        """How much unreleased text of a live is kept."""
        return self.session.queue
