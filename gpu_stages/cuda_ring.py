"""A ring whose large parts stay in device memory, behind the contract of `ring`.

It is a `HostRing` with one page more, by which producer and consumer agree on an arena of device
memory. Headers, small parts and the whole protocol of slots and generations stay in host memory;
only parts that are on the device when they are sent (anything with `__cuda_array_interface__`, as
a torch tensor has) go into the arena, at the same slot.

    page:  export id (producer) | imported, refused, closed id (consumer)
           device UUID, memory handle, offset (producer)  | why it was refused (consumer)

    producer                              consumer
    allocates the arena once,
    writes UUID and handle, then id ----> UUID is its own device's? opens the handle once,
                                          writes imported id, or refused id and why
    imported id is its own: device parts
    go into the arena; else through host

- Order: the producer copies into the slot, waits for the event after the copy, and only then
  publishes; so a published slot is complete on the device and no process waits on another one's
  stream. (An inter-process event would let the consumer's stream wait instead of the producer. It
  needs a shared /dev/shm and leaves a dead producer's half copy to be sorted out by the consumer.)
- The consumer waits for everything that it put on the device before it gives a slot back.
- Export ids grow and are odd; an even one says that the last arena was withdrawn.
- The arena is freed only when the consumer has said that it will not open it (refused), or will not
  touch it again (closed): having seen no import proves nothing, as one may be under way. Without
  its word, as when it was killed, the memory goes with the producer's process.
- A new generation makes no new arena: it lives as long as its producer's process. A consumer that
  takes note of a reset looks for a new export before it acknowledges, so the producer never writes
  into an arena that nobody can read.
- Without a device, on another device, or when opening fails (containers apart, MIG), device parts
  are copied into host memory and arrive as ordinary parts; the reason is logged once.
"""

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

from gpu_stages.cuda_driver import (
    MEMORY_HANDLE_BYTES,
    UUID_BYTES,
    CudaDriver,
    CudaError,
)
from gpu_stages.header import Header
from gpu_stages.host_ring import HostConsumer, HostProducer, HostRing, HostRingHandle, flat
from gpu_stages.memory import SharedMemory, create_memory, fence, round_up
from gpu_stages.ring import RingSpec, Taken
from gpu_stages.stage import DevicePart, Part, PartTooLarge

DEVICE_PART: Final = 1 << 31
"""Set in a part's length: the part lies in the arena."""

DEVICE_ALIGN_BYTES: Final = 512
ARENA_BYTES_MIN: Final = 2 << 20
_EXPORT_WORD, _IMPORTED_WORD, _REFUSED_WORD, _OFFSET_WORD, _CLOSED_WORD = 0, 8, 16, 24, 28
_UUID_AT, _HANDLE_AT, _REASON_AT, _REASON_BYTES = 256, 320, 512, 200

log = logging.getLogger(__name__)


class CudaRing(HostRing):
    """The supervisor's side; it needs no device and opens none."""

    def __init__(self, name: str, spec: RingSpec) -> None:
        super().__init__(name, spec)
        self.page_fd = create_memory(f"dhsched-arena-{name}", 4096)

    def fds(self) -> tuple[int, ...]:
        """All descriptors, for `pass_fds`."""
        return (*super().fds(), self.page_fd)

    def as_json(self) -> dict[str, object]:
        """For the plan that a stage process is given."""
        return {**super().as_json(), "kind": "cuda", "page_fd": self.page_fd}

    def close(self) -> None:
        """Let go of the memory and the descriptors; attached processes keep theirs."""
        super().close()
        os.close(self.page_fd)


def open_page(handle: Mapping[str, object]) -> SharedMemory:
    """Map the page of a ring handle."""
    page_fd = handle["page_fd"]
    if not isinstance(page_fd, int):
        raise ValueError(f"{page_fd!r} is no descriptor")
    return SharedMemory(page_fd)


def device_extent(part: object) -> tuple[int, int]:
    """Address and size in bytes of a contiguous array on the device.

    Raises `ValueError` for strides that are not contiguous, as the ring copies bytes in one go.
    """
    interface = cast(Any, part).__cuda_array_interface__
    item_bytes = int(str(interface["typestr"])[2:])
    size = item_bytes
    strides: list[int] = []
    for length in reversed(interface["shape"]):
        strides.insert(0, size)
        size *= length
    given = interface.get("strides")
    if given is not None and size and list(given) != strides:
        raise ValueError(f"a part on the device has strides {given}; it must be contiguous")
    return int(interface["data"][0]), size


