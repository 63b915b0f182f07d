"""One timer for all lives: on time, without drift, and one live's trouble is its own."""

import asyncio

import pytest

from rtc_output.egress import LiveEgress
from rtc_output.pacing_loop import PacingLoop, monotonic_us
from rtc_output.units import TICK_US, UNIT_US
from schemas.media import MediaTick
from tests.browser.synthetic import until
from tests.unit.rtc_output.test_egress import tick


class Plain:
    """An egress that gets every tick it has credit for, at once."""

    def __init__(self, pacing: PacingLoop, *, breaks_at: int = -1) -> None:
        self.sent: list[tuple[int, int]] = []
        self.made = -1
        self.breaks_at = breaks_at
        self.egress = LiveEgress(
            live_id="plain",
            binding=1,
            epoch=1,
            start_frame=0,
            on_sent=self._on_sent,
            set_credit=self._make,
            request_keyframe=lambda: None,
            now_us=monotonic_us,
        )
        pacing.add(self.egress)

    def _make(self, credit: int) -> None:
        while self.made < credit:
            self.made += 1
            self.egress.push(tick(self.made))

    def _on_sent(self, sent: MediaTick, now_us: int) -> None:
        self.sent.append((sent.frame_index, now_us))
        if sent.frame_index == self.breaks_at:
            raise RuntimeError("the controller failed")


async def test_lives_share_wake_ups_and_do_not_drift() -> None:
    pacing = PacingLoop()
    lives = [Plain(pacing) for _ in range(5)]
    await until(lambda: all(len(one.sent) > 40 for one in lives), "40 ticks")
    for one in lives:
        assert [frame for frame, _ in one.sent] == list(range(len(one.sent)))
        early = min(at % UNIT_US for _, at in one.sent)
        assert early < 5_000, "due times lie on the grid"
        span = one.sent[-1][1] - one.sent[0][1]
        if one.egress.stats().reanchors == 0:
            assert abs(span - (len(one.sent) - 1) * TICK_US) < 60_000
        one.egress.close()
    pacing.close()


async def test_a_failing_callback_does_not_stop_its_live_nor_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    pacing = PacingLoop()
    broken, sound = Plain(pacing, breaks_at=2), Plain(pacing)
    await until(lambda: len(broken.sent) > 8 and len(sound.sent) > 8, "both going on")
    assert [frame for frame, _ in broken.sent] == list(range(len(broken.sent)))
    assert "pacing failed" in caplog.text
    pacing.close()


async def test_closing_leaves_no_timer() -> None:
    pacing = PacingLoop()
    one = Plain(pacing)
    await until(lambda: len(one.sent) > 2, "ticks")
    pacing.close()
    count = len(one.sent)
    await asyncio.sleep(0.1)
    assert len(one.sent) == count
    assert pacing._timer is None


async def test_a_closed_live_is_forgotten() -> None:
    pacing = PacingLoop()
    one, other = Plain(pacing), Plain(pacing)
    await until(lambda: len(one.sent) > 2, "ticks")
    one.egress.close()
    pacing.remove(one.egress)
    count = len(other.sent)
    await until(lambda: len(other.sent) > count + 3, "the other going on")
    assert list(pacing._next_us) == [other.egress]
    pacing.close()
