"""What a capture holds: records of lives as they lay in the log, and the events about them.

Entries come in the order of their timestamps as far as each partition's own order allows: within a
partition of a topic the order is the log's. Offsets are the log's own and may have gaps; a
segment's voice is seeded by them, so a replay that kept none of them would sound different.

A live that was opened before the captured range has the event that opened it (`options_of`) and the
last one that claimed it (`generation_of`) before everything else. The clocks of producers and of
the system differ: a live's first record may stand before the event that opened it.

PURE.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, cast

from schemas.events import EventKind, LiveEvent
from schemas.options import BadOptions, LiveOptions
from schemas.quick_init import quick_init
from schemas.topics import EVENTS_TOPIC

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]

STATE_OPEN: Final = "open"
STATE_CLOSED: Final = "closed"


@quick_init
@dataclass(frozen=True, slots=True)
class CapturedRecord:
    """One record of the text topic, undecoded. `timestamp_ms` is Unix time.

    Whoever replays it decodes it: what cannot be read has to be refused there as it was in the log.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


@dataclass(frozen=True, slots=True)
class CapturedEvent:
    """One event, and where it lay in the events topic."""

    event: LiveEvent
    partition: int
    offset: int
    timestamp_ms: int


Entry: TypeAlias = CapturedRecord | CapturedEvent


@dataclass(frozen=True, slots=True)
class CaptureHeader:
    """What was asked for, in the file's metadata. `live_id` None: all lives.

    `ranges` maps each partition that was read to (first offset, the one after the last); both maps
    are empty for a file that was made of text. Events that name no record were taken by their time,
    in [from_ms, until_ms) where there are such bounds. `partition_count` is that of `topic`.
    """

    topic: str
    partition_count: int
    captured_at_ms: int
    version: str
    live_id: str | None = None
    ranges: Mapping[int, tuple[int, int]] = field(default_factory=dict[int, tuple[int, int]])
    events_topic: str = EVENTS_TOPIC
    event_ranges: Mapping[int, tuple[int, int]] = field(default_factory=dict[int, tuple[int, int]])
    from_ms: int | None = None
    until_ms: int | None = None


@dataclass(frozen=True, slots=True)
class RecordedGeneration:
    """A generation that took a live, as its controller's `claimed` event tells it.

    `next_offset` is the cursor it claimed: the first record that it released, not the one before.
    `segments` were released and not spoken to their end then, `frame` is the media clock it took
    over: the tick of 40 ms at which the viewer saw it go on.
    """

    live_id: str
    worker_id: str
    epoch: int
    at_ms: int
    next_offset: int
    segments: int
    frame: int


def generation_of(event: LiveEvent) -> RecordedGeneration | None:
    """The generation that this event says was claimed; None for every other event."""
    if event.kind is not EventKind.CLAIMED or event.offset is None:
        return None
    return RecordedGeneration(
        live_id=event.live_id,
        worker_id=event.worker_id,
        epoch=event.epoch,
        at_ms=event.at_ms,
        next_offset=event.offset,
        segments=_whole(event.data.get("segments")),
        frame=_whole(event.data.get("frame")),
    )


def options_of(event: LiveEvent) -> LiveOptions | None:
    """The options that a live was opened with; None unless this event opens a live and says them.

    Raises BadOptions for options that this version does not take.
    """
    if event.kind is not EventKind.STATE_UPDATED or event.data.get("state") != STATE_OPEN:
        return None
    text = event.data.get("options")
    if not isinstance(text, str):
        return None
    try:
        given: Any = json.loads(text)
    except ValueError as error:
        raise BadOptions("options", f"not JSON: {error}") from error
    if not isinstance(given, dict):
        raise BadOptions("options", "not a JSON object")
    return LiveOptions.from_mapping(cast("dict[str, object]", given))


def _whole(number: object) -> int:
    return number if isinstance(number, int) and not isinstance(number, bool) else 0
