"""The segments of a live that were released and are not spoken to their end.

PURE.
"""

from collections import deque
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from controller.instructions import SpokenSegment
from controller.segmenter import Cut
from schemas.store_values import SegmentBounds
from schemas.text_record import TEXT_BYTES_MAX

_CHAR_BITS: Final = TEXT_BYTES_MAX.bit_length()
_OFFSET_MAX: Final = 1 << (63 - _CHAR_BITS)


def segment_id_of(bounds: SegmentBounds) -> int:
    """Unique in its live and never 0: from where the segment starts, so every owner names it alike.

    u64: the offset, and the character in its low bits, plus one.
    """
    if not 0 <= bounds.start_offset < _OFFSET_MAX:
        raise ValueError(f"offset {bounds.start_offset} is out of range")
    return (bounds.start_offset << _CHAR_BITS | bounds.start_char) + 1


def seed_of(live_id: str, bounds: SegmentBounds) -> int:
    """u64 from the live and the segment's start: the same samples on every owner."""
    name = f"{bounds.start_offset}/{bounds.start_char}/{live_id}".encode()
    return int.from_bytes(blake2b(name, digest_size=8).digest(), "little")


@dataclass(slots=True, init=False)
class Spoken:
    """One released segment. `emitted` samples of it (24 kHz) were sent; `fed`: it is in the stages
    of the present binding; `moved_ms`: when it was last fed or heard."""

    segment: SpokenSegment
    source_event_id: str
    ends_turn: bool
    fed: bool
    started: bool
    emitted: int
    moved_ms: int

    def __init__(
        self,
        segment: SpokenSegment,
        source_event_id: str,
        ends_turn: bool = False,
        emitted: int = 0,
    ) -> None:
        self.segment = segment
        self.source_event_id = source_event_id
        self.ends_turn = ends_turn
        self.fed = self.started = False
        self.emitted = emitted
        self.moved_ms = 0


class Speech:
    """Released segments in the order they are spoken.

    Invariants: only the first one has samples emitted; those that are fed stand before those that
    are not; there are at most `segments_ahead_max`.
    """

    def __init__(self) -> None:
        self._spoken: deque[Spoken] = deque()

    def __len__(self) -> int:
        return len(self._spoken)

    @property
    def first(self) -> Spoken | None:
        """The one being spoken."""
        return self._spoken[0] if self._spoken else None

    @property
    def bounds(self) -> tuple[SegmentBounds, ...]:
        """Of all, for the checkpoint."""
        return tuple(one.segment.bounds for one in self._spoken)

    @property
    def emitted(self) -> int:
        """Samples of the first that were sent."""
        return self._spoken[0].emitted if self._spoken else 0

    def add(self, spoken: Spoken) -> None:
        """A segment behind all others."""
        self._spoken.append(spoken)

    @property
    def waits(self) -> bool:
        """Whether any has to be fed (again): those that are not stand behind those that are."""
        return bool(self._spoken) and not self._spoken[-1].fed

    @property
    def unfed_ids(self) -> set[int]:
        """Those that have to be fed (again)."""
        return {one.segment.segment_id for one in self._spoken if not one.fed}

    def unfed(self) -> tuple[SpokenSegment, ...]:
        """What has to be fed (again), the samples already sent left out."""
        if not self.waits:
            return ()
        return tuple(
            one.segment
            if one.segment.skip_samples == one.emitted
            else one.segment.skipping(one.emitted)
            for one in self._spoken
            if not one.fed
        )

    def fed(self, segment_ids: frozenset[int], now_ms: int) -> None:
        """These went to the ring."""
        for one in self._spoken:
            if one.segment.segment_id in segment_ids:
                one.fed = True
                one.moved_ms = now_ms

    def not_fed(self, segment_id: int | None) -> None:
        """This segment and those behind it are not in the stages; None: none is."""
        found = segment_id is None
        for one in self._spoken:
            found = found or one.segment.segment_id == segment_id
            if found:
                one.fed = False

    def find(self, segment_id: int) -> Spoken | None:
        """The segment of that id, None when it is not (any more) to be spoken."""
        return next((one for one in self._spoken if one.segment.segment_id == segment_id), None)

    def end_before(self, spoken: Spoken) -> list[Spoken]:
        """Take out all that must be over because `spoken` is heard now."""
        over: list[Spoken] = []
        while self._spoken and self._spoken[0] is not spoken:
            over.append(self._spoken.popleft())
        return over

    def remove(self, spoken: Spoken) -> None:
        """Take it out: spoken to its end, or given up."""
        self._spoken.remove(spoken)

    def clear(self) -> None:
        """An interrupt ended all of them."""
        self._spoken.clear()


def segment_of(live_id: str, cut: Cut, utterance: int) -> SpokenSegment:
    """A cut as it goes to the stages."""
    return SpokenSegment(
        segment_id=segment_id_of(cut.bounds),
        bounds=cut.bounds,
        text=cut.text,
        seed=seed_of(live_id, cut.bounds),
        utterance=utterance,
    )
