"""The real driver with what tests and measurements need besides: content in, content out, figures.

Chosen by `DHSCHED_TEST_CUDA=cuda:0`, which `make bench-gpu` sets where a GPU is.
"""

import ctypes
import os
from pathlib import Path
from typing import Any, Final

from gpu_stages.cuda_driver import CudaError, LibCuda, NoCuda
from tests.support.fake_cuda import FakeArray

ENV: Final = "DHSCHED_TEST_CUDA"
_SCRATCH_BYTES: Final = 1 << 16


def device_asked() -> str:
    """The device to test on; empty when none was named."""
    return os.environ.get(ENV, "")


class RealCuda(LibCuda):
    """One device as one process sees it."""

    def __init__(self, device: str, library: Any = None) -> None:
        super().__init__(int(device.partition(":")[2] or 0), library)
        self._lib.cuMemcpyHtoD_v2.argtypes = (ctypes.c_uint64, ctypes.c_void_p, ctypes.c_size_t)
        self._lib.cuMemHostRegister_v2.argtypes = (
            ctypes.c_void_p,
            ctypes.c_size_t,
            ctypes.c_uint,
        )
        self._scratch = 0

    def write(self, target: int, data: memoryview) -> None:
        """Host to device; complete when it returns. The view must be writable (ctypes)."""
        buffer = (ctypes.c_ubyte * len(data)).from_buffer(data)
        self._call("cuMemcpyHtoD_v2", target, ctypes.addressof(buffer), len(data))

    def pin(self, view: memoryview) -> bool:
        """Make host memory reachable for the device's own copies; False where it is refused."""
        buffer = (ctypes.c_ubyte * len(view)).from_buffer(view)
        try:
            self._call("cuMemHostRegister_v2", ctypes.addressof(buffer), len(view), 0)
        except CudaError:
            return False
        return True

    def array(self, data: bytes) -> FakeArray:
        """An array on the device with this content."""
        address = self.allocate(max(1, len(data)))
        if data:
            self.write(address, memoryview(bytearray(data)))
        return FakeArray(address, (len(data),))

    def scratch(self, data: bytes) -> FakeArray:
        """The same in memory that the next call uses again."""
        if not self._scratch:
            self._scratch = self.allocate(_SCRATCH_BYTES)
        if data:
            self.write(self._scratch, memoryview(bytearray(data)))
        return FakeArray(self._scratch, (len(data),))

    def read(self, address: int, size: int) -> bytes:
        """What lies at an address of this process."""
        into = bytearray(size)
        if size:
            self.copy_to_host(memoryview(into), address)
        return bytes(into)

    def described(self) -> dict[str, object]:
        """Name, memory and driver, for the results."""
        name = ctypes.create_string_buffer(96)
        self._lib.cuDeviceGetName(name, 96, self._device)
        version = ctypes.c_int()
        self._lib.cuDriverGetVersion(ctypes.byref(version))
        return {
            "name": name.value.decode(errors="replace"),
            "cuda": f"{version.value // 1000}.{version.value % 1000 // 10}",
            "driver": kernel_driver(),
        }


def kernel_driver(file: Path = Path("/proc/driver/nvidia/version")) -> str:
    """The version of NVIDIA's kernel module; empty where it does not say."""
    try:
        words = file.read_text().split()
    except OSError:
        return ""
    return next((word for word in words if word[0].isdigit() and word.count(".") >= 1), "")


def find_device(device: str = "cuda:0") -> tuple[RealCuda | None, str]:
    """The driver of a device, or None and why there is none."""
    try:
        return RealCuda(device), ""
    except NoCuda as error:
        return None, str(error)
