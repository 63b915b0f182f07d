"""Which kind of ring joins two stages, and opening either side of one from its handle.

The modules for device memory are imported where a device is used, so a stage without one starts
sooner.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from gpu_stages.host_ring import HostConsumer, HostProducer, HostRing, HostRingHandle
from gpu_stages.ring import RingConsumer, RingProducer, RingSpec

if TYPE_CHECKING:
    from gpu_stages.cuda_driver import CudaDriver


class UnknownRing(ValueError):
    """The handle is of a kind that this version does not have."""


def make_ring(name: str, spec: RingSpec, from_device: str, to_device: str) -> HostRing:
    """A ring between stages on these devices; the controller's end is on "cpu"."""
    if from_device != to_device or not from_device.startswith("cuda"):
        return HostRing(name, spec)
    from gpu_stages.cuda_ring import CudaRing

    return CudaRing(name, spec)


def open_producer(
    handle: Mapping[str, object],
    on_free: Callable[[int], None] | None = None,
    driver: "CudaDriver | None" = None,
) -> RingProducer:
    """The sending side. `on_free(slot)` is told of every slot that comes back.

    Without a driver there is no device memory to send from, so any ring is a host ring.
    """
    _check(handle)
    if handle["kind"] == "cuda" and driver is not None:
        from gpu_stages.cuda_ring import CudaProducer

        return CudaProducer(handle, driver, on_free)
    return HostProducer(HostRingHandle.from_json(handle), on_free)


def open_consumer(
    handle: Mapping[str, object], driver: "CudaDriver | None" = None, why_not: str = ""
) -> RingConsumer:
    """The receiving side; `why_not` says why there is no driver."""
    _check(handle)
    if handle["kind"] == "cuda":
        from gpu_stages.cuda_ring import CudaConsumer

        return CudaConsumer(handle, driver, why_not)
    return HostConsumer(HostRingHandle.from_json(handle))


def _check(handle: Mapping[str, object]) -> None:
    if handle.get("kind") not in ("host", "cuda"):
        raise UnknownRing(f"{handle.get('kind')!r}")
