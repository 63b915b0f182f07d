"""When to ask the encoder for a key frame: one serves every viewer, and many may ask at once.

PURE.
"""

INTERVAL_US = 300_000
RETRY_US = 1_000_000


class KeyframeGate:
    """Joins requests. One is *open* from the moment it is issued until a key frame is sent."""

    def __init__(self, interval_us: int = INTERVAL_US, retry_us: int = RETRY_US) -> None:
        self.issued = 0
        self._interval_us = interval_us
        self._retry_us = retry_us
        self._asked_us: int | None = None
        self._open = False
        self._waiting = False

    def ask(self, now_us: int) -> bool:
        """A viewer needs a key frame; True when the encoder must be told now."""
        if self._asked_us is not None:
            since = now_us - self._asked_us
            if self._open and since < self._retry_us:
                return False
            if not self._open and since < self._interval_us:
                self._waiting = True
                return False
        self._asked_us = now_us
        self._open = True
        self._waiting = False
        self.issued += 1
        return True

    def poll(self, now_us: int) -> bool:
        """True when a request that had to wait must be issued now."""
        return self._waiting and self.ask(now_us)

    def sent(self) -> None:
        """A key frame went out."""
        self._open = False
