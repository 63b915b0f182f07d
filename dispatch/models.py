"""The JSON that goes in and out. What goes in refuses unknown keys and converts nothing."""

from dataclasses import asdict
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from ownership.model import LiveView, WorkerView
from schemas.options import LiveOptions
from schemas.store_values import Generation

INT64_MAX = 2**63 - 1


class _In(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Out(BaseModel):
    pass


class OptionsIn(_In):
    """Every option may be left out. The bounds are checked by the service."""

    look: str | None = Field(default=None, description="Name of a face", examples=["clay"])
    voice: str | None = Field(default=None, description="Name of a voice", examples=["heart"])
    speed: float | None = Field(default=None, description="Of speech; 1 is the voice's own")
    width_px: int | None = None
    height_px: int | None = None
    seed: int | None = Field(default=None, description="Same seed and text, same sound and picture")
    idle_timeout_ms: int | None = Field(
        default=None, description="The live ends so long after its last use"
    )
    length_ms_max: int | None = Field(
        default=None, description="It ends so long after its creation"
    )
    absent_viewer_ms: int | None = Field(
        default=None, description="It ends so long after its last viewer left; 0: never"
    )

    def options(self) -> LiveOptions:
        """Raises BadOptions."""
        given: dict[str, Any] = self.model_dump(exclude_unset=True)
        return LiveOptions.from_mapping({k: v for k, v in given.items() if v is not None})


class CreateLiveIn(_In):
    """An empty body creates a live with an id of the service's choice and default options."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"options": {"look": "clay"}}, {"live_id": "guide-7"}]}
    )
    live_id: str | None = Field(
        default=None, description="1 to 128 bytes of UTF-8, no control characters"
    )
    options: OptionsIn = Field(default_factory=OptionsIn)


class GenerationOut(_Out):
    """Who may speak the live: a worker incarnation, and the epoch, which only grows."""

    worker_id: str
    epoch: int

    @classmethod
    def of(cls, generation: Generation | None) -> "GenerationOut | None":
        if generation is None:
            return None
        return cls(worker_id=generation.worker_id, epoch=generation.epoch)


class LiveOut(_Out):
    """A live as the store knows it, all of it read at one version."""

    live_id: str
    state: str = Field(description="open or closed", examples=["open"])
    partition: int = Field(description="Of the text topic; the live's records are in this one")
    generation: GenerationOut | None = Field(description="null while nobody owns the live")
    claimed: bool = Field(description="The owner has accepted the generation and may speak")
    options: dict[str, Any]
    next_offset: int | None = Field(description="The next record that is not released yet")
    created_at_ms: int
    closed_at_ms: int | None
    close_reason: str
    worker_url: str | None

    @classmethod
    def of(cls, view: LiveView) -> "LiveOut":
        live, generation, claim = view.live, view.generation, view.claim
        claimed = (
            generation is not None
            and claim is not None
            and (claim.worker_id, claim.epoch) == (generation.worker_id, generation.epoch)
        )
        return cls(
            live_id=view.live_id,
            state=live.state.value,
            partition=live.partition,
            generation=GenerationOut.of(generation),
            claimed=claimed,
            options=live.options.as_mapping(),
            next_offset=view.cursor.next_offset if view.cursor is not None else None,
            created_at_ms=live.created_at_ms,
            closed_at_ms=live.closed_at_ms,
            close_reason=live.close_reason,
            worker_url=view.owner.url if view.owner is not None else None,
        )


class CreatedOut(_Out):
    """The live is open and has an owner."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "live_id": "guide-7",
                    "state": "open",
                    "partition": 3,
                    "generation": {"worker_id": "gpu-2-01JDVQ8M3W2K5R7S9T1X3Z5A7C", "epoch": 1},
                }
            ]
        }
    )
    live_id: str
    state: str
    partition: int
    generation: GenerationOut | None


class LivesOut(_Out):
    """One page. `next` is the `after` of the next page, null on the last."""

    lives: list[LiveOut]
    next: str | None


