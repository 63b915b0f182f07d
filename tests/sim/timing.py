"""How fast a simulated world beats: all bounds of its workers, replicas and of the run itself.

Virtual times are short, so that a run costs little; their proportions are production's.
"""

from controller.limits import Limits, ReadingLimits
from controller.segmenter import SegmenterLimits
from controller.session_core import SessionLimits
from dispatch.limits import Limits as DispatchLimits

SETTLE_MS_MAX = 6_000
LOOK_EVERY_MS = 80
CHECKPOINT_MS = 250
SLACK_MS = 20
"""A release of other lives that is under way may hold up a checkpoint for this long."""

WORKER_LIMITS = Limits(
    session=SessionLimits(
        checkpoint_ms=CHECKPOINT_MS,
        retry_ms=10,
        bind_retry_ms=40,
        stalled_ms=3_000,
        segmenter=SegmenterLimits(quiet_ms=60, settled_ms=10),
    ),
    reading=ReadingLimits(
        wait_ms=400,
        poll_ms=400,
        back_off_ms_min=10,
        back_off_ms_max=40,
        maintain_ms=300,
    ),
    beat_ms=280,
    ownership_poll_ms=400,
    reservation_ms=800,
    drain_retry_ms=80,
    drain_ms=400,
    stop_ms=100,
).check()
DISPATCH_LIMITS = DispatchLimits(
    refresh_ms=200,
    lease_ms=600,
    sweep_ms=60_000,
    activity_flush_ms=60_000,
    bury_ms=500,
).check()
