"""Recorded streams for tests of replay: a live's records and events, written as a capture."""

import json
from collections.abc import Sequence
from pathlib import Path

from dhsched.offline.capture_file import CaptureWriter
from dhsched.offline.entries import CapturedEvent, CapturedRecord, CaptureHeader, Entry
from schemas.events import EventKind, LiveEvent
from schemas.options import LiveOptions
from schemas.partition import partition_of
from schemas.topics import TEXT_TOPIC

BEGIN_MS = 1_800_000_000_000
PARTITIONS = 4
LIVE = "anna"
SMALL = LiveOptions(width_px=64, height_px=64, seed=7)


def record(offset: int, at_ms: int, value: dict[str, object], live: str = LIVE) -> CapturedRecord:
    key = live.encode()
    return CapturedRecord(
        TEXT_TOPIC,
        partition_of(key, PARTITIONS),
        offset,
        BEGIN_MS + at_ms,
        key,
        json.dumps(value).encode(),
    )


def event(at_ms: int, kind: EventKind, epoch: int, offset: int | None, live: str, **data: object):
    told = LiveEvent(
        kind=kind,
        event_id=f"{kind}-{epoch}-{at_ms}",
        source_event_id="",
        live_id=live,
        worker_id=f"worker-{epoch}",
        epoch=epoch,
        at_ms=BEGIN_MS + at_ms,
        offset=offset,
        data=data,  # type: ignore[arg-type]
    )
    return CapturedEvent(told, 0, 0, BEGIN_MS + at_ms)


def opened(at_ms: int, options: LiveOptions = SMALL, live: str = LIVE) -> CapturedEvent:
    said = json.dumps(options.as_mapping())
    return event(at_ms, EventKind.STATE_UPDATED, 1, None, live, state="open", options=said)


def claimed(at_ms: int, epoch: int, cursor: int = 0, live: str = LIVE) -> CapturedEvent:
    return event(at_ms, EventKind.CLAIMED, epoch, cursor, live, segments=0, frame=0)


def moved(at_ms: int, to_epoch: int, live: str = LIVE) -> CapturedEvent:
    to = {"to_worker_id": f"worker-{to_epoch}", "to_epoch": to_epoch}
    return event(at_ms, EventKind.MOVED, to_epoch - 1, None, live, **to)


def closed(at_ms: int, reason: str, live: str = LIVE) -> CapturedEvent:
    return event(at_ms, EventKind.STATE_UPDATED, 1, None, live, state="closed", reason=reason)


def in_order(entries: Sequence[Entry]) -> list[Entry]:
    """By time; the events topic numbers its own."""
    found: list[Entry] = []
    events = 0
    for entry in sorted(entries, key=lambda one: one.timestamp_ms):
        if isinstance(entry, CapturedEvent):
            entry = CapturedEvent(entry.event, 0, events, entry.timestamp_ms)
            events += 1
        found.append(entry)
    return found


def write(path: Path, entries: Sequence[Entry]) -> Path:
    header = CaptureHeader(TEXT_TOPIC, PARTITIONS, BEGIN_MS, "test", events_topic="dhsched.events")
    with CaptureWriter(path, header, codec="null") as writer:
        for entry in entries:
            writer.write(entry)
        writer.commit()
    return path


def stages_file(folder: Path, *, loudest: int = 8_000, voice: str = "NoiseVoice") -> Path:
    """Stages that cost nothing; sound and motion, a grey picture, the real encoder."""
    here = Path(__file__).with_name("replay_stages.py")
    path = folder / f"stages-{voice}-{loudest}.toml"
    path.write_text(
        f'[speech]\nclass = "{here}:{voice}"\n[speech.settings]\nloudest = {loudest}\n'
        f'[render]\nclass = "{here}:GreyPicture"\n'
    )
    return path
