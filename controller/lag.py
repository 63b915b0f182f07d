"""The lag that operators see: how far each partition in custody is behind its log.

The group's committed offset is the partition's watermark, below which everything is finished, so
this is what `kafka-consumer-groups --describe` shows, without asking the group.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping

from controller.shell import Worker
from stream.transport import BrokerAway

LOOK_S = 5.0

LogEnds = Callable[[Iterable[int]], Awaitable[Mapping[int, int]]]


async def watch_lag(worker: Worker, log_ends: LogEnds, look_s: float = LOOK_S) -> None:
    """Until cancelled. While the broker is away the last figures stay."""
    while True:
        await asyncio.sleep(look_s)
        marks = marks_of(worker)
        if not marks:
            worker.lag = {}
            continue
        try:
            ends = await log_ends(marks)
        except BrokerAway:
            continue
        worker.lag = {partition: max(0, ends[partition] - at) for partition, at in marks.items()}


def marks_of(worker: Worker) -> dict[int, int]:
    """The watermarks of the partitions in this worker's custody."""
    incarnation = worker.incarnation
    if incarnation is None:
        return {}
    custody = incarnation.consumer.custody
    return {p: custody.marks[p] for p in custody.books if p in custody.marks}
