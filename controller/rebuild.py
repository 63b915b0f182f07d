"""What a new owner reads again to go on where the last one stopped.

The checkpoint names segments that were released and not spoken to their end, by exact bounds. Their
records lie below the cursor. They are cut the same way again, so the samples are the same, and the
first one starts behind what was already sent. A segment of no characters stands for a CLOSE that
was released while the live was not closed yet.

PURE.
"""

from dataclasses import dataclass, field

from controller.events import Accepted, Incoming
from controller.instructions import SpokenSegment
from controller.segmenter import TextMissing, cut_text
from controller.speech import Spoken, seed_of, segment_id_of
from schemas.store_values import Checkpoint, SegmentBounds
from schemas.text_record import RecordKind


def close_bounds(offset: int) -> SegmentBounds:
    """The mark of a CLOSE record in a checkpoint."""
    return SegmentBounds(offset, 0, offset, 0)


def is_close(bounds: SegmentBounds) -> bool:
    """Whether this is the mark of a CLOSE record."""
    return bounds == close_bounds(bounds.start_offset)


def read_again_from(checkpoint: Checkpoint | None, cursor: int, finished_below: int) -> int:
    """The first offset that the new owner needs."""
    if checkpoint is not None and checkpoint.segments:
        return min(checkpoint.segments[0].start_offset, cursor)
    if checkpoint is not None and checkpoint.next_char >= 0:
        return max(0, cursor - 1)
    return max(cursor, finished_below)


@dataclass(slots=True)
class Rebuild:
    """Gathers the records below `cursor`, then makes again what the checkpoint names.

    Invariant: `held` keeps what came behind the cursor, until all below it is known.
    """

    checkpoint: Checkpoint
    cursor: int
    texts: list[Accepted] = field(default_factory=list[Accepted])
    ends_turn: bool = False
    """An END_TURN is the last of what was read below the cursor."""
    held: list[Incoming] = field(default_factory=list[Incoming])

    def take(self, incoming: Incoming) -> None:
        """One record, in order."""
        if incoming.offset >= self.cursor:
            self.held.append(incoming)
        elif isinstance(incoming, Accepted):
            if incoming.record.kind is RecordKind.TEXT:
                self.texts.append(incoming)
            self.ends_turn = incoming.record.kind is RecordKind.END_TURN

    def segments(self, live_id: str, utterance: int) -> tuple[list[Spoken], list[str]]:
        """The segments as they were, and what could not be made again, in words."""
        texts = [(one.offset, one.record.text) for one in self.texts]
        event_ids = {one.offset: one.record.event_id for one in self.texts}
        made: list[Spoken] = []
        lost: list[str] = []
        for at, bounds in enumerate(self.checkpoint.segments):
            if is_close(bounds):
                continue
            try:
                text = cut_text(texts, bounds)
            except TextMissing as error:
                lost.append(f"segment at {bounds.start_offset}/{bounds.start_char}: {error}")
                continue
            emitted = self.checkpoint.samples_emitted if at == 0 else 0
            segment = SpokenSegment(
                segment_id_of(bounds), bounds, text, seed_of(live_id, bounds), utterance, emitted
            )
            event_id = event_ids.get(bounds.start_offset, "")
            made.append(Spoken(segment, event_id, emitted=emitted))
        return made, lost

    def rest(self) -> Accepted | None:
        """The record below the cursor, when segments hold only a part of it."""
        if self.checkpoint.next_char < 0 or not self.texts:
            return None
        last = self.texts[-1]
        return last if last.offset == self.cursor - 1 else None

    @property
    def closes(self) -> bool:
        """Whether a CLOSE was released, and the live is still to be closed."""
        return any(is_close(bounds) for bounds in self.checkpoint.segments)
