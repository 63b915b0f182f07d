"""The way out of a live's media, as the session uses it; the simulator brings its own."""

from collections.abc import Callable
from typing import Protocol

from controller.clock import Clock
from rtc_output.egress import LiveEgress, SentPosition, TickRefusal
from rtc_output.pacer import PacerSettings
from rtc_output.pacing_loop import PacingLoop
from schemas.media import MediaTick


class Egress(Protocol):
    """What a session needs of `LiveEgress`. `on_sent` is called when a tick's first packet went."""

    def push(self, tick: MediaTick) -> TickRefusal | None: ...

    def interrupt(self, utterance: int) -> SentPosition: ...

    def freeze(self) -> SentPosition: ...

    def thaw(self) -> None: ...


class Media(Protocol):
    """Makes and ends egresses."""

    def open(
        self,
        *,
        live_id: str,
        binding: int,
        epoch: int,
        start_frame: int,
        on_sent: Callable[[MediaTick, int], None],
        set_credit: Callable[[int], None],
        request_keyframe: Callable[[], None],
        on_viewers: Callable[[int], None],
    ) -> Egress:
        """A new way out, paced from now on."""
        ...

    def rebind(self, egress: Egress, *, binding: int, epoch: int, start_frame: int) -> None:
        """Go on with another binding of the stages; the viewers stay."""
        ...

    def shut(self, egress: Egress) -> None:
        """Send nothing more; viewers are told."""
        ...

    def close(self) -> None:
        """End the pacing."""
        ...


class PacedMedia:
    """`LiveEgress` on one pacing loop."""

    def __init__(self, clock: Clock, settings: PacerSettings | None = None) -> None:
        self._clock = clock
        self._settings = settings
        self._loop = PacingLoop(clock.now_us)
        self._open: dict[int, LiveEgress] = {}

    def open(
        self,
        *,
        live_id: str,
        binding: int,
        epoch: int,
        start_frame: int,
        on_sent: Callable[[MediaTick, int], None],
        set_credit: Callable[[int], None],
        request_keyframe: Callable[[], None],
        on_viewers: Callable[[int], None],
    ) -> LiveEgress:
        egress = LiveEgress(
            live_id=live_id,
            binding=binding,
            epoch=epoch,
            start_frame=start_frame,
            on_sent=on_sent,
            set_credit=set_credit,
            request_keyframe=request_keyframe,
            now_us=self._clock.now_us,
            settings=self._settings,
            on_subscribers=on_viewers,
        )
        self._open[id(egress)] = egress
        self._loop.add(egress)
        return egress

    def rebind(self, egress: Egress, *, binding: int, epoch: int, start_frame: int) -> None:
        own = self._open[id(egress)]
        own.rebind(binding=binding, epoch=epoch, start_frame=start_frame)
        # Added again, so that the new binding gets its first credit at once.
        self._loop.add(own)

    def shut(self, egress: Egress) -> None:
        own = self._open.pop(id(egress), None)
        if own is not None:
            own.close()
            self._loop.remove(own)

    def close(self) -> None:
        for egress in tuple(self._open.values()):
            self.shut(egress)
        self._loop.close()
