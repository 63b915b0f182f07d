"""What a person has at hand, read as what is said and when: JSON lines, subtitles, plain text.

    JSON lines   {"live": "a", "text": "Hello.", "at": 1.5}; also {"kind": "interrupt", ...}
    WebVTT, SRT  each cue is said when it begins; marks within it are left out
    plain text   paragraph by paragraph, all at once

Lines come numbered from 1, so that whoever wrote the file is told where to look.

PURE.
"""

import html
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias, cast

from schemas.text_record import RecordKind

Line: TypeAlias = tuple[int, str]

_JSON_NAMES: Final = frozenset({"live", "text", "at", "kind", "seq", "event_id"})
_VTT_TIME: Final = r"(?:(\d{2,}):)?([0-5]\d):([0-5]\d)\.(\d{3})"
_SRT_TIME: Final = r"(?:(\d+):)?(\d{1,2}):(\d{1,2})[.,](\d{1,3})"
_TAG = re.compile(r"</?[a-zA-Z][^<>]*>|<\d[\d:.]*>|\{\\[^{}]*\}")
_NOT_A_CUE = ("NOTE", "STYLE", "REGION")


class BadLine(ValueError):
    """The line cannot be read; `line` is its number, counted from 1."""

    def __init__(self, line: int, detail: str) -> None:
        super().__init__(f"line {line}: {detail}")
        self.line = line


@dataclass(frozen=True, slots=True)
class Said:
    """One record to be. `at_ms` counts from the beginning, or is Unix time where moments stand.

    `live_id` None: the file names no live.
    """

    line: int
    at_ms: int
    kind: RecordKind = RecordKind.TEXT
    text: str = ""
    live_id: str | None = None
    seq: int | None = None
    event_id: str = ""


def read_json_lines(lines: Iterable[Line]) -> Iterator[Said]:
    """One object a line, in the order of time. Raises BadLine."""
    last_ms: dict[str | None, int] = {}
    latest_ms = 0
    moments: bool | None = None
    for number, text in lines:
        if not text.strip():
            continue
        given = _object(number, text)
        live_id = _name(number, given, "live")
        at = given.get("at")
        at_ms = latest_ms if at is None else _at_ms(number, at)
        if at is not None:
            if moments is not None and moments is not isinstance(at, str):
                raise BadLine(number, '"at" is a moment in some lines and seconds in others')
            moments = isinstance(at, str)
        if at_ms < last_ms.get(live_id, 0):
            raise BadLine(
                number, f'"at" {at!r} lies before that of an earlier line of this live: sort them'
            )
        last_ms[live_id] = at_ms
        latest_ms = max(latest_ms, at_ms)
        seq = given.get("seq")
        if seq is not None and type(seq) is not int:
            raise BadLine(number, '"seq" is not an integer')
        yield Said(
            line=number,
            at_ms=at_ms,
            kind=_kind(number, given),
            text=_name(number, given, "text") or "",
            live_id=live_id,
            seq=seq,
            event_id=_name(number, given, "event_id") or "",
        )


def read_webvtt(lines: Iterable[Line]) -> Iterator[Said]:
    """Raises BadLine. https://www.w3.org/TR/webvtt1/"""
    blocks = _blocks(lines)
    head = next(blocks, None)
    if head is None or not re.match(r"WEBVTT(?:[ \t]|$)", head[0][1]):
        raise BadLine(1, "a WebVTT file begins with the line WEBVTT")
    cues = (block for block in blocks if not block[0][1].startswith(_NOT_A_CUE))
    return _cues(cues, _VTT_TIME)


def read_srt(lines: Iterable[Line]) -> Iterator[Said]:
    """SubRip: a number, a line of times with a comma, the text. Raises BadLine."""
    return _cues(_blocks(lines), _SRT_TIME)


def read_plain_text(lines: Iterable[Line]) -> Iterator[Said]:
    """A record a paragraph, and an end of the turn. Lines are joined as they stand."""
    number = 0
    for block in _blocks(lines):
        number = block[-1][0]
        yield Said(block[0][0], 0, text="\n".join(text for _, text in block) + "\n\n")
    if number:
        yield Said(number, 0, RecordKind.END_TURN)


