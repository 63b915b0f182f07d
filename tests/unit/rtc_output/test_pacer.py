"""The media clock: due times, lateness, catching up, re-anchoring, credits."""

import pytest

from rtc_output.pacer import LatenessHistogram, Lead, Pacer, PacerSettings
from rtc_output.units import TICK_US, UNIT_US

START = 1_000_000_000


def send(pacer: Pacer, frame: int, half: int, now_us: int) -> int:
    """Send one unit as early as the pacer allows from `now_us` on; returns when."""
    at_us = max(now_us, pacer.send_at_us(frame, half, now_us))
    pacer.sent(frame, half, at_us)
    return at_us


def anchored(settings: PacerSettings | None = None, frame: int = 100) -> tuple[Pacer, int]:
    pacer = Pacer(settings or PacerSettings(), frame)
    pacer.arrived(frame, START, speech=False)
    return pacer, pacer.send_at_us(frame, 0, START)


def test_the_first_tick_sets_the_clock_on_the_shared_grid() -> None:
    for offset in (0, 1, 7_345, 19_999):
        pacer = Pacer(PacerSettings(), 5)
        pacer.arrived(5, START + offset, speech=False)
        due = pacer.send_at_us(5, 0, START + offset)
        assert due % UNIT_US == 0
        assert 20_000 <= due - (START + offset) < 40_000


def test_units_are_20_ms_apart_and_media_time_counts_from_the_first() -> None:
    pacer, due = anchored()
    media: list[int] = []
    for index in range(50):
        frame, half = 100 + index // 2, index % 2
        at = pacer.send_at_us(frame, half, due + index * UNIT_US)
        assert at == due + index * UNIT_US
        media.append(pacer.sent(frame, half, at + 900).media_us)
    assert media == [index * UNIT_US for index in range(50)]
    assert pacer.lateness.summary().p99_us == 900
    assert pacer.reanchors == 0


