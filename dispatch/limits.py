"""Every bound of a Dispatch replica in one place, checked against each other at start.

PURE.
"""

from dataclasses import dataclass


class BadLimits(ValueError):
    """An operator's mistake: these limits do not go together."""


@dataclass(frozen=True, slots=True)
class Limits:
    """`lease_ms`: how long a worker's beat must stand still, by this replica's own clock, before
    the worker is marked dead. `refresh_ms`: age at which load views are read again.
    """

    refresh_ms: int = 1_000
    lease_ms: int = 5_000
    sweep_ms: int = 5_000
    activity_flush_ms: int = 1_000
    bury_ms: int = 300_000
    placement_tries_max: int = 8
    placement_rounds_max: int = 8
    recoveries_at_once_max: int = 32
    orphans_per_round_max: int = 256
    orphan_page: int = 128
    idempotency_key_chars_max: int = 255
    sends_in_flight_max: int = 4_096
    streams_max: int = 10_000
    stream_queue_events_max: int = 256
    sockets_max: int = 10_000
    retry_after_s: int = 2
    no_capacity_retry_after_s: int = 5

    def check(self) -> "Limits":
        """Itself, when the limits go together. Raises BadLimits."""
        for name in self.__slots__:
            if int(getattr(self, name)) < 1:
                raise BadLimits(f"{name} must be at least 1")
        if self.lease_ms < 3 * self.refresh_ms:
            raise BadLimits(
                f"lease_ms ({self.lease_ms}) must be at least three times refresh_ms "
                f"({self.refresh_ms}): a shorter lease marks workers dead whose beat was only "
                "looked at too rarely"
            )
        if self.orphan_page > self.orphans_per_round_max:
            raise BadLimits("orphan_page must not exceed orphans_per_round_max")
        return self
