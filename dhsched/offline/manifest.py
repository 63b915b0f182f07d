"""What a replay made, in hashes: one file by which two runs are compared without their media.

`sound` is what is heard, `picture` what was drawn before it was encoded. A segment's hash is over
the samples of the segment itself, so it is the same on whichever owner, and wherever in the film,
they were made.

PURE.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final, cast

SCHEMA: Final = 1
HASH: Final = "blake2b-128"

# What has to agree for two runs to be the same in every bit.
_SAME_MACHINE: Final = ("versions", "device", "processor")


class BadManifest(ValueError):
    """The file is no manifest of a replay, or of a later version."""


@dataclass(frozen=True, slots=True)
class SegmentMade:
    """One segment. `samples` of it were heard (24 kHz), from `first_frame` on over `frames`.

    `owners`: the epochs under which parts of it were heard. `ends`: how it ended.
    """

    segment_id: int
    offset: int
    char: int
    text: str
    utterance: int
    first_frame: int
    frames: int
    samples: int
    ends: str
    owners: tuple[int, ...]
    sound: str
    picture: str | None


@dataclass(frozen=True, slots=True)
class TrackMade:
    """A whole track: `length` samples or pictures."""

    length: int
    hash: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """One live's. `source` and `settings` say what was replayed and how; `repeated_frames` were
    made again by a later owner, and `repeated_different` of them were not the same sound.
    `complete`: the source was read to its end, not to where it breaks off."""

    live_id: str
    source: Mapping[str, Any]
    settings: Mapping[str, Any]
    options: Mapping[str, Any]
    versions: Mapping[str, str]
    device: str
    processor: str
    files: Mapping[str, str]
    frames: int
    sound: TrackMade
    picture: TrackMade | None
    segments: tuple[SegmentMade, ...]
    records: int = 0
    moves: int = 0
    dead_letters: int = 0
    closed: str = ""
    repeated_frames: int = 0
    repeated_different: int = 0
    complete: bool = True
    notes: tuple[str, ...] = ()
    hash: str = HASH
    schema: int = SCHEMA

    def as_json(self) -> str:
        """One document, with the segments one to a line."""
        return json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n"


def read_manifest(text: str) -> Manifest:
    """The inverse of `as_json`. Raises BadManifest."""
    try:
        given: Any = json.loads(text)
    except ValueError as error:
        raise BadManifest(f"not JSON: {error}") from error
    if not isinstance(given, dict):
        raise BadManifest("not a JSON object")
    values = cast("dict[str, Any]", given)
    if values.get("schema") != SCHEMA:
        raise BadManifest(f"schema {values.get('schema')!r}; this version reads {SCHEMA}")
    try:
        picture = values["picture"]
        values["sound"] = TrackMade(**values["sound"])
        values["picture"] = None if picture is None else TrackMade(**picture)
        values["segments"] = tuple(map(_segment, values["segments"]))
        values["notes"] = tuple(values["notes"])
        return Manifest(**values)
    except (KeyError, TypeError) as error:
        raise BadManifest(f"a field is missing or unknown: {error}") from error


def _segment(given: dict[str, Any]) -> SegmentMade:
    return SegmentMade(**cast("dict[str, Any]", {**given, "owners": tuple(given["owners"])}))


@dataclass(frozen=True, slots=True)
class Difference:
    """Something that two runs disagree in. `segment` is its place in the live, from 0."""

    what: str
    detail: str
    segment: int | None = None
    data: Mapping[str, Any] = field(default_factory=dict[str, Any])


def setting_differences(before: Manifest, after: Manifest) -> list[Difference]:
    """Why the two need not be the same."""
    found: list[Difference] = []
    for name in ("options", "settings", *_SAME_MACHINE):
        old, new = getattr(before, name), getattr(after, name)
        if old == new:
            continue
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            for key in sorted({*old, *new}):
                if old.get(key) != new.get(key):
                    found.append(_changed(f"{name}.{key}", old.get(key), new.get(key)))
        else:
            found.append(_changed(name, old, new))
    return found


def segment_differences(before: Manifest, after: Manifest) -> list[Difference]:
    """Segments that were cut, or sound, or look otherwise, in order."""
    found: list[Difference] = []
    for at, (old, new) in enumerate(zip(before.segments, after.segments, strict=False)):
        for name in _segment_fields(old, new):
            old_value, new_value = getattr(old, name), getattr(new, name)
            if old_value != new_value:
                found.append(_changed(name, old_value, new_value, segment=at))
    if len(before.segments) != len(after.segments):
        found.append(_changed("segments", len(before.segments), len(after.segments)))
    return found


def same_media(before: Manifest, after: Manifest) -> bool:
    """Whether every sample, and every picture that both have, is the same."""
    pictures = None in (before.picture, after.picture) or before.picture == after.picture
    return before.sound == after.sound and pictures and not segment_differences(before, after)


def same_speech(before: Manifest, after: Manifest) -> bool:
    """Whether the same segments were spoken with the same samples, wherever in the film."""
    return _speech(before.segments) == _speech(after.segments)


def _speech(segments: Sequence[SegmentMade]) -> list[tuple[int, str, int, str]]:
    return [(one.segment_id, one.text, one.samples, one.sound) for one in segments]


def _segment_fields(old: SegmentMade, new: SegmentMade) -> list[str]:
    """Who owned it says nothing of what it is; a picture is compared where there are two."""
    left_out = {"owners"} | ({"picture"} if None in (old.picture, new.picture) else set[str]())
    return [one.name for one in fields(SegmentMade) if one.name not in left_out]


def _changed(what: str, old: object, new: object, segment: int | None = None) -> Difference:
    return Difference(what, f"{old} before, {new} now", segment, {"before": old, "now": new})
