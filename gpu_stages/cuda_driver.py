"""The few calls of CUDA's driver that a ring in device memory needs, through ctypes on libcuda.

The driver library comes with every NVIDIA driver, whatever torch was built for, and its primary
context is the one that torch uses in the same process. Functions and constants are those of
NVIDIA's "CUDA Driver API" reference manual. Memory comes from plain cuMemAlloc: handles of the
legacy IPC do not go with cudaMallocAsync, expandable segments or MIG.
"""

import ctypes
from typing import Any, Final, Protocol

UUID_BYTES: Final = 16
MEMORY_HANDLE_BYTES: Final = 64
_IPC_EVENT_SUPPORTED: Final = 125
_LAZY_PEER_ACCESS: Final = 1
_EVENT_BLOCKING_SYNC, _EVENT_DISABLE_TIMING = 1, 2
_DEFAULT_STREAM: Final = None


class CudaError(RuntimeError):
    """A driver call failed; the message names the call and the driver's error."""


class NoCuda(Exception):
    """There is no usable device here; the message says why. Host memory serves instead."""


class CudaDriver(Protocol):
    """What `cuda_ring` needs of a device. Addresses are plain numbers."""

    ordinal: int

    def uuid(self) -> bytes:
        """16 bytes that name the physical device in every process."""
        ...

    def allocate(self, size_bytes: int) -> int:
        """Plain device memory that can be exported."""
        ...

    def free(self, address: int) -> None:
        """Only after every importer has closed it."""
        ...

    def export(self, address: int) -> tuple[bytes, int]:
        """A 64-byte handle for other processes, and the address's offset in what it opens."""
        ...

    def open_handle(self, handle: bytes) -> int:
        """The address of another process' allocation in this one."""
        ...

    def close_handle(self, address: int) -> None:
        """Give up an opened allocation."""
        ...

    def copy(self, target: int, source: int, size_bytes: int) -> None:
        """Device to device, in order on the default stream."""
        ...

    def copy_to_host(self, target: memoryview, source: int) -> None:
        """Device to host, as many bytes as the view has; complete when it returns."""
        ...

    def complete(self) -> None:
        """Wait, without spinning, until what was put on the default stream so far is done."""
        ...

    def synchronize(self) -> None:
        """Wait until everything that this process put on the device is done."""
        ...


class _Uuid(ctypes.Structure):
    _fields_ = (("bytes", ctypes.c_ubyte * UUID_BYTES),)


class _MemoryHandle(ctypes.Structure):
    _fields_ = (("reserved", ctypes.c_ubyte * MEMORY_HANDLE_BYTES),)


_DevicePointer = ctypes.c_uint64
_SIGNATURES: Final[dict[str, tuple[Any, ...]]] = {
    "cuInit": (ctypes.c_uint,),
    "cuDeviceGet": (ctypes.POINTER(ctypes.c_int), ctypes.c_int),
    "cuDeviceGetAttribute": (ctypes.POINTER(ctypes.c_int), ctypes.c_int, ctypes.c_int),
    "cuDeviceGetUuid_v2": (ctypes.POINTER(_Uuid), ctypes.c_int),
    "cuDevicePrimaryCtxRetain": (ctypes.POINTER(ctypes.c_void_p), ctypes.c_int),
    "cuCtxSetCurrent": (ctypes.c_void_p,),
    "cuCtxSynchronize": (),
    "cuMemAlloc_v2": (ctypes.POINTER(_DevicePointer), ctypes.c_size_t),
    "cuMemFree_v2": (_DevicePointer,),
    "cuMemGetAddressRange_v2": (
        ctypes.POINTER(_DevicePointer),
        ctypes.POINTER(ctypes.c_size_t),
        _DevicePointer,
    ),
    "cuIpcGetMemHandle": (ctypes.POINTER(_MemoryHandle), _DevicePointer),
    "cuIpcOpenMemHandle_v2": (ctypes.POINTER(_DevicePointer), _MemoryHandle, ctypes.c_uint),
    "cuIpcCloseMemHandle": (_DevicePointer,),
    "cuMemcpyDtoDAsync_v2": (_DevicePointer, _DevicePointer, ctypes.c_size_t, ctypes.c_void_p),
    "cuMemcpyDtoH_v2": (ctypes.c_void_p, _DevicePointer, ctypes.c_size_t),
    "cuEventCreate": (ctypes.POINTER(ctypes.c_void_p), ctypes.c_uint),
    "cuEventRecord": (ctypes.c_void_p, ctypes.c_void_p),
    "cuEventSynchronize": (ctypes.c_void_p,),
}


