"""The media clock of a live: when each unit is due, how late it went, how far stages may run ahead.

A unit is 20 ms; a tick is two of them. The clock is one line, `due = anchor + 20 ms * units`, set
when the first tick arrives and rounded up to a grid that all lives of a worker share, so that one
timer serves them all. What arrives late is sent at once and the clock stays; a few late units may
go back to back, further ones are spaced at twice the normal pace, so that a viewer's jitter buffer
sees no burst. A tick that is later than `reanchor_late_us` moves the clock instead (the live stood
still, and it says so: `reanchors`, `slipped_us`). `media_us` follows the wall clock through that,
so the mapping from wall time to RTP time that sender reports publish stays one straight line.

PURE.
"""

from bisect import bisect_left
from collections import deque
from dataclasses import dataclass, field

from rtc_output.units import TICK_US, UNIT_US

LATENESS_BOUNDS_US = (
    1_000, 2_000, 5_000, 10_000, 15_000, 20_000, 30_000, 40_000, 60_000, 80_000, 120_000, 160_000,
    320_000, 640_000, 1_280_000,
)  # fmt: skip
MARGIN_LOW_US = 15_000
MARGIN_SPARE_US = MARGIN_LOW_US + TICK_US + 10_000
LEAD_WINDOW_TICKS = 125
LEAD_TOLERATED_TICKS = 4


@dataclass(frozen=True, slots=True)
class PacerSettings:
    """How a live is paced. The defaults favour a short way from text to sound.

    `lead_frames` is where the lead starts; it grows by itself where ticks come late and shrinks
    where they come early, between the two bounds. It is what new speech waits behind, so it is
    short, and `lead_frames_speech` come on top only once speech is on its way. `start_delay_us` is
    the slack that the first tick of a binding gets. `burst_us` is how much late media may go out
    back to back.
    """

    lead_frames: int = 3
    lead_frames_min: int = 2
    lead_frames_max: int = 6
    lead_frames_speech: int = 3
    start_delay_us: int = 20_000
    catch_up_spacing_us: int = 10_000
    burst_us: int = 20_000
    reanchor_late_us: int = 160_000
    ahead_us_max: int = 1_000_000
    grid_us: int = 20_000

    def __post_init__(self) -> None:
        if not 1 <= self.lead_frames_min <= self.lead_frames <= self.lead_frames_max:
            raise ValueError("lead_frames must lie between lead_frames_min and lead_frames_max")
        if self.lead_frames_speech < 0:
            raise ValueError("lead_frames_speech must not be negative")
        if self.ahead_us_max <= (self.lead_frames_max + self.lead_frames_speech) * TICK_US:
            raise ValueError("ahead_us_max must exceed the longest lead")
        if not 0 < self.catch_up_spacing_us < UNIT_US:
            raise ValueError("catch_up_spacing_us must lie between 0 and 20 ms")
        if self.grid_us <= 0 or self.grid_us % UNIT_US:
            raise ValueError("grid_us must be whole units of 20 ms")


@dataclass(frozen=True, slots=True)
class LatenessSummary:
    """How late ticks were sent, in microseconds: percentiles are upper bounds of their bucket.

    `buckets` are (upper bound, count) pairs, not cumulative; the last one holds all the rest.
    """

    count: int
    total_us: int
    p50_us: int
    p95_us: int
    p99_us: int
    max_us: int
    buckets: tuple[tuple[int, int], ...]


