"""What a stage process and its supervisor say to each other: JSON lines over a socket pair.

    supervisor: Plan, then Ping (answered by Pong), Dump (answered by Dumped), Stop
    stage:      Ready or LoadFailed, then Pong, Dumped, and SegmentNotMade as it happens

The end of the stream means that the other side is gone, and is acted on at once by both.

PURE.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Final, TypeAlias

LINE_BYTES_MAX: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything a stage process needs; `incoming` and `outgoing` are ring handles as JSON."""

    stage: str
    class_path: str
    device: str
    settings: Mapping[str, object]
    batch_max: int | None
    wait_us_max: int | None
    threads: int
    nice: int
    parent_pid: int
    table_fd: int
    bell_fd: int
    incoming: Mapping[str, object]
    outgoing: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Ping:
    """Are you alive? Answered between two batches, so a stage that hangs does not answer."""

    number: int


@dataclass(frozen=True, slots=True)
class Dump:
    """Send your whole state, for people."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Finish the batch at hand and exit."""


@dataclass(frozen=True, slots=True)
class Ready:
    """Loaded and warm. `wants_ticks`: the stage overrides `on_tick`."""

    load_ms: int
    wants_ticks: bool


@dataclass(frozen=True, slots=True)
class LoadFailed:
    """The class could not be found, made or loaded; the process exits."""

    reason: str


@dataclass(frozen=True, slots=True)
class Pong:
    """Alive, with the figures of this moment."""

    number: int
    stats: Mapping[str, float] = field(default_factory=dict[str, float])


@dataclass(frozen=True, slots=True)
class Dumped:
    """The answer to Dump."""

    state: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class SegmentNotMade:
    """A stage could not make (this part of) a segment."""

    live_slot: int
    binding: int
    segment_id: int
    reason: str


ControlMessage: TypeAlias = (
    Plan | Ping | Dump | Stop | Ready | LoadFailed | Pong | Dumped | SegmentNotMade
)
_TYPES: Final = {
    kind.__name__: kind
    for kind in (Plan, Ping, Dump, Stop, Ready, LoadFailed, Pong, Dumped, SegmentNotMade)
}


class BadControlLine(ValueError):
    """The other side said something that is not in this module: versions or memory are mixed up."""


def encode_line(message: ControlMessage) -> bytes:
    """One line, with its end. Raises `TypeError` for a setting that JSON cannot carry."""
    return json.dumps({"type": type(message).__name__, **asdict(message)}).encode() + b"\n"


def decode_line(line: bytes) -> ControlMessage:
    """The message of one line. Raises `BadControlLine`."""
    try:
        fields = json.loads(line)
        return _TYPES[fields.pop("type")](**fields)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadControlLine(f"{error!r} in {line[:200]!r}") from error


class LineReader:
    """Cuts a byte stream into messages; at most one unfinished line is kept."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> list[ControlMessage]:
        """The messages that this chunk completes. Raises `BadControlLine`."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        if len(self._rest) > LINE_BYTES_MAX:
            raise BadControlLine(f"a line of more than {LINE_BYTES_MAX} bytes")
        return [decode_line(line) for line in lines]
