"""A ring in shared host memory: two index queues over one arena of slots, as virtio has them.

    generation | acknowledged | published[slots] | returned[slots] | slots x (header, payload)
    supervisor   consumer       producer           consumer          producer

Every word has one writer. A published word is `generation:24 | position:24 | slot:16`, stored after
the slot's header and payload; the consumer believes the word at position p only when it carries its
own generation and p, so words of an earlier lap or of an earlier generation, and slots that were
never finished, look like nothing. The returned queue gives slots back in the same way, in any
order. Positions wrap at 2^24, far above the number of slots.

States of a slot, and who moves it:

    FREE ---- producer: leaves its free list ----> FILLING
    FILLING - producer: stores the word ---------> READY
    READY --- consumer: reads the word ----------> HELD
    HELD ---- consumer: stores the returned word -> FREE (again in the producer's free list)
    any ----- supervisor: generation + 1 --------> FREE, once the consumer stored it as acknowledged

Only the words are state that others see; FILLING and HELD live in their process' own memory, so
they are gone with it, and the reset brings such slots back.

Memory order. Four pairs must not change places, and a `fence()` stands between each; what that is,
and what a load and a store of a word are in Python, is said in `memory`:

    producer  slot's bytes stored     |  published word stored    else a torn message is read
    consumer  published word loaded   |  slot's bytes loaded      else an old lap's bytes are read
    consumer  slot's bytes loaded     |  returned word stored     else they change under the reader
    consumer  last look at old slots  |  acknowledgement stored   else a reset overwrites them

The producer fills a slot only when its word was returned, or its generation acknowledged: the copy
depends on the value that was loaded, and no machine stores before it knows that it must.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gpu_stages.header import HEADER_BYTES, PARTS_MAX, Header, pack_header, unpack_header
from gpu_stages.memory import (
    CACHE_LINE_BYTES,
    PAGE_BYTES,
    SharedMemory,
    create_bell,
    create_memory,
    fence,
    quiet_bell,
    ring_bell,
    round_up,
)
from gpu_stages.ring import RingSpec, Taken
from gpu_stages.stage import DevicePart, NoRoom, Part, PartTooLarge

SLOTS_MAX: Final = 0xFFFF
_MAGIC: Final = 0x3152_4844_4853_4448
_MAGIC_WORD, _SLOTS_WORD, _PAYLOAD_WORD = 0, 1, 2
_GENERATION_WORD, _ACKNOWLEDGED_WORD = 8, 16
_QUEUES_AT: Final = 256
_POSITION_MASK: Final = 0xFF_FFFF
_GENERATION_MASK: Final = 0xFF_FFFF
_NOTHING: Final = memoryview(b"")


@dataclass(frozen=True, slots=True)
class HostRingHandle:
    """The descriptors by which a process attaches to a ring; inherited, or dup'ed, by number."""

    memory_fd: int
    data_fd: int
    space_fd: int

    def fds(self) -> tuple[int, ...]:
        """All of them, for `pass_fds`."""
        return (self.memory_fd, self.data_fd, self.space_fd)

    @classmethod
    def from_json(cls, given: Mapping[str, object]) -> "HostRingHandle":
        """The inverse of `HostRing.as_json`."""
        fds = [given[name] for name in ("memory_fd", "data_fd", "space_fd")]
        memory_fd, data_fd, space_fd = (fd for fd in fds if isinstance(fd, int))
        return cls(memory_fd, data_fd, space_fd)


class _Layout:
    """Where things lie, from the two figures in the ring's own memory."""

    __slots__ = ("arena_at", "payload_bytes", "published_at", "returned_at", "slots", "stride")

    def __init__(self, slots: int, payload_bytes: int) -> None:
        self.slots = slots
        self.payload_bytes = payload_bytes
        queue_bytes = round_up(slots * 8)
        self.published_at = _QUEUES_AT // 8
        self.returned_at = (_QUEUES_AT + queue_bytes) // 8
        self.arena_at = round_up(_QUEUES_AT + 2 * queue_bytes, PAGE_BYTES)
        self.stride = HEADER_BYTES + round_up(payload_bytes)

    def total_bytes(self) -> int:
        return self.arena_at + self.slots * self.stride


