"""What to try again of a batch that raised, so that nobody fails for another one's message.

    a batch of many lives raised    -> each life of it alone
    one life alone raised           -> its messages fail, and nobody else's
    it ran out of memory            -> halves, down to one message, which then fails
    the stage may not be asked again (`Stage.repeatable`) -> the whole batch fails

Messages that were answered before the batch raised are never tried again.

PURE.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from gpu_stages.header import Header


class Carries(Protocol):
    """Anything with a header, such as a slot in the consumer's hand."""

    @property
    def header(self) -> Header: ...


C = TypeVar("C", bound=Carries)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out: Python's, the device's, or torch's allocator on the CPU.

    By name, so that a stage without torch need not import it: torch raises
    `torch.OutOfMemoryError` for a device and a plain RuntimeError on the CPU.
    """
    if isinstance(error, MemoryError):
        return True
    if any(kind.__name__ == "OutOfMemoryError" for kind in type(error).__mro__):
        return True
    return isinstance(error, RuntimeError) and "DefaultCPUAllocator" in str(error)


def parts_to_retry(
    batch: Sequence[C],
    answered: Callable[[Header], bool],
    *,
    out_of_memory: bool,
    repeatable: bool,
) -> list[list[C]]:
    """The parts of a failed batch to call again, in turn; none when what is left of it fails."""
    left = [each for each in batch if not answered(each.header)]
    if not repeatable or not left:
        return []
    if out_of_memory:
        half = -(-len(left) // 2)
        return [left[:half], left[half:]] if len(left) > 1 else []
    lives: dict[int, list[C]] = {}
    for each in left:
        lives.setdefault(each.header.live_slot, []).append(each)
    alone = len({each.header.live_slot for each in batch}) == 1
    return [] if alone else list(lives.values())
