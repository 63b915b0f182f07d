"""From where and until where: offsets, moments and spans, as people write them.

    1200              the offset, where one partition is read
    0:1200,3:80       offsets by partition
    2026-11-29T10:00  a moment; without a zone it is UTC
    -10m  -1h30m      before now
    +5m               after the beginning of the range

PURE.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, TypeAlias

_UNITS_MS: Final[Mapping[str, int]] = {
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}
_SPAN = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|s|m|h|d))+")
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_BY_PARTITION = re.compile(r"\d+:\d+(?:,\d+:\d+)*")
_OFFSET_MAX: Final = 2**63 - 1


class BadPoint(ValueError):
    """The caller's fault: not a point in a topic."""


@dataclass(frozen=True, slots=True)
class AtOffset:
    """This offset of the one partition that is read."""

    offset: int


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """An offset for each of these partitions; others are read whole."""

    by_partition: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record with this timestamp (Unix milliseconds) or a later one."""

    ms: int


@dataclass(frozen=True, slots=True)
class AfterBegin:
    """So many milliseconds after the beginning of the range."""

    ms: int


Point: TypeAlias = AtOffset | AtOffsets | AtTime | AfterBegin


def parse_point(text: str, now_ms: int) -> Point:
    """What `text` names; `now_ms` is Unix time. Raises BadPoint."""
    text = text.strip()
    if text.isdecimal() and text.isascii():
        return AtOffset(_offset(text))
    if _BY_PARTITION.fullmatch(text):
        return _by_partition(text)
    if text.startswith("-"):
        return AtTime(now_ms - span_ms(text[1:]))
    if text.startswith("+"):
        return AfterBegin(span_ms(text[1:]))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise BadPoint(
            f"{text!r} is neither an offset (1200, or 0:1200,3:80 by partition), nor a moment "
            "(2026-11-29T10:00), nor a span (-10m, +5m)"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return AtTime(round(moment.timestamp() * 1_000))


def span_ms(text: str) -> int:
    """A length of time such as 90s or 1h30m. Raises BadPoint."""
    if not _SPAN.fullmatch(text):
        raise BadPoint(f"{text!r} is no length of time; write 90s, 10m, 1h30m or 2d")
    return round(sum(float(number) * _UNITS_MS[unit] for number, unit in _PART.findall(text)))


def _by_partition(text: str) -> AtOffsets:
    pairs = [part.split(":") for part in text.split(",")]
    found = {int(partition): _offset(offset) for partition, offset in pairs}
    if len(found) != len(pairs):
        raise BadPoint(f"{text!r} names a partition twice")
    return AtOffsets(found)


def _offset(digits: str) -> int:
    number = int(digits) if len(digits) < 20 else _OFFSET_MAX + 1
    if number > _OFFSET_MAX:
        raise BadPoint(f"{digits} is no offset: they end at {_OFFSET_MAX}")
    return number
