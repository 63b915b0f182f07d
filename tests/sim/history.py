"""What happened in a run, as a plain list: all that the checkers may look at.

Nothing here knows how the system works inside. Each entry is something that an outside observer of
the store's commit order, of the topics, of the stages' inputs and of the egress could write down,
so a history recorded from real processes has the same entries. The list's order is the order in
which things happened; commits stand in commit order.

PURE.
"""

from dataclasses import asdict, dataclass, fields
from typing import Any, cast

Bounds = tuple[int, int, int, int]
"""(start offset, start character, end offset, end character), the end exclusive."""


@dataclass(frozen=True, slots=True)
class Entry:
    """`at_ms` is the observer's time. Only `heard_again` compares it; elsewhere it is shown."""

    at_ms: int


@dataclass(frozen=True, slots=True)
class Promised(Entry):
    """How this run was set up, for the claim about sound that is heard again.

    A history without it is not judged by that claim.

    `checkpoint_ms` is the interval of checkpoints. `slack_ms`: how far a checkpoint that nothing
    holds up may come behind its time, and a time of this history behind the truth.
    """

    checkpoint_ms: int
    slack_ms: int


# -- the store, in commit order ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Committed(Entry):
    """A transaction of `process` is durable as `version`; what it wrote follows, same version."""

    version: int
    process: str


@dataclass(frozen=True, slots=True)
class WorkerWritten(Entry):
    version: int
    process: str
    worker_id: str
    state: str
    capacity: int


@dataclass(frozen=True, slots=True)
class LiveWritten(Entry):
    version: int
    process: str
    live_id: str
    state: str
    partition: int
    create_id: str


@dataclass(frozen=True, slots=True)
class GenerationWritten(Entry):
    """`worker_id` "" says that nobody owns the live now."""

    version: int
    process: str
    live_id: str
    worker_id: str
    epoch: int
    slot: int
    commit_id: str


@dataclass(frozen=True, slots=True)
class CursorWritten(Entry):
    """`release_id` "" for a cursor that no release moved (create, disposal)."""

    version: int
    process: str
    live_id: str
    next_offset: int
    release_id: str
    skipped: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class ProgressWritten(Entry):
    """The checkpoint: `segments` are released and not spoken to their end. None: cleared."""

    version: int
    process: str
    live_id: str
    segments: tuple[Bounds, ...] | None
    samples: int
    next_char: int


@dataclass(frozen=True, slots=True)
class SlotWritten(Entry):
    """`state` is held, leaving, reserved, or "" for free."""

    version: int
    process: str
    worker_id: str
    slot: int
    live_id: str
    epoch: int
    state: str


# -- what was asked of the store, by whom, in whose name ---------------------------------------


@dataclass(frozen=True, slots=True)
class ReleaseAsked(Entry):
    """`process` asks, as generation (worker_id, epoch), to move a cursor under `release_id`."""

    process: str
    live_id: str
    worker_id: str
    epoch: int
    release_id: str


@dataclass(frozen=True, slots=True)
class ReleaseRefused(Entry):
    """The store's answer to such a request was no: `reason` is stale or cursor_moved."""

    process: str
    live_id: str
    worker_id: str
    epoch: int
    release_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class ReleaseSlow(Entry):
    """A request for releases by `process` that was begun at `since_ms` is answered only now."""

    process: str
    since_ms: int


@dataclass(frozen=True, slots=True)
class MoveAsked(Entry):
    """`process` wants the live to go on from (worker_id, epoch) to `target`, as `commit_id`."""

    process: str
    live_id: str
    worker_id: str
    epoch: int
    target: str
    commit_id: str


# -- the topics --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Produced(Entry):
    """A record lies in the text topic. `kind`: text, end_turn, interrupt, close, or bad."""

    partition: int
    offset: int
    live_id: str
    kind: str
    text: str
    seq: int | None


@dataclass(frozen=True, slots=True)
class Lettered(Entry):
    """The dead letter of a record of the text topic lies in its topic.

    With the reason `before_log_start` it stands for all that was deleted up to `offset` before it
    was finished: of `live_id`, or of lives without an owner when that is "".
    """

    partition: int
    offset: int
    reason: str
    live_id: str = ""


@dataclass(frozen=True, slots=True)
class Truncated(Entry):
    """Retention: everything of the text topic's partition below `log_start` is gone."""

    partition: int
    log_start: int


@dataclass(frozen=True, slots=True)
class ErrorTold(Entry):
    """`process`, as owner of epoch `epoch`, publishes an error on the live.

    `reason` is before_log_start (unreleased records were deleted) or text_lost (records of segments
    that were released and not spoken).
    """

    process: str
    live_id: str
    epoch: int
    reason: str


# -- stages and egress -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Bound(Entry):
    """From now on `process` may speak the live, as `binding`."""

    process: str
    live_id: str
    epoch: int
    binding: int


@dataclass(frozen=True, slots=True)
class Unbound(Entry):
    process: str
    live_id: str
    epoch: int
    binding: int


@dataclass(frozen=True, slots=True)
class Fed(Entry):
    """A segment's text went into the first ring of `process`."""

    process: str
    live_id: str
    epoch: int
    binding: int
    segment: int
    text: str


@dataclass(frozen=True, slots=True)
class Heard(Entry):
    """Samples [begin, end) of a segment left the egress that serves (`live_id`, `epoch`).

    `tick_live_id`, `tick_epoch`, `tick_binding`: for whom the stages made them.
    """

    process: str
    live_id: str
    epoch: int
    segment: int
    begin: int
    end: int
    last: bool
    tick_live_id: str
    tick_epoch: int
    tick_binding: int


@dataclass(frozen=True, slots=True)
class TickRefused(Entry):
    """The egress of (`live_id`, `epoch`) refused what stages made for an earlier binding."""

    process: str
    live_id: str
    epoch: int
    tick_epoch: int


# -- processes and the end ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Fault(Entry):
    """The world did something to `process`."""

    kind: str
    process: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Gone(Entry):
    """The process runs no more; nothing of it is bound any more."""

    process: str


@dataclass(frozen=True, slots=True)
class Broke(Entry):
    """Production code says that an invariant of its own broke."""

    process: str
    error: str

    @classmethod
    def by(cls, error: BaseException, process: str, at_ms: int) -> "Broke":
        """What was raised, with what a group of errors is made of."""
        parts = [error]
        if isinstance(error, BaseExceptionGroup):
            parts += cast("BaseExceptionGroup[BaseException]", error).exceptions
        return cls(at_ms, process, "; ".join(f"{type(one).__name__}: {one}" for one in parts))


@dataclass(frozen=True, slots=True)
class Ended(Entry):
    """The run is over. `settled`: nothing was left to do; `waiting` names the lives that had."""

    settled: bool
    waiting: tuple[str, ...]
    capacity_left: bool


History = list[Entry]

KINDS: dict[str, type[Entry]] = {kind.__name__: kind for kind in Entry.__subclasses__()}


def to_plain(history: History) -> list[dict[str, Any]]:
    """For JSON."""
    return [{"entry": type(one).__name__, **asdict(one)} for one in history]


def from_plain(plain: list[dict[str, Any]]) -> History:
    """Back from JSON, whose arrays are tuples here."""
    found: History = []
    for one in plain:
        kind = KINDS[one["entry"]]
        values = {field.name: _frozen(one[field.name]) for field in fields(kind)}
        found.append(kind(**values))
    return found


def _frozen(value: Any) -> Any:
    return tuple(_frozen(one) for one in value) if isinstance(value, list) else value
