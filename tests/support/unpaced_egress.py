"""An egress without pacing: a tick is sent when it comes. What tests and the simulator build on."""

from typing import Any

from rtc_output.egress import SentPosition, TickRefusal
from schemas.media import MediaTick, TickFlag


class UnpacedEgress:
    """Sends a tick when it comes, unless it was made for another binding or a lower epoch.

    Whoever inherits says what a refusal and a spoken tick leave behind (`refused`, `spoken`), and
    what time it is (`now_us`).
    """

    checks = True
    """The rule that the simulator's mutant without it leaves out."""

    def __init__(self, live_id: str, made: dict[str, Any]) -> None:
        self.live_id = live_id
        self.binding: int = made["binding"]
        self.epoch: int = made["epoch"]
        self.on_sent = made["on_sent"]
        self.set_credit = made["set_credit"]
        self.utterance = 0
        self.next_frame: int = made["start_frame"]
        self.frozen = False
        self.closed = False
        self.held: list[MediaTick] = []

    def refused(self, tick: MediaTick) -> None:
        """It was made for another binding."""

    def spoken(self, tick: MediaTick) -> None:
        """It carries speech, and is not muted."""
        raise NotImplementedError

    def now_us(self) -> int:
        """Given on with every tick that is sent."""
        raise NotImplementedError

    @property
    def position(self) -> SentPosition:
        return SentPosition(self.next_frame, 0, 0, self.utterance, 0)

    def push(self, tick: MediaTick) -> TickRefusal | None:
        if self.checks and (self.closed or tick.binding != self.binding or tick.epoch < self.epoch):
            self.refused(tick)
            return TickRefusal.WRONG_BINDING
        if self.frozen:
            self.held.append(tick)
            return None
        self._send(tick)
        return None

    def _send(self, tick: MediaTick) -> None:
        self.next_frame = tick.frame_index + 1
        if tick.utterance < self.utterance:
            object.__setattr__(tick, "flags", tick.flags | TickFlag.MUTED)
        elif tick.segment_id:
            self.spoken(tick)
        self.on_sent(tick, self.now_us())

    def interrupt(self, utterance: int) -> SentPosition:
        self.utterance = max(self.utterance, utterance)
        return self.position

    def freeze(self) -> SentPosition:
        self.frozen = True
        return self.position

    def thaw(self) -> None:
        self.frozen = False
        held, self.held = self.held, []
        for tick in held:
            self._send(tick)
