"""A stand-in for CUDA's driver: device memory is a mapped file, a handle is the file's name.

It keeps what the real one is strict about: memory of a process that has ended cannot be opened, an
exported address lies somewhere inside what its handle opens, and freeing under an importer is an
error. `fail` names calls that shall fail.
"""

import mmap
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu_stages.cuda_driver import MEMORY_HANDLE_BYTES, CudaError

OFFSET = 4096
BASE_STEP = 1 << 40


@dataclass(frozen=True, slots=True)
class FakeArray:
    """What a torch tensor on the device looks like to others."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None = None
    typestr: str = "|u1"

    @property
    def __cuda_array_interface__(self) -> Mapping[str, Any]:
        return {
            "version": 2,
            "shape": self.shape,
            "typestr": self.typestr,
            "data": (self.address, False),
            "strides": self.strides,
        }


class FakeCuda:
    """One device as one process sees it."""

    def __init__(self, directory: Path, uuid: bytes = b"stand-in device.") -> None:
        self.ordinal = 0
        self.fail: set[str] = set()
        self.calls: list[str] = []
        self._directory = directory
        self._uuid = uuid
        self._maps: dict[int, mmap.mmap] = {}
        self._names: dict[int, str] = {}
        self._next = 1
        self._scratch = 0

    def _enter(self, call: str) -> None:
        self.calls.append(call)
        if call in self.fail:
            raise CudaError(f"{call} failed: error 999 (stand-in)")

    def _map(self, name: str) -> int:
        with open(self._directory / name, "r+b") as file:
            mapped = mmap.mmap(file.fileno(), 0)
        base = self._next * BASE_STEP
        self._next += 1
        self._maps[base], self._names[base] = mapped, name
        return base

    def _at(self, address: int, size: int) -> tuple[mmap.mmap, int]:
        base = address // BASE_STEP * BASE_STEP
        mapped = self._maps.get(base)
        if mapped is None or address - base + size > len(mapped):
            raise CudaError(f"error 700 (illegal address {address:#x})")
        return mapped, address - base

    def uuid(self) -> bytes:
        self._enter("uuid")
        return self._uuid

    def allocate(self, size_bytes: int) -> int:
        self._enter("allocate")
        name = f"{os.getpid()}-{self._next}"
        (self._directory / name).write_bytes(b"")
        os.truncate(self._directory / name, size_bytes + OFFSET)
        return self._map(name) + OFFSET

    def free(self, address: int) -> None:
        self._enter("free")
        base = address // BASE_STEP * BASE_STEP
        name = self._names.pop(base)
        self._maps.pop(base).close()
        if list(self._directory.glob(f"{name}.opened-*")):
            raise CudaError("freed under an importer")
        (self._directory / name).unlink()

    def export(self, address: int) -> tuple[bytes, int]:
        self._enter("export")
        name = self._names[address // BASE_STEP * BASE_STEP]
        return name.encode().ljust(MEMORY_HANDLE_BYTES, b"\0"), address % BASE_STEP

    def open_handle(self, handle: bytes) -> int:
        self._enter("open_handle")
        name = handle.rstrip(b"\0").decode()
        pid = name.split("-")[0]
        if not name or not Path(f"/proc/{pid}").exists() or not (self._directory / name).exists():
            raise CudaError("open_handle failed: error 201 (the exporter is gone)")
        (self._directory / f"{name}.opened-{os.getpid()}").touch()
        return self._map(name)

    def close_handle(self, address: int) -> None:
        self._enter("close_handle")
        name = self._names.pop(address)
        self._maps.pop(address).close()
        (self._directory / f"{name}.opened-{os.getpid()}").unlink()

    def copy(self, target: int, source: int, size_bytes: int) -> None:
        self._enter("copy")
        to, to_at = self._at(target, size_bytes)
        of, of_at = self._at(source, size_bytes)
        to[to_at : to_at + size_bytes] = of[of_at : of_at + size_bytes]

    def copy_to_host(self, target: memoryview, source: int) -> None:
        self._enter("copy_to_host")
        of, at = self._at(source, len(target))
        target[:] = of[at : at + len(target)]

    def complete(self) -> None:
        self._enter("complete")

    def synchronize(self) -> None:
        self._enter("synchronize")

    # -- for tests -------------------------------------------------------------------------------

    def array(self, data: bytes) -> FakeArray:
        """An array on the device with this content."""
        address = self.allocate(max(1, len(data)))
        mapped, at = self._at(address, len(data))
        mapped[at : at + len(data)] = data
        return FakeArray(address, (len(data),))

    def scratch(self, data: bytes) -> FakeArray:
        """The same in memory that the next call uses again."""
        if not self._scratch:
            self._scratch = self.allocate(1 << 16)
        mapped, at = self._at(self._scratch, len(data))
        mapped[at : at + len(data)] = data
        return FakeArray(self._scratch, (len(data),))

    def read(self, address: int, size: int) -> bytes:
        """What lies at an address of this process."""
        mapped, at = self._at(address, size)
        return mapped[at : at + size]

    def open_count(self) -> int:
        """How many allocations this process has mapped."""
        return len(self._maps)
