"""The one timer that paces all lives of a worker."""

import asyncio
import logging
import time
from collections.abc import Callable

from rtc_output.egress import LiveEgress

log = logging.getLogger(__name__)


def monotonic_us() -> int:
    """CLOCK_MONOTONIC in microseconds, as stamped by the stages."""
    return time.monotonic_ns() // 1000


class PacingLoop:
    """Calls every egress when its next unit is due, and at once when a tick came late.

    Absolute due times, so it does not drift; lives share a 20 ms grid, so one wake-up serves them
    all. It holds one timer handle and no task.
    """

    def __init__(self, now_us: Callable[[], int] | None = None) -> None:
        self._now_us = now_us or monotonic_us
        self._next_us: dict[LiveEgress, int | None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_us = 0

    def add(self, egress: LiveEgress) -> None:
        """Pace this egress from now on; its first credit goes to the stages at once."""
        egress.on_push = lambda: self._serve(egress)
        self._serve(egress)

    def remove(self, egress: LiveEgress) -> None:
        """Stop pacing it; harmless when it is not known."""
        egress.on_push = None
        self._next_us.pop(egress, None)
        self._arm()

    def close(self) -> None:
        """Stop the timer and forget every egress."""
        for egress in tuple(self._next_us):
            self.remove(egress)

    def _serve(self, egress: LiveEgress) -> None:
        self._advance(egress, self._now_us())
        self._arm()

    def _advance(self, egress: LiveEgress, now_us: int) -> None:
        try:
            self._next_us[egress] = egress.advance(now_us)
        except Exception:
            # A callback of one live failed. Its unit went out; the other lives must go on.
            log.exception("live %s: pacing failed", egress.live_id)
            self._next_us[egress] = now_us + 1000
        if egress.closed:
            self._next_us.pop(egress, None)

    def _arm(self) -> None:
        at_us = min((at for at in self._next_us.values() if at is not None), default=None)
        if self._timer is not None:
            if at_us == self._timer_us:
                return
            self._timer.cancel()
            self._timer = None
        if at_us is not None:
            delay_s = max(0, at_us - self._now_us()) / 1e6
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._fire)
            self._timer_us = at_us

    def _fire(self) -> None:
        self._timer = None
        now_us = self._now_us()
        for egress, at_us in tuple(self._next_us.items()):
            if at_us is not None and at_us <= now_us:
                self._advance(egress, now_us)
        self._arm()