def test_late_media_goes_at_once_then_at_most_twice_as_fast_and_the_clock_stays() -> None:
    settings = PacerSettings()
    pacer, due = anchored(settings)
    now = due + 100_000
    sent: list[int] = []
    for index in range(40):
        now = send(pacer, 100 + index // 2, index % 2, now)
        sent.append(now)
    assert sent[0] == due + 100_000, "a late unit must not wait"
    burst = sum(at == sent[0] for at in sent)
    assert burst <= 1 + settings.burst_us // settings.catch_up_spacing_us
    for width in range(2, 20):
        for first, last in zip(sent, sent[width:], strict=False):
            allowed = settings.burst_us + settings.catch_up_spacing_us + (last - first)
            assert width * settings.catch_up_spacing_us <= allowed
    assert sent[-1] == due + 39 * UNIT_US, "it caught up with the clock that stood where it was"
    assert pacer.reanchors == 0
    assert pacer.lateness.max_us == 100_000


def test_a_long_stop_moves_the_clock_and_counts_it() -> None:
    pacer, due = anchored()
    send(pacer, 100, 0, due)
    send(pacer, 100, 1, due + UNIT_US)
    now = due + TICK_US + 1_000_000
    assert send(pacer, 101, 0, now) == now
    assert pacer.reanchors == 1
    assert pacer.slipped_us == 1_000_000
    assert pacer.lateness.max_us == 1_000_000, "the stop is reported, not hidden by the new clock"
    assert pacer.send_at_us(101, 1, now) == now + UNIT_US, "no catching up after a slip"


def test_media_time_follows_the_wall_clock_through_a_slip_and_stream_time_does_not() -> None:
    pacer, due = anchored()
    first = pacer.sent(100, 0, due)
    pacer.sent(100, 1, due + UNIT_US)
    now = due + 10 * TICK_US + 3_000
    pacer.send_at_us(101, 0, now)
    after = pacer.sent(101, 0, now)
    assert after.media_us % UNIT_US == 0
    assert after.media_us - first.media_us == after.due_us - first.due_us
    assert now - UNIT_US < after.due_us <= now
    assert after.stream_us == TICK_US


def test_an_early_jump_in_numbers_does_not_hold_the_live_back() -> None:
    pacer, due = anchored()
    send(pacer, 100, 0, due)
    send(pacer, 100, 1, due + UNIT_US)
    pacer.arrived(5000, due + TICK_US, speech=False)
    at = pacer.send_at_us(5000, 0, due + TICK_US)
    assert at <= due + TICK_US + 2 * UNIT_US
    assert pacer.reanchors == 1


def test_a_new_binding_goes_on_later_on_the_same_clock() -> None:
    pacer, due = anchored()
    first = pacer.sent(100, 0, due)
    pacer.sent(100, 1, due + UNIT_US)
    pacer.restart(7)
    pacer.arrived(7, due + UNIT_US, speech=False)
    pacer.send_at_us(7, 0, due + UNIT_US)
    again = pacer.sent(7, 0, due + 2 * UNIT_US)
    assert again.media_us > first.media_us + UNIT_US
    assert again.stream_us == TICK_US


def test_credit_is_the_playing_frame_plus_the_lead() -> None:
    settings = PacerSettings(lead_frames=4)
    pacer = Pacer(settings, 100)
    assert pacer.credit(START) == 104, "before the clock is set the stages may fill the lead"
    pacer.arrived(100, START, speech=False)
    due = pacer.send_at_us(100, 0, START)
    send(pacer, 100, 0, due)
    assert pacer.credit(due) == 104
    assert pacer.credit(due + TICK_US - 1) == 104
    assert pacer.credit(due + TICK_US) == 105
    assert pacer.credit(due + 100 * TICK_US) == 105, "a frame that has not come is not playing"


def test_the_lead_grows_when_ticks_come_late_and_shrinks_when_they_come_early() -> None:
    lead = Lead(PacerSettings(lead_frames=4, lead_frames_min=3, lead_frames_max=6))
    for _ in range(100):
        lead.observe(-5_000, speech=False)
    assert lead.frames == 6
    for _ in range(2000):
        lead.observe(100_000, speech=False)
    assert lead.frames == 3
    for _ in range(2000):
        lead.observe(60_000, speech=False)
    assert lead.frames == 3


def test_the_lead_waits_for_an_answer_before_it_grows_again() -> None:
    lead = Lead(PacerSettings(lead_frames=4))
    grew: list[int] = []
    for count in range(60):
        before = lead.frames
        lead.observe(0, speech=False)
        if lead.frames > before:
            grew.append(count)
    first, second = grew[:2]
    assert second - first > lead.frames, "the ticks made with the old lead say nothing"
    assert lead.frames == 6


def test_a_rare_pause_does_not_lengthen_the_lead() -> None:
    lead = Lead(PacerSettings(lead_frames=3))
    for count in range(2000):
        lead.observe(-100_000 if count % 40 == 0 else 60_000, speech=False)
    assert lead.frames == 3


def test_speech_under_way_gets_a_longer_lead_and_silence_a_short_one_at_once() -> None:
    lead = Lead(PacerSettings(lead_frames=3, lead_frames_speech=2))
    leads: list[int] = []
    for speech in (False, True, True, True, False):
        lead.observe(50_000, speech=speech)
        leads.append(lead.frames)
    assert leads == [3, 4, 5, 5, 3]


def test_the_wide_margin_of_speech_does_not_shorten_the_lead_of_silence() -> None:
    lead = Lead(PacerSettings(lead_frames=4, lead_frames_min=2, lead_frames_speech=3))
    for _ in range(1000):
        lead.observe(60_000 + 3 * TICK_US, speech=True)
    lead.observe(60_000, speech=False)
    assert lead.frames == 4


def test_percentiles_are_bounds_that_the_share_did_not_exceed() -> None:
    histogram = LatenessHistogram()
    for late in [0] * 94 + [9_000] * 5 + [300_000]:
        histogram.add(late)
    summary = histogram.summary()
    assert (summary.count, summary.p50_us, summary.p95_us, summary.max_us) == (
        100,
        1_000,
        10_000,
        300_000,
    )
    assert sum(count for _, count in summary.buckets) == 100
    other = LatenessHistogram()
    other.add(2_000_000)
    other.merge(histogram)
    assert other.summary().count == 101
    assert other.percentile_us(1.0) == 2_000_000


@pytest.mark.parametrize(
    "wrong",
    [
        {"lead_frames": 1},
        {"lead_frames_speech": -1},
        {"lead_frames_max": 100},
        {"catch_up_spacing_us": 20_000},
        {"grid_us": 15_000},
    ],
)
def test_settings_that_contradict_each_other_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="must"):
        PacerSettings(**wrong)