READERS: Final[dict[str, Callable[[Iterable[Line]], Iterator[Said]]]] = {
    "jsonlines": read_json_lines,
    "vtt": read_webvtt,
    "srt": read_srt,
    "text": read_plain_text,
}


# -- JSON lines


def _object(number: int, text: str) -> dict[str, Any]:
    try:
        given: Any = json.loads(text, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise BadLine(number, f"not JSON: {error}") from error
    if not isinstance(given, dict):
        raise BadLine(number, 'not a JSON object such as {"text": "Hello.", "at": 1.5}')
    found = cast("dict[str, Any]", given)
    unknown = found.keys() - _JSON_NAMES
    if unknown:
        raise BadLine(number, f"unknown name {min(unknown)[:64]!r}; known: {sorted(_JSON_NAMES)}")
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name comes twice")
    return found


def _name(number: int, given: dict[str, Any], name: str) -> str | None:
    value = given.get(name)
    if value is not None and not isinstance(value, str):
        raise BadLine(number, f'"{name}" is not a string')
    return value


def _kind(number: int, given: dict[str, Any]) -> RecordKind:
    text = _name(number, given, "kind")
    try:
        return RecordKind.TEXT if text is None else RecordKind(text.lower())
    except ValueError:
        known = ", ".join(RecordKind)
        raise BadLine(number, f"there is no kind {text!r}; known: {known}") from None


def _at_ms(number: int, at: object) -> int:
    match at:
        case str():
            try:
                moment = datetime.fromisoformat(at)
            except ValueError:
                raise BadLine(
                    number, f'"at" {at[:64]!r} is no moment such as 2026-11-29T10:00:00.5Z'
                ) from None
            moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
            seconds = moment.timestamp()
        case bool():
            seconds = math.nan
        case int() | float():
            seconds = at
        case _:
            seconds = math.nan
    if not 0 <= seconds <= 1e11:
        raise BadLine(number, '"at" is neither seconds from the beginning nor a moment')
    return round(seconds * 1_000)


# -- subtitles


def _blocks(lines: Iterable[Line]) -> Iterator[list[Line]]:
    """Lines between blank ones."""
    block: list[Line] = []
    for number, text in lines:
        if text.strip():
            block.append((number, text))
        elif block:
            yield block
            block = []
    if block:
        yield block


def _cues(blocks: Iterable[list[Line]], time: str) -> Iterator[Said]:
    times = re.compile(rf"\s*{time}\s*-->\s*{time}(?:\s.*)?")
    last_ms = end_line = end_ms = 0
    for block in blocks:
        at = next((n for n, (_, text) in enumerate(block[:2]) if "-->" in text), None)
        if at is None:
            raise BadLine(block[0][0], "a cue without its line of times (00:01.000 --> 00:04.000)")
        number, text = block[at]
        found = times.fullmatch(text)
        if found is None:
            raise BadLine(number, f"{text.strip()[:64]!r} are no times of a cue")
        parts = [int(part or 0) for part in found.groups()]
        start_ms, end_ms = _ms(parts[:4]), _ms(parts[4:])
        if end_ms < start_ms:
            raise BadLine(number, "the cue ends before it begins")
        if start_ms < last_ms:
            raise BadLine(number, "the cue begins before the one before it: sort them")
        last_ms, end_line = start_ms, block[-1][0]
        said = " ".join(_plain(line) for _, line in block[at + 1 :]).strip()
        if said:
            yield Said(number, start_ms, text=said + " ")
    if end_line:
        yield Said(end_line, max(last_ms, end_ms), RecordKind.END_TURN)


def _ms(parts: list[int]) -> int:
    hours, minutes, seconds, ms = parts
    return ((hours * 60 + minutes) * 60 + seconds) * 1_000 + ms


def _plain(line: str) -> str:
    """The words of a cue's line: without tags, with its entities read."""
    return html.unescape(_TAG.sub("", line)).strip()
