"""The ring between two stage processes: the contract that every kind of ring keeps.

A ring joins exactly one producer and one consumer, in two processes. Its slots are of one size.

    FREE --claim--> FILLING --publish--> READY --take--> HELD --release--> FREE
      ^               |                    |              |
      +---------------+---- reset: a new ring generation -+

- `publish` is the only step that another process can see a message by; a slot whose producer died
  while FILLING is never read.
- Slots are taken in the order of publication and may be released in any order.
- Nothing is dropped by a ring: a producer without room is told so and waits on `space_fd`.
- Reset belongs to the supervisor alone, and comes after the dead process was reaped. It starts a
  new *ring generation*: every slot in flight is dropped, and what either side still does under the
  old generation has no effect. The producer has no room until the consumer has taken note of the
  new generation, so no slot is overwritten while somebody may still read it.
- Both file descriptors are wake-ups only: readable means "look again", never "there is one".
- A process may attach to its side again after its predecessor on that side has died and the ring
  was reset.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from gpu_stages.header import Header
from gpu_stages.stage import DevicePart, Part
from schemas.quick_init import quick_init


@dataclass(frozen=True, slots=True)
class RingSpec:
    """A ring's size: `slots` slots of `payload_bytes` behind each header."""

    slots: int
    payload_bytes: int


@quick_init
@dataclass(frozen=True, slots=True)
class Taken:
    """A slot in the consumer's hand. Its four `parts` are valid until it is released, or until a
    reset was taken note of: then `RingConsumer.holds` is False and they must not be read. A part
    that lies in device memory is in `on_device` instead, which is empty when there is none."""

    header: Header
    parts: tuple[memoryview, ...]
    slot: int
    generation: int
    on_device: tuple[DevicePart | None, ...] = ()


class RingProducer(Protocol):
    """The sending side. One process, one thread."""

    def room(self) -> int:
        """How many messages can be published now. Takes note of a reset."""
        ...

    def publish(self, header: Header, parts: Sequence[Part]) -> int:
        """Copy the parts into a free slot and publish it; returns the slot.

        Raises `NoRoom`, or `PartTooLarge` when the parts do not fit; then nothing was published.
        """
        ...

    def keeps_on_device(self) -> bool:
        """Whether a part in device memory would stay there if it were published now."""
        ...

    def space_fd(self) -> int:
        """Readable when the consumer has released a slot or the ring was reset."""
        ...

    def quiet(self) -> None:
        """Clear the wake-up. Call it before looking with `room`, not after."""
        ...

    def close(self) -> None:
        """Let go of this side's mapping; the descriptors belong to who made or inherited them."""
        ...


class RingConsumer(Protocol):
    """The receiving side. One process, one thread."""

    def take(self) -> Taken | None:
        """The next published slot, or None when there is none now. Takes note of a reset."""
        ...

    def holds(self, taken: Taken) -> bool:
        """Whether the slot is still this side's: False once a reset was taken note of."""
        ...

    def release(self, taken: Taken) -> None:
        """Give the slot back; has no effect when the ring was reset since it was taken."""
        ...

    def data_fd(self) -> int:
        """Readable when something was published or the ring was reset; `quiet` clears it."""
        ...

    def quiet(self) -> None:
        """Clear the wake-up, then look once more with `take` before waiting. Where that look is
        the second, the first one's message has not waited for this call."""
        ...

    def close(self) -> None:
        """Let go of this side's mapping; the descriptors belong to who made or inherited them."""
        ...