def is_on_device(part: object) -> bool:
    """Whether this is an array in device memory."""
    return hasattr(part, "__cuda_array_interface__")


class CudaProducer(HostProducer):
    """The sending side."""

    def __init__(
        self,
        handle: Mapping[str, object],
        driver: CudaDriver,
        on_free: Callable[[int], None] | None = None,
    ) -> None:
        super().__init__(HostRingHandle.from_json(handle), on_free)
        self._driver = driver
        self._page = open_page(handle)
        self._stride = round_up(self._layout.payload_bytes, DEVICE_ALIGN_BYTES)
        self._arena = 0
        self._export = 0
        self._told = ""

    def publish(self, header: Header, parts: Sequence[Part]) -> int:
        """See `RingProducer`. Parts on the device stay there when the consumer can reach them."""
        if not any(map(is_on_device, parts)):
            return super().publish(header, parts)
        if not self.keeps_on_device():
            return super().publish(header, [self._on_host(part) for part in parts])
        extents = [device_extent(part) if is_on_device(part) else None for part in parts]
        sizes = [extent[1] for extent in extents if extent]
        total = sum(round_up(size, DEVICE_ALIGN_BYTES) for size in sizes)
        if total > self._stride:
            raise PartTooLarge(f"{total} bytes on the device; a slot holds {self._stride}")
        hosted = [
            b"" if extent else flat(part) for extent, part in zip(extents, parts, strict=True)
        ]
        slot = self._claim(tuple(map(len, hosted)))
        try:
            self._copy(slot, extents)
        except BaseException:
            self._free.append(slot)
            raise
        lengths = [
            extent[1] | DEVICE_PART if extent else len(part)
            for extent, part in zip(extents, hosted, strict=True)
        ]
        self._announce(slot, header, hosted, tuple(lengths))
        return slot

    def _copy(self, slot: int, extents: Sequence[tuple[int, int] | None]) -> None:
        at = self._arena + slot * self._stride
        for extent in extents:
            if extent is not None:
                self._driver.copy(at, *extent)
                at += round_up(extent[1], DEVICE_ALIGN_BYTES)
        self._driver.complete()

    def keeps_on_device(self) -> bool:
        """See `RingProducer`: exports on the first need; then whether the consumer has imported
        it. A refusal is logged with the consumer's reason."""
        words = self._page.words
        if not self._export:
            self._make_arena()
        if not self._arena:
            return False
        if words[_REFUSED_WORD] == self._export:
            reason = bytes(self._page.view[_REASON_AT : _REASON_AT + _REASON_BYTES])
            self._tell(reason.rstrip(b"\0").decode(errors="replace"))
        return words[_IMPORTED_WORD] == self._export

    def _make_arena(self) -> None:
        page = self._page
        self._export = (page.words[_EXPORT_WORD] // 2 + 1) * 2 + 1
        size = max(ARENA_BYTES_MIN, self._layout.slots * self._stride)
        try:
            arena = self._driver.allocate(size)
            handle, offset = self._driver.export(arena)
            uuid = self._driver.uuid()
        except CudaError as error:
            self._tell(str(error))
            return
        self._arena = arena
        page.view[_UUID_AT : _UUID_AT + UUID_BYTES] = uuid
        page.view[_HANDLE_AT : _HANDLE_AT + MEMORY_HANDLE_BYTES] = handle
        page.words[_OFFSET_WORD] = offset
        fence()
        page.words[_EXPORT_WORD] = self._export
        os.eventfd_write(self._data_fd, 1)  # the consumer looks at the page when it looks for data

    def _on_host(self, part: Part) -> Part:
        if not is_on_device(part):
            return part
        address, size = device_extent(part)
        copied = bytearray(size)
        if size:
            self._driver.complete()
            self._driver.copy_to_host(memoryview(copied), address)
        return copied

    def _tell(self, reason: str) -> None:
        if reason != self._told:
            self._told = reason
            log.warning("frames go through host memory: %s", reason)

    def close(self) -> None:
        """Withdraw the export, and free the arena if the consumer has given its word."""
        if self._arena:
            words = self._page.words
            words[_EXPORT_WORD] = self._export + 1
            fence()
            if self._export in (words[_REFUSED_WORD], words[_CLOSED_WORD]):
                self._driver.free(self._arena)
        self._arena = 0
        self._page.close()
        super().close()


class CudaConsumer(HostConsumer):
    """The receiving side. Without a driver it refuses every arena, and says why."""

    def __init__(
        self, handle: Mapping[str, object], driver: CudaDriver | None, why_not: str = ""
    ) -> None:
        """`driver` None and `why_not`: this stage takes no device parts, or has no device."""
        self._driver = driver
        self._why_not = why_not
        self._page = open_page(handle)
        self._seen = 0
        self._base = 0
        self._arena = 0
        super().__init__(HostRingHandle.from_json(handle))
        self._stride = round_up(self._layout.payload_bytes, DEVICE_ALIGN_BYTES)

    def take(self) -> Taken | None:
        """See `RingConsumer`."""
        if self._page.words[_EXPORT_WORD] != self._seen:
            self._look_at_export()
        return super().take()

    def release(self, taken: Taken) -> None:
        """See `RingConsumer`; waits for the device, which may still read the slot."""
        if self._driver is not None and any(taken.on_device):
            self._driver.synchronize()
        super().release(taken)

    def _start_generation(self) -> None:
        self._look_at_export()
        super()._start_generation()

    def _look_at_export(self) -> None:
        """Import what the producer offers now, or say why not; before the next acknowledgement."""
        words = self._page.words
        export = words[_EXPORT_WORD]
        if export == self._seen and words[_IMPORTED_WORD] == export:
            return
        self._seen = export
        words[_CLOSED_WORD] = 0  # what an earlier consumer said does not hold for this one
        fence()
        self._close_arena()
        reason = self._open_arena() if export & 1 else ""
        if reason:
            log.warning("frames come through host memory: %s", reason)
            encoded = reason.encode()[:_REASON_BYTES].ljust(_REASON_BYTES, b"\0")
            self._page.view[_REASON_AT : _REASON_AT + _REASON_BYTES] = encoded
        fence()
        words[_REFUSED_WORD] = export if reason and export & 1 else 0
        words[_IMPORTED_WORD] = export if self._base else 0

    def _open_arena(self) -> str:
        """Empty when it is open, else why not."""
        if self._driver is None:
            return self._why_not or "the next stage takes no parts on the device"
        page = self._page
        if bytes(page.view[_UUID_AT : _UUID_AT + UUID_BYTES]) != self._driver.uuid():
            return "the next stage is on another device"
        handle = bytes(page.view[_HANDLE_AT : _HANDLE_AT + MEMORY_HANDLE_BYTES])
        try:
            self._base = self._driver.open_handle(handle)
        except CudaError as error:
            return str(error)
        self._arena = self._base + page.words[_OFFSET_WORD]
        return ""

    def _close_arena(self) -> None:
        if self._base and self._driver is not None:
            try:
                self._driver.close_handle(self._base)
            except CudaError as error:  # its process is gone, and the memory with it
                log.info("closing the arena of an earlier producer: %s", error)
        self._base = self._arena = 0

    def _parts(
        self, lengths: Sequence[int], at: int, slot: int
    ) -> tuple[tuple[memoryview, ...], tuple[DevicePart | None, ...]]:
        hosted = [0 if length & DEVICE_PART else length for length in lengths]
        views, _ = super()._parts(hosted, at, slot)
        address = self._arena + slot * self._stride
        on_device: list[DevicePart | None] = []
        for length in lengths:
            if not length & DEVICE_PART:
                on_device.append(None)
                continue
            size = length & ~DEVICE_PART
            on_device.append(DevicePart(address, size))
            address += round_up(size, DEVICE_ALIGN_BYTES)
        return views, tuple(on_device) if any(on_device) else ()

    def close(self) -> None:
        """Give up the arena before its producer frees it, and say so."""
        self._close_arena()
        self._page.words[_IMPORTED_WORD] = 0
        fence()
        self._page.words[_CLOSED_WORD] = self._seen
        self._page.close()
        super().close()
