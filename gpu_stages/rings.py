"""Opening either side of a ring from the handle that its maker handed down."""

from collections.abc import Callable, Mapping

from gpu_stages.host_ring import HostConsumer, HostProducer, HostRingHandle
from gpu_stages.ring import RingConsumer, RingProducer


class UnknownRing(ValueError):
    """The handle is of a kind that this version does not have."""


def open_producer(
    handle: Mapping[str, object], on_free: Callable[[int], None] | None = None
) -> RingProducer:
    """The sending side. `on_free(slot)` is told of every slot that comes back."""
    if handle.get("kind") == "host":
        return HostProducer(HostRingHandle.from_json(handle), on_free)
    raise UnknownRing(f"{handle.get('kind')!r}")


def open_consumer(handle: Mapping[str, object]) -> RingConsumer:
    """The receiving side."""
    if handle.get("kind") == "host":
        return HostConsumer(HostRingHandle.from_json(handle))
    raise UnknownRing(f"{handle.get('kind')!r}")
