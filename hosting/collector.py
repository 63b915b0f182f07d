"""How often Python looks for cycles among the objects of a process that serves many lives."""

import gc

YOUNG_MAX = 50_000
MIDDLE_MAX = 20
OLD_MAX = 20


def calm_collector() -> None:
    """Let the cycle collector run seldom. Call once, when everything is imported.

    What is made for a record or a tick is freed by its count of references; cycles are rare here.
    With Python's own thresholds the collector runs for every 700 objects that a fetch brings, and
    its full runs walk through every live's queues: a sixth of a worker's time under load, and
    pauses of the loop that send ticks late. What exists now stays, so it is not walked at all.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_MAX, MIDDLE_MAX, OLD_MAX)