class HostRing:
    """The supervisor's side: makes the ring, hands it down, resets it, and lets it go."""

    def __init__(self, name: str, spec: RingSpec) -> None:
        if not 1 <= spec.slots <= SLOTS_MAX or spec.payload_bytes < 1:
            raise ValueError(f"ring {name}: {spec} is not 1..{SLOTS_MAX} slots of 1 byte or more")
        self.name = name
        self.spec = spec
        layout = _Layout(spec.slots, spec.payload_bytes)
        memory_fd = create_memory(f"dhsched-ring-{name}", layout.total_bytes())
        self.handle = HostRingHandle(memory_fd, create_bell(), create_bell())
        self._memory = SharedMemory(memory_fd)
        words = self._memory.words
        words[_SLOTS_WORD] = spec.slots
        words[_PAYLOAD_WORD] = spec.payload_bytes
        words[_GENERATION_WORD] = 1
        words[_MAGIC_WORD] = _MAGIC

    def fds(self) -> tuple[int, ...]:
        """All descriptors, for `pass_fds`."""
        return self.handle.fds()

    def as_json(self) -> dict[str, object]:
        """For the plan that a stage process is given."""
        return {
            "kind": "host",
            "memory_fd": self.handle.memory_fd,
            "data_fd": self.handle.data_fd,
            "space_fd": self.handle.space_fd,
        }

    def reset(self) -> None:
        """Start a new generation: everything in flight is dropped, both sides are woken.

        Only after a dead side was reaped, and after every binding was made void in the live table.
        """
        words = self._memory.words
        generation = (words[_GENERATION_WORD] + 1) & _GENERATION_MASK
        words[_GENERATION_WORD] = generation or 1
        ring_bell(self.handle.data_fd)
        ring_bell(self.handle.space_fd)

    def close(self) -> None:
        """Let go of the memory and the descriptors; attached processes keep theirs."""
        self._memory.close()
        for fd in self.handle.fds():
            os.close(fd)


class _Side:
    """What producer and consumer share: the mapping, the layout, the generation they know."""

    def __init__(self, handle: HostRingHandle) -> None:
        self._memory = SharedMemory(handle.memory_fd)
        self._words = self._memory.words
        self._view = self._memory.view
        if self._words[_MAGIC_WORD] != _MAGIC:
            self._memory.close()
            raise ValueError(f"descriptor {handle.memory_fd} is not a ring")
        self._layout = _Layout(self._words[_SLOTS_WORD], self._words[_PAYLOAD_WORD])
        self._data_fd = handle.data_fd
        self._space_fd = handle.space_fd
        self._generation = 0

    def close(self) -> None:
        """Unmap; the descriptors belong to whoever made or inherited them."""
        self._memory.close()


class HostProducer(_Side):
    """The sending side of a `HostRing`; `ring.RingProducer` is the contract."""

    def __init__(
        self, handle: HostRingHandle, on_free: Callable[[int], None] | None = None
    ) -> None:
        """`on_free(slot)` is told of every slot that comes back, by a release or by a reset."""
        super().__init__(handle)
        self._on_free = on_free
        self._free: list[int] = []
        self._position = 0
        self._returned = 0
        self._usable = False

    def room(self) -> int:
        """How many messages can be published now. Takes note of a reset."""
        if self._words[_GENERATION_WORD] != self._generation:
            self._start_generation()
        if not self._usable:
            if self._words[_ACKNOWLEDGED_WORD] != self._generation:
                return 0
            self._usable = True
        self._collect()
        return len(self._free)

    def publish(self, header: Header, parts: Sequence[Part]) -> int:
        """Copy the parts into a free slot and publish it; returns the slot."""
        hosted = [part if type(part) is bytes else flat(part) for part in parts]
        lengths = tuple(map(len, hosted))
        slot = self._claim(lengths)
        self._announce(slot, header, hosted, lengths)
        return slot

    def _claim(self, lengths: tuple[int, ...]) -> int:
        """A free slot that holds parts of these lengths: now FILLING."""
        size = 0
        for length in lengths:
            size += length + -length % CACHE_LINE_BYTES
        if size > self._layout.payload_bytes or len(lengths) > PARTS_MAX:
            raise PartTooLarge(
                f"{len(lengths)} parts of {size} bytes do not fit a slot of "
                f"{self._layout.payload_bytes} bytes and {PARTS_MAX} parts"
            )
        fresh = self._usable and self._words[_GENERATION_WORD] == self._generation
        if not (fresh and self._free) and not self.room():
            raise NoRoom
        return self._free.pop()  # the last one that came back: the likeliest to be in a cache

    def _announce(
        self,
        slot: int,
        header: Header,
        hosted: Sequence[bytes | memoryview],
        lengths: tuple[int, ...],
    ) -> None:
        """Fill the slot, then store its word: now READY. `lengths` are what the header says.

        What can be made ready before the copy is: a frame pushes everything else out of the caches.
        """
        layout, position = self._layout, self._position
        word = self._generation << 40 | (position & _POSITION_MASK) << 16 | slot
        word_at = layout.published_at + position % layout.slots
        view, at = self._view, layout.arena_at + slot * layout.stride
        try:
            pack_header(view, at, header, lengths)
            at += HEADER_BYTES
            for part in hosted:
                end = at + len(part)
                view[at:end] = part
                at = end + -end % CACHE_LINE_BYTES
        except BaseException:
            self._free.append(slot)
            raise
        fence()
        self._words[word_at] = word
        self._position = position + 1
        os.eventfd_write(self._data_fd, 1)

    def keeps_on_device(self) -> bool:
        """Never: this memory is the host's."""
        return False

    def space_fd(self) -> int:
        """Readable when the consumer has released a slot or the ring was reset."""
        return self._space_fd

    def quiet(self) -> None:
        """Clear the wake-up. Call it before looking with `room`, not after."""
        quiet_bell(self._space_fd)

    def _start_generation(self) -> None:
        self._generation = self._words[_GENERATION_WORD]
        self._usable = False
        self._position = 0
        self._returned = 0
        back = set(range(self._layout.slots)) - set(self._free)
        self._free = list(range(self._layout.slots))
        if self._on_free is not None:
            for slot in back:
                self._on_free(slot)

    def _collect(self) -> None:
        layout = self._layout
        while True:
            word = self._words[layout.returned_at + self._returned % layout.slots]
            expected = self._generation << 24 | (self._returned & _POSITION_MASK)
            if word >> 16 != expected:
                return
            self._returned += 1
            slot = word & SLOTS_MAX
            self._free.append(slot)
            if self._on_free is not None:
                self._on_free(slot)


