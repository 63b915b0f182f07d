"""Whoever asked is told how many watch, each time that changes."""

from rtc_output.egress import LiveEgress
from rtc_output.units import MediaUnit


class Viewer:
    def take(self, unit: MediaUnit) -> None: ...

    def ended(self) -> None: ...


def egress(told: list[int]) -> LiveEgress:
    return LiveEgress(
        live_id="live",
        binding=1,
        epoch=1,
        start_frame=0,
        on_sent=lambda tick, now_us: None,
        set_credit=lambda frame: None,
        request_keyframe=lambda: None,
        now_us=lambda: 0,
        on_subscribers=told.append,
    )


def test_the_number_of_viewers_is_told_with_every_change() -> None:
    told: list[int] = []
    out = egress(told)
    first, second = Viewer(), Viewer()
    out.subscribe(first)
    out.subscribe(second)
    out.unsubscribe(first)
    out.unsubscribe(first)
    assert told == [1, 2, 1]


def test_a_closed_egress_has_no_new_viewers() -> None:
    told: list[int] = []
    out = egress(told)
    out.close()
    out.subscribe(Viewer())
    assert told == []