class LibCuda:
    """The real driver, one device, in the calling thread's current context."""

    def __init__(self, ordinal: int, library: Any = None) -> None:
        """`ordinal` counts visible devices, as torch's "cuda:N" does. Raises `NoCuda`."""
        self.ordinal = ordinal
        try:
            self._lib = library if library is not None else ctypes.CDLL("libcuda.so.1")
            for name, arguments in _SIGNATURES.items():
                function = getattr(self._lib, name)
                function.argtypes = arguments
                function.restype = ctypes.c_int
        except (OSError, AttributeError) as error:
            raise NoCuda(f"no usable CUDA driver: {error}") from error
        try:
            self._open(ordinal)
        except CudaError as error:
            raise NoCuda(str(error)) from error

    def _open(self, ordinal: int) -> None:
        self._call("cuInit", 0)
        device = ctypes.c_int()
        self._call("cuDeviceGet", ctypes.byref(device), ordinal)
        self._device = device.value
        supported = ctypes.c_int()
        self._call(
            "cuDeviceGetAttribute", ctypes.byref(supported), _IPC_EVENT_SUPPORTED, self._device
        )
        if not supported.value:
            raise CudaError(f"device {ordinal} has no memory that other processes can open")
        context = ctypes.c_void_p()
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self._device)
        self._call("cuCtxSetCurrent", context)
        self._event = ctypes.c_void_p()
        flags = _EVENT_BLOCKING_SYNC | _EVENT_DISABLE_TIMING
        self._call("cuEventCreate", ctypes.byref(self._event), flags)

    def _call(self, name: str, *arguments: Any) -> None:
        status = int(getattr(self._lib, name)(*arguments))
        if status:
            raise CudaError(f"{name} failed: {self._describe(status)}")

    def _describe(self, status: int) -> str:
        text = ctypes.c_char_p()
        try:
            self._lib.cuGetErrorString(status, ctypes.byref(text))
        except AttributeError:
            return f"error {status}"
        return f"error {status} ({(text.value or b'unknown').decode()})"

    def uuid(self) -> bytes:
        """See `CudaDriver`."""
        uuid = _Uuid()
        self._call("cuDeviceGetUuid_v2", ctypes.byref(uuid), self._device)
        return bytes(uuid.bytes)

    def allocate(self, size_bytes: int) -> int:
        """See `CudaDriver`."""
        address = _DevicePointer()
        self._call("cuMemAlloc_v2", ctypes.byref(address), size_bytes)
        return address.value

    def free(self, address: int) -> None:
        """See `CudaDriver`."""
        self._call("cuMemFree_v2", address)

    def export(self, address: int) -> tuple[bytes, int]:
        """See `CudaDriver`. The handle opens the whole allocation that the address lies in."""
        base, size = _DevicePointer(), ctypes.c_size_t()
        self._call("cuMemGetAddressRange_v2", ctypes.byref(base), ctypes.byref(size), address)
        handle = _MemoryHandle()
        self._call("cuIpcGetMemHandle", ctypes.byref(handle), address)
        return bytes(handle.reserved), address - base.value

    def open_handle(self, handle: bytes) -> int:
        """See `CudaDriver`."""
        given = _MemoryHandle.from_buffer_copy(handle)
        address = _DevicePointer()
        self._call("cuIpcOpenMemHandle_v2", ctypes.byref(address), given, _LAZY_PEER_ACCESS)
        return address.value

    def close_handle(self, address: int) -> None:
        """See `CudaDriver`."""
        self._call("cuIpcCloseMemHandle", address)

    def copy(self, target: int, source: int, size_bytes: int) -> None:
        """See `CudaDriver`."""
        self._call("cuMemcpyDtoDAsync_v2", target, source, size_bytes, _DEFAULT_STREAM)

    def copy_to_host(self, target: memoryview, source: int) -> None:
        """See `CudaDriver`."""
        buffer = (ctypes.c_ubyte * len(target)).from_buffer(target)
        self._call("cuMemcpyDtoH_v2", ctypes.addressof(buffer), source, len(target))

    def complete(self) -> None:
        """See `CudaDriver`."""
        self._call("cuEventRecord", self._event, _DEFAULT_STREAM)
        self._call("cuEventSynchronize", self._event)

    def synchronize(self) -> None:
        """See `CudaDriver`."""
        self._call("cuCtxSynchronize")


def open_driver(device: str) -> CudaDriver:
    """The driver of a device named as torch does ("cuda", "cuda:1"). Raises `NoCuda`."""
    kind, _, number = device.partition(":")
    if kind != "cuda" or not (number == "" or number.isdigit()):
        raise NoCuda(f"{device!r} is no CUDA device")
    return LibCuda(int(number or 0))
