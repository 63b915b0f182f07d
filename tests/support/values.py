"""One value of each class of the core that is a `Value`, and others like one."""

from typing import Any, TypeVar

from controller import events as ev
from controller import instructions as do
from controller.fence import mint
from controller.segmenter import Cut
from controller.sentence_ends import Found
from controller.session_core import Ask
from controller.text_queue import Step
from ownership.model import Released, ReleaseItem
from schemas.events import EventKind, LiveEvent
from schemas.store_values import Checkpoint, Generation, SegmentBounds
from schemas.text_record import RecordKind, TextRecord
from schemas.value import Value

V = TypeVar("V", bound=Value)

BOUNDS = SegmentBounds(1, 2, 3, 4)
RECORD = TextRecord(RecordKind.TEXT, "Hi", 7)
SEGMENT = do.SpokenSegment(12, BOUNDS, "Hi", 99, 0)
REQUEST = do.RequestRelease("c/1", 5, 6, 7, Checkpoint(), None, (SEGMENT,))
PERMIT = mint(Released(ReleaseItem("anna", Generation("one", 3), 5, 6, "c/1")), [12])
VALUES: list[Value] = [
    RECORD,
    LiveEvent(EventKind.MOVED, "e", "s", "anna", "one", 3, 5, data={"to": "two"}),
    ev.Accepted(5, RECORD),
    ev.RecordsRead((ev.Accepted(5, RECORD),), 6),
    ev.ReleaseDone(PERMIT),
    ev.TickSent(12, 480, last=True, muted=False),
    do.Feed(PERMIT, SEGMENT),
    do.Publish(EventKind.MOVED, data={"to": "two"}),
    REQUEST,
    SEGMENT,
    Ask(REQUEST),
    Cut(BOUNDS, "Hi", "", whole=True, speak=True),
    Found(None, 3, -1),
    Step(6, 7, -1, (), 1, 0),
]


def changed(value: V, **changes: Any) -> V:
    """One of its class with other values in these fields."""
    make: Any = type(value)
    return make(**{**value.as_dict(), **changes})
