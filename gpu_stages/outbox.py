"""Where a stage's results go: the ring downstream, or past it to the controller."""

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias, cast

from gpu_stages.control import SegmentNotMade
from gpu_stages.header import Header, MessageKind
from gpu_stages.ring import RingProducer
from gpu_stages.stage import Part

_REASON_CHARS_MAX: Final = 500

Identity: TypeAlias = tuple[int, int, int, int, int]
"""What a message and its answer have in common, whatever their kinds are."""


def identity(header: Header) -> Identity:
    """Live, binding, frame, segment and sample: stages hand these on as they are."""
    return (
        header.live_slot,
        header.binding,
        header.frame_index,
        header.segment_id,
        header.sample_start,
    )


class RingOutbox:
    """The `Outbox` that a stage sends through. It remembers what it sent since `start_batch`."""

    def __init__(self, producer: RingProducer, report: Callable[[SegmentNotMade], None]) -> None:
        self._producer = producer
        self._report = report
        self._answered: set[Identity] = set()
        self.sent = 0

    def start_batch(self) -> None:
        """Forget what was sent before."""
        self._answered.clear()

    def answered(self, header: Header) -> bool:
        """Whether something of this message was sent since `start_batch`."""
        return identity(header) in self._answered

    def room(self) -> int:
        """How many messages can be sent now."""
        return self._producer.room()

    def keeps_on_device(self) -> bool:
        """Whether a part in device memory would stay there now."""
        return self._producer.keeps_on_device()

    def send(self, header: Header, parts: Sequence[Part]) -> None:
        """Publish to the ring, or tell the controller of a segment that failed."""
        if header.kind is MessageKind.SEGMENT_FAILED:
            reason = bytes(cast(Any, parts[0])).decode(errors="replace") if parts else ""
            self._report(not_made(header, reason))
            return
        self._producer.publish(header, parts)
        self._answered.add(identity(header))
        self.sent += 1


def not_made(header: Header, reason: str) -> SegmentNotMade:
    """The control message for a segment that failed, its reason bounded."""
    return SegmentNotMade(
        header.live_slot, header.binding, header.segment_id, reason[:_REASON_CHARS_MAX]
    )