class HostConsumer(_Side):
    """The receiving side of a `HostRing`; `ring.RingConsumer` is the contract."""

    def __init__(self, handle: HostRingHandle) -> None:
        super().__init__(handle)
        self._position = 0
        self._returned = 0
        self._start_generation()

    def take(self) -> Taken | None:
        """The next published slot, or None when there is none now. Takes note of a reset."""
        if self._words[_GENERATION_WORD] != self._generation:
            self._start_generation()
        layout, position = self._layout, self._position
        word = self._words[layout.published_at + position % layout.slots]
        if word >> 16 != self._generation << 24 | (position & _POSITION_MASK):
            return None
        fence()
        self._position = position + 1
        slot = word & SLOTS_MAX
        at = layout.arena_at + slot * layout.stride
        header = unpack_header(self._view, at)
        parts, on_device = self._parts(header.part_bytes, at + HEADER_BYTES, slot)
        return Taken(header, parts, slot, self._generation, on_device)

    def _parts(
        self, lengths: Sequence[int], at: int, slot: int
    ) -> tuple[tuple[memoryview, ...], tuple[DevicePart | None, ...]]:
        """Views of the parts from offset `at`; a ring with device memory adds what lies there."""
        parts: list[memoryview] = []
        for length in lengths:
            if not length:
                parts.append(_NOTHING)
                continue
            end = at + length
            parts.append(self._view[at:end])
            at = end + -end % CACHE_LINE_BYTES
        return tuple(parts), ()

    def holds(self, taken: Taken) -> bool:
        """Whether the slot is still this side's: False once a reset was taken note of."""
        return taken.generation == self._generation

    def release(self, taken: Taken) -> None:
        """Give the slot back; has no effect when the ring was reset since it was taken."""
        if taken.generation != self._generation:
            return
        position = self._returned & _POSITION_MASK
        fence()
        self._words[self._layout.returned_at + self._returned % self._layout.slots] = (
            self._generation << 40 | position << 16 | taken.slot
        )
        self._returned += 1
        os.eventfd_write(self._space_fd, 1)

    def data_fd(self) -> int:
        """Readable when something was published or the ring was reset."""
        return self._data_fd

    def quiet(self) -> None:
        """Clear the wake-up. Call it before looking with `take`, not after."""
        quiet_bell(self._data_fd)

    def _start_generation(self) -> None:
        self._generation = self._words[_GENERATION_WORD]
        self._position = 0
        self._returned = 0
        fence()
        self._words[_ACKNOWLEDGED_WORD] = self._generation
        ring_bell(self._space_fd)


def flat(part: Part) -> memoryview:
    """The bytes of a part as one flat view, copied first only when they are not contiguous."""
    view = memoryview(part)  # pyright: ignore[reportArgumentType]
    try:
        return view.cast("B")
    except TypeError:  # not contiguous, or empty
        return memoryview(view.tobytes())
