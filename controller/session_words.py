"""How sessions name things in events and stories.

PURE.
"""

from controller import events as ev
from controller.speech import Spoken
from schemas.events import EventData
from schemas.store_values import Cursor, Generation


def where(spoken: Spoken, **more: str | int | float | bool | None) -> EventData:
    """What names a segment in an event."""
    bounds = spoken.segment.bounds
    return {
        "segment_id": spoken.segment.segment_id,
        "char": bounds.start_char,
        "end_offset": bounds.end_offset,
        "end_char": bounds.end_char,
        "utterance": spoken.segment.utterance,
        **more,
    }


def named(prefix: str, generation: Generation | None) -> EventData:
    """A generation as flat data; null when nobody owns the live."""
    return {
        f"{prefix}_worker_id": None if generation is None else generation.worker_id,
        f"{prefix}_epoch": None if generation is None else generation.epoch,
    }


def next_offset(cursor: Cursor | None) -> int | None:
    """Where a cursor stands, null when there is none."""
    return None if cursor is None else cursor.next_offset


def detail(event: ev.Event) -> str | int:
    """The one thing about an event that its story needs. Cheap, for it runs at every event."""
    match event:
        case ev.TickSent(segment_id):
            return segment_id
        case ev.RecordsRead(records, read_to):
            return f"{len(records)} to {read_to}" if records else read_to
        case ev.InterruptSeen(offset) | ev.LetterSent(offset):
            return offset
        case ev.ReleaseDone(permit):
            return permit.release_id
        case ev.ReleaseStale(release_id) | ev.CursorFound(release_id):
            return release_id
        case ev.FeedRefused(segment_id) | ev.SegmentBroken(segment_id):
            return segment_id
        case ev.ClaimDone():
            return event.cursor.next_offset
        case ev.Bound(live_slot, binding):
            return f"slot {live_slot} binding {binding}"
        case ev.BindRefused(reason) | ev.StagesLost(reason) | ev.OwnershipLost(reason):
            return reason
        case ev.HandOverRefused(reason):
            return reason
        case ev.HandOverAsked(target):
            return target
        case ev.HandOverDone(successor):
            return f"{successor.worker_id} {successor.epoch}"
        case _:
            return ""