class ClosedOut(_Out):
    """The generation that ended, null when nobody owned the live."""

    live_id: str
    state: str
    close_reason: str
    generation: GenerationOut | None


class TextIn(_In):
    """Text to speak, the end of a turn, or both."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"text": "Good morning. ", "end_turn": True}]}
    )
    text: str | None = Field(default=None, description="At most 16384 bytes of UTF-8")
    end_turn: bool = Field(
        default=False, description="Speak what was gathered, also half a sentence"
    )
    seq: int | None = Field(
        default=None,
        ge=0,
        le=INT64_MAX,
        description="Grows per live. A text repeated with its `seq` is spoken once",
    )

    @model_validator(mode="after")
    def _asks_for_something(self) -> "TextIn":
        if self.text is None and not self.end_turn:
            raise ValueError("name a text, or end_turn: true")
        if self.seq is not None and self.text is None:
            raise ValueError("seq belongs to a text")
        return self


class SocketIn(_In):
    """One message of a text socket: exactly one of text, end_turn: true, interrupt: true."""

    text: str | None = None
    end_turn: bool = False
    interrupt: bool = False
    seq: int | None = Field(default=None, ge=0, le=INT64_MAX)

    @model_validator(mode="after")
    def _asks_for_one(self) -> "SocketIn":
        if (self.text is not None) + self.end_turn + self.interrupt != 1:
            raise ValueError("name exactly one of text, end_turn: true, interrupt: true")
        if self.seq is not None and self.text is None:
            raise ValueError("seq belongs to a text")
        return self


class PushedOut(_Out):
    """The record is in the log, on every in-sync replica. With text and end: the text's place."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "partition": 3,
                    "offset": 42,
                    "event_id": "01JDVQ8M3W2K5R7S9T1X3Z5A7C",
                    "end_turn_offset": 43,
                }
            ]
        }
    )
    partition: int
    offset: int
    event_id: str = Field(description="Named as source_event_id by the events it causes")
    end_turn_offset: int | None = None


class KeptOut(_Out):
    """Until when the live does not end for want of use."""

    live_id: str
    idle_timeout_ms: int


class MoveIn(_In):
    """`to` left out: the best other worker."""

    to: str | None = Field(default=None, min_length=1, max_length=256)


class MoveOut(_Out):
    """The move was begun; events tell when it is done."""

    live_id: str
    source: GenerationOut
    target: str
    token: str


class WorkerOut(_Out):
    """A worker incarnation; the counts are of slots."""

    worker_id: str
    node: str
    state: str
    capacity: int
    held: int
    leaving: int
    reserved: int
    free: int
    lives: int | None
    speaking: int | None
    partitions: list[int]
    url: str
    started_at_ms: int

    @classmethod
    def of(cls, view: WorkerView) -> "WorkerOut":
        value, load = view.value, view.load
        return cls(
            worker_id=value.worker_id,
            node=value.node,
            state=value.state.value,
            capacity=value.capacity,
            held=view.held,
            leaving=view.leaving,
            reserved=view.reserved,
            free=max(view.free_slots, 0),
            lives=load.lives if load is not None else None,
            speaking=load.speaking if load is not None else None,
            partitions=list(load.partitions) if load is not None else [],
            url=value.url,
            started_at_ms=value.started_at_ms,
        )


class WorkersOut(_Out):
    """Every worker that is not yet buried, dead ones too."""

    workers: list[WorkerOut]


class DrainIn(_In):
    """`draining: false` admits lives again."""

    draining: bool = True


class DrainOut(_Out):
    worker_id: str
    state: str


class HealthOut(_Out):
    status: str


class Problem(_Out):
    """Problem details (RFC 9457). Further members depend on the type."""

    model_config = ConfigDict(extra="allow")
    type: str
    title: str
    status: int
    detail: str
    instance: str | None = None
    retry_after_s: int | None = None


def members(counts: Any) -> dict[str, int]:
    """A dataclass of numbers as members of a problem."""
    return asdict(counts)
