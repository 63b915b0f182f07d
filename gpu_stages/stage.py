"""What a stage is: the class that a bundled or a user's own model implements.

The contract, which `stage_main` keeps and a stage may rely on:

- One instance per process, called from one thread only, never re-entered.
- `load` runs once, before the stage is announced as ready.
- Every message of a batch was checked against the live table right before `process`: its binding
  is the row's, its epoch is not lower. `rows[i]` is the row that `batch[i]` was checked against.
  Messages of one live arrive in the order in which they were sent, and lives take turns.
- A stage looks at `row.utterance` itself: messages of a lower utterance are muted (segments are
  dropped, ticks keep their picture and lose their sound).
- Message parts are views into the ring. They are valid until `process` returns; copy what lives
  longer.
- `process` is given no more messages than the outbox has room for at `outputs_per_message_max`
  messages each, so a stage that keeps to that number never meets `NoRoom` in `process`. In
  `on_tick` a stage asks `out.room()` and makes the rest the next time.
- When `process` raises, it is called again with the same messages in parts: life by life, or in
  halves when memory ran out. Messages of which something was sent are left out. What still raises
  alone fails its segments with an event, and nothing else. A stage that keeps what it is given for
  later says `repeatable = False`: then a batch that raises fails as a whole.
- `forget` is called before anything of a new binding of that slot is shown to the stage.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias

from gpu_stages.header import Header
from gpu_stages.live_table import LiveRow

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "DeviceArray",
    "DevicePart",
    "Header",
    "LiveRow",
    "Message",
    "NoRoom",
    "Outbox",
    "Part",
    "PartTooLarge",
    "Stage",
]

Part: TypeAlias = "bytes | bytearray | memoryview | np.ndarray[Any, Any] | DeviceArray"
"""A payload part: anything with a C-contiguous buffer, or a contiguous array on the stage's device,
such as a torch tensor. Its bytes are copied once, into the slot."""


class DeviceArray(Protocol):
    """An array in device memory, by the CUDA array interface (numba's documentation defines it)."""

    @property
    def __cuda_array_interface__(self) -> Mapping[str, Any]: ...


@dataclass(frozen=True, slots=True)
class DevicePart:
    """A part of a message in device memory: `torch.as_tensor(part, device=...)` looks at it without
    a copy, as uint8 [size_bytes]. 512-byte aligned. Valid until `process` returns."""

    address: int
    size_bytes: int

    @property
    def __cuda_array_interface__(self) -> Mapping[str, Any]:
        return {
            "version": 3,
            "shape": (self.size_bytes,),
            "typestr": "|u1",
            "data": (self.address, False),
            "strides": None,
            "stream": None,  # complete already
        }


class NoRoom(Exception):
    """The ring downstream has no free slot now; nothing was sent. Ask `room()` and try later."""


class PartTooLarge(ValueError):
    """The parts do not fit a slot of the ring downstream; nothing was sent."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a batch. `parts` are four uint8 views (those not sent are empty), 64-byte
    aligned. The slot is the stage's own until `process` returns: it may work in place.

    For a stage with `takes_device_parts`, a part that lies on its device is in `on_device` at the
    same index, and empty in `parts`; `on_device` is empty when there is none.
    """

    header: Header
    parts: tuple[memoryview, ...]
    on_device: tuple[DevicePart | None, ...] = ()


class Outbox(Protocol):
    """Where a stage puts its results: the ring to the next stage, and the controller for failures.

    Nothing is ever dropped here: what does not fit is refused with `NoRoom`.
    """

    def room(self) -> int:
        """How many messages can be sent now."""
        ...

    def keeps_on_device(self) -> bool:
        """Whether a part in device memory would stay there if it were sent now. A part on the
        device may be sent in any case; where this is False it is copied down first, one by one,
        so a stage with a batch had better do that itself, at once."""
        ...

    def send(self, header: Header, parts: Sequence[Part]) -> None:
        """Publish one message of at most four parts; `header.part_bytes` is filled in here.

        A header of kind SEGMENT_FAILED goes past the stages between to the controller, needs no
        room, and has one part: the reason in UTF-8. Raises `NoRoom` and `PartTooLarge`.
        """
        ...


class Stage(ABC):
    """One model served for many lives. `settings` in the stages' TOML reach it through `load`."""

    name: ClassVar[str]
    """The stage's name in logs, metrics and errors."""

    outputs_per_message_max: ClassVar[int] = 1
    """How many messages `process` sends at most for one that it is given."""

    takes_device_parts: ClassVar[bool] = False
    """Whether parts may arrive in device memory; else they come through host memory."""

    repeatable: ClassVar[bool | None] = None
    """Whether `process` may be given messages of a call that raised again. None: unless the stage
    overrides `on_tick`, which is for what it keeps."""

    batch_max: int = 8
    """How many messages `process` takes at once; the TOML may set it."""

    wait_us_max: int = 0
    """How long the first message of a batch waits for others."""

    def accepts_device_parts(self, settings: Mapping[str, object], device: str) -> bool:
        """Asked once, before `load`, where the stage before is on the same device. A stage that
        must look at the machine to know overrides it and says in its log why not."""
        return self.takes_device_parts

    @abstractmethod
    def load(self, settings: Mapping[str, object], device: str) -> None:
        """Load models and warm up. `device` is "cpu" or "cuda:N".

        OMP_NUM_THREADS in the environment holds the number of threads this stage may use. Raise
        for a setting that is unknown or wrong: the text becomes the start's error.
        """

    @abstractmethod
    def process(self, batch: Sequence[Message], rows: Sequence[LiveRow], out: Outbox) -> None:
        """Handle 1 to `batch_max` messages of many lives; `rows[i]` belongs to `batch[i]`."""

    def on_tick(self, rows: Sequence[LiveRow], now_us: int, out: Outbox) -> None:  # noqa: B027
        """Called at least every 10 ms, where a stage overrides it; sooner when a live was bound,
        unbound or interrupted, and in the motion stage also when a credit grew.

        `rows` are all bound lives; `now_us` is CLOCK_MONOTONIC.
        """

    def forget(self, live_slot: int) -> None:  # noqa: B027
        """The binding of this slot ended or changed: drop what is kept for it."""

    def stats(self) -> Mapping[str, float]:
        """Figures for the worker's metrics."""
        return {}