@dataclass(slots=True)
class LatenessHistogram:
    """Counts in fixed buckets: bounded, mergeable, cheap."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(LATENESS_BOUNDS_US) + 1))
    total_us: int = 0
    max_us: int = 0

    def add(self, lateness_us: int) -> None:
        """Record one tick; early counts as on time."""
        late = max(0, lateness_us)
        self.counts[bisect_left(LATENESS_BOUNDS_US, late)] += 1
        self.total_us += late
        self.max_us = max(self.max_us, late)

    def merge(self, other: "LatenessHistogram") -> None:
        """Add the counts of `other` to these."""
        self.counts = [a + b for a, b in zip(self.counts, other.counts, strict=True)]
        self.total_us += other.total_us
        self.max_us = max(self.max_us, other.max_us)

    def percentile_us(self, share: float) -> int:
        """The smallest bound that at least `share` of the ticks did not exceed."""
        need, seen = share * sum(self.counts), 0
        for bound, count in zip(LATENESS_BOUNDS_US, self.counts, strict=False):
            seen += count
            if seen >= need:
                return min(bound, self.max_us)
        return self.max_us

    def summary(self) -> LatenessSummary:
        """A frozen view."""
        last = max(self.max_us, LATENESS_BOUNDS_US[-1] + 1)
        return LatenessSummary(
            count=sum(self.counts),
            total_us=self.total_us,
            p50_us=self.percentile_us(0.50),
            p95_us=self.percentile_us(0.95),
            p99_us=self.percentile_us(0.99),
            max_us=self.max_us,
            buckets=tuple(zip((*LATENESS_BOUNDS_US, last), self.counts, strict=True)),
        )


@dataclass(frozen=True, slots=True)
class Timing:
    """Where a sent unit lies: see `MediaUnit`."""

    media_us: int
    stream_us: int
    due_us: int


class Lead:
    """How many frames the stages may run ahead of the one playing.

    The margin of a tick is the time left until it is due when it arrives. When more than
    `LEAD_TOLERATED_TICKS` of a window (3 %) had too small a one, the lead grows by one frame, and
    again only once the stages could have answered; when no more than those would have had with one
    frame less, it shrinks. So a rare pause of the machine does not make every speech wait. With
    every tick of speech the lead grows by one more, up to `lead_frames_speech`: what is under way
    should not stutter, and what comes next in it waits for nothing.
    """

    def __init__(self, settings: PacerSettings) -> None:
        self._settings = settings
        self._quiet = settings.lead_frames
        self._extra = 0
        self._hold = settings.lead_frames
        self._window: deque[tuple[int, int]] = deque(maxlen=LEAD_WINDOW_TICKS)

    @property
    def frames(self) -> int:
        """The lead now."""
        return self._quiet + self._extra

    def observe(self, margin_us: int, *, speech: bool) -> None:
        """Learn from one arrived tick."""
        if not speech:
            self._extra = 0
        elif self._extra < self._settings.lead_frames_speech:
            self._extra += 1
        if self._hold > 0:
            self._hold -= 1
            return
        # Without the extra frames, which say nothing of what silence could do without.
        self._window.append((margin_us, margin_us - self._extra * TICK_US))
        tight = sum(margin < MARGIN_LOW_US for margin, _ in self._window)
        if tight > LEAD_TOLERATED_TICKS and self._quiet < self._settings.lead_frames_max:
            self._change(1)
        elif (
            len(self._window) == LEAD_WINDOW_TICKS
            and sum(quiet <= MARGIN_SPARE_US for _, quiet in self._window) <= LEAD_TOLERATED_TICKS
            and self._quiet > self._settings.lead_frames_min
        ):
            self._change(-1)

    def _change(self, by: int) -> None:
        self._quiet += by
        self._hold = self.frames + 1
        self._window.clear()


class Pacer:
    """The clock of one live. Frames are sent in order; `next_frame` is the one awaited.

    Invariants: due times of sent units only grow; a frame that has not arrived is not playing, so
    `credit` never exceeds `next_frame + lead`.
    """

    def __init__(self, settings: PacerSettings, start_frame: int) -> None:
        self.next_frame = start_frame
        self.lateness = LatenessHistogram()
        self.lead = Lead(settings)
        self.reanchors = 0
        self.slipped_us = 0
        self._settings = settings
        self._anchor: tuple[int, int] | None = None
        self._origin_us: int | None = None
        self._earliest_us = 0
        self._tolerated_us = 0
        self._owed_us = 0
        self._units = 0

    def restart(self, frame: int) -> None:
        """Number from `frame` on, as after a new binding; the next arrival sets the clock."""
        self.next_frame = frame
        self._anchor = None
        self._owed_us = 0

    def arrived(self, frame: int, now_us: int, *, speech: bool) -> None:
        """A tick came in: set the clock if it has none, learn how early it was."""
        if self._anchor is None:
            self._set_anchor(frame, now_us + self._settings.start_delay_us)
        else:
            self.lead.observe(self._due_us(frame, 0) - now_us, speech=speech)

    def send_at_us(self, frame: int, half: int, now_us: int) -> int:
        """When this unit may go: now or earlier means at once. Moves the clock where it must."""
        due = self._due_us(frame, half)
        if half == 0 and now_us - due > self._settings.reanchor_late_us:
            slip = (now_us - due) // self._settings.grid_us * self._settings.grid_us
            self.reanchors += 1
            self.slipped_us += slip
            self._owed_us = slip
            self._set_anchor(frame, due + slip)
            due += slip
        elif half == 0 and due - now_us > self._settings.ahead_us_max:
            self.reanchors += 1
            self._set_anchor(frame, now_us + self._settings.start_delay_us)
            due = self._due_us(frame, half)
        return max(due, self._tolerated_us - self._settings.burst_us)

    def sent(self, frame: int, half: int, now_us: int) -> Timing:
        """The unit goes out now. Call in order, once per unit."""
        due = self._due_us(frame, half)
        if half == 0:
            self.lateness.add(now_us - due + self._owed_us)
            self._owed_us = 0
            self.next_frame = frame + 1
        if self._origin_us is None:
            self._origin_us = due
        stream_us = self._units * UNIT_US
        self._units += 1
        self._earliest_us = due + UNIT_US
        self._tolerated_us = max(self._tolerated_us, now_us) + self._settings.catch_up_spacing_us
        return Timing(media_us=due - self._origin_us, stream_us=stream_us, due_us=due)

    def playing(self, now_us: int) -> int:
        """The frame that plays now; at most the next one to be sent, which may be late."""
        if self._anchor is None:
            return self.next_frame
        frame, at_us = self._anchor
        by_clock = frame + (now_us - at_us) // TICK_US
        return min(max(by_clock, self.next_frame - 1), self.next_frame)

    def credit(self, now_us: int) -> int:
        """The highest frame that the stages may make now."""
        return self.playing(now_us) + self.lead.frames

    def next_due_us(self) -> int | None:
        """When the awaited frame is due; None while the clock is not set."""
        return None if self._anchor is None else self._due_us(self.next_frame, 0)

    def _due_us(self, frame: int, half: int) -> int:
        if self._anchor is None:
            raise ValueError("the clock is not set: no tick has arrived")
        at_frame, at_us = self._anchor
        return at_us + (frame - at_frame) * TICK_US + half * UNIT_US

    def _set_anchor(self, frame: int, at_us: int) -> None:
        grid = self._settings.grid_us
        self._anchor = (frame, -(-max(at_us, self._earliest_us) // grid) * grid)
