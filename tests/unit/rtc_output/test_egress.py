"""Authority, mute, order and fan-out at the last gate, with a clock that the test moves."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from rtc_output.egress import QUEUE_TICKS_MAX, LiveEgress, TickRefusal
from rtc_output.pacer import PacerSettings
from rtc_output.silence import silent_opus
from rtc_output.units import TICK_US, UNIT_US, MediaUnit
from schemas.media import TICK_SAMPLES, MediaTick, TickFlag

START = 5_000_000_000


def tick(frame: int, **changes: object) -> MediaTick:
    values: dict[str, object] = {
        "live_slot": 0,
        "binding": 1,
        "epoch": 1,
        "utterance": 0,
        "frame_index": frame,
        "segment_id": 9,
        "sample_start": frame * TICK_SAMPLES,
        "speech_samples": TICK_SAMPLES,
        "flags": TickFlag.KEYFRAME if frame % 25 == 0 else TickFlag.NONE,
        "opus": (f"a{frame}".encode(), f"b{frame}".encode()),
        "video": f"v{frame}".encode(),
        "stamps_us": (0, 0, 0, 0),
    }
    return MediaTick(**(values | changes))  # type: ignore[arg-type]


@dataclass
class Taken:
    units: list[MediaUnit] = field(default_factory=list)
    over: int = 0

    def take(self, unit: MediaUnit) -> None:
        self.units.append(unit)

    def ended(self) -> None:
        self.over += 1


@dataclass
class Bench:
    """An egress, a hand-moved clock and a record of what it told its owner."""

    now_us: int = START
    sent: list[MediaTick] = field(default_factory=list)
    sent_at: list[int] = field(default_factory=list)
    credits: list[int] = field(default_factory=list)
    keyframes: int = 0
    epoch: int = 1

    def __post_init__(self) -> None:
        self.egress = LiveEgress(
            live_id="live",
            binding=1,
            epoch=self.epoch,
            start_frame=0,
            on_sent=self._on_sent,
            set_credit=self.credits.append,
            request_keyframe=self._on_keyframe,
            now_us=lambda: self.now_us,
            settings=PacerSettings(lead_frames=4, lead_frames_speech=0),
        )

    def _on_sent(self, sent: MediaTick, now_us: int) -> None:
        self.sent.append(sent)
        self.sent_at.append(now_us)

    def _on_keyframe(self) -> None:
        self.keyframes += 1

    def run(self, for_us: int) -> None:
        """Let time pass, calling `advance` exactly when it asked to be called."""
        end = self.now_us + for_us
        while (at := self.egress.advance(self.now_us)) is not None and at <= end:
            assert at > self.now_us
            self.now_us = at
        self.now_us = end


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.egress.close()


def test_every_tick_is_reported_once_and_in_order_with_nobody_watching(bench: Bench) -> None:
    for frame in range(10):
        assert bench.egress.push(tick(frame)) is None
    bench.run(10 * TICK_US + 2 * UNIT_US)
    assert [sent.frame_index for sent in bench.sent] == list(range(10))
    assert {b - a for a, b in zip(bench.sent_at, bench.sent_at[1:], strict=False)} == {TICK_US}
    assert bench.egress.stats().lateness.max_us == 0


def test_the_first_credit_comes_before_the_first_tick_and_grows_with_playing(bench: Bench) -> None:
    bench.run(0)
    assert bench.credits == [4]
    for frame in range(3):
        bench.egress.push(tick(frame))
    bench.run(20 * TICK_US)
    assert bench.credits == [4, 5, 6, 7], "frame 3 never came: its successors get no credit"


def test_sound_and_picture_of_a_tick_share_one_time(bench: Bench) -> None:
    viewer = Taken()
    bench.egress.subscribe(viewer)
    for frame in range(50):
        bench.egress.push(tick(frame))
        bench.run(TICK_US)
    bench.run(4 * TICK_US)
    assert len(viewer.units) == 100
    for index, unit in enumerate(viewer.units):
        assert (unit.frame_index, unit.half) == divmod(index, 2)
        assert unit.opus == f"{'ab'[unit.half]}{unit.frame_index}".encode()
        assert unit.video == (f"v{unit.frame_index}".encode() if unit.half == 0 else b"")
        assert unit.keyframe == (unit.half == 0 and unit.frame_index % 25 == 0)
        assert unit.audio_pts == index * 960
        if unit.half == 0:
            assert unit.video_pts == unit.frame_index * 3600


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ({"binding": 2}, TickRefusal.WRONG_BINDING),
        ({"epoch": 2}, TickRefusal.LOWER_EPOCH),
        ({"frame_index": -1}, TickRefusal.OUT_OF_ORDER),
    ],
)
def test_a_tick_without_authority_is_refused(
    changes: dict[str, object], refusal: TickRefusal
) -> None:
    bench = Bench(epoch=3)
    assert bench.egress.push(tick(0, **({"epoch": 3} | changes))) is refusal
    assert bench.egress.stats().refused == {refusal: 1}
    bench.run(TICK_US * 5)
    assert bench.sent == []


def test_a_frame_number_is_never_sent_twice(bench: Bench) -> None:
    assert bench.egress.push(tick(0)) is None
    assert bench.egress.push(tick(0)) is TickRefusal.OUT_OF_ORDER
    bench.run(TICK_US * 3)
    assert len(bench.sent) == 1


def test_a_raised_epoch_stops_what_is_already_queued(bench: Bench) -> None:
    for frame in range(4):
        bench.egress.push(tick(frame))
    bench.run(TICK_US)
    heard = len(bench.sent)
    assert 0 < heard < 4
    bench.egress.raise_epoch(2)
    bench.run(TICK_US * 10)
    assert len(bench.sent) == heard
    assert bench.egress.stats().refused == {TickRefusal.LOWER_EPOCH: 4 - heard}
    assert bench.egress.push(tick(4)) is TickRefusal.LOWER_EPOCH
    assert bench.egress.push(tick(5, epoch=2)) is None


def test_a_backlog_is_bounded(bench: Bench) -> None:
    for frame in range(QUEUE_TICKS_MAX):
        assert bench.egress.push(tick(frame)) is None
    assert bench.egress.push(tick(QUEUE_TICKS_MAX)) is TickRefusal.BACKLOG_FULL


def test_an_interrupt_silences_queued_ticks_within_one_packet_and_keeps_the_picture(
    bench: Bench,
) -> None:
    viewer = Taken()
    bench.egress.subscribe(viewer)
    for frame in range(6):
        bench.egress.push(tick(frame))
    bench.run(2 * TICK_US - UNIT_US)
    before = len(viewer.units)
    assert viewer.units[-1].half == 0, "the interrupt falls between two packets of one tick"
    heard = bench.egress.interrupt(1)
    assert (heard.segment_id, heard.sample_end) == (9, heard.next_frame * TICK_SAMPLES)
    bench.egress.push(tick(6, utterance=1, segment_id=10, sample_start=0))
    bench.run(10 * TICK_US)
    after = viewer.units[before:]
    assert {unit.opus for unit in after if unit.frame_index < 6} == {silent_opus()}
    assert [unit.video for unit in after if unit.half == 0] == [
        f"v{frame}".encode() for frame in range(heard.next_frame, 7)
    ]
    assert after[-1].opus == b"b6"
    muted = [sent.frame_index for sent in bench.sent if sent.flags & TickFlag.MUTED]
    assert muted == list(range(heard.next_frame, 6))
    assert bench.egress.position.segment_id == 10


@pytest.mark.parametrize("cut_here", [True, False])
def test_the_end_of_a_cut_turn_is_not_heard_after_silence(bench: Bench, cut_here: bool) -> None:
    """The first tick of the next turn holds it; whether ticks of the old one were queued."""
    viewer = Taken()
    bench.egress.subscribe(viewer)
    for frame in range(4):
        bench.egress.push(tick(frame))
    bench.run(2 * TICK_US if cut_here else 8 * TICK_US)
    bench.egress.interrupt(1)
    for frame in (4, 5):
        bench.egress.push(tick(frame, utterance=1, segment_id=0, sample_start=-1))
    bench.run(20 * TICK_US)
    of_frame = {unit.frame_index: unit.opus for unit in viewer.units if unit.half == 0}
    assert (of_frame[3] == silent_opus()) is cut_here
    assert of_frame[4] == (silent_opus() if cut_here else b"a4")
    assert of_frame[5] == b"a5"
    assert not [sent for sent in bench.sent[4:] if sent.flags & TickFlag.MUTED]


def test_muted_ticks_do_not_count_as_heard(bench: Bench) -> None:
    for frame in range(4):
        bench.egress.push(tick(frame))
    bench.run(TICK_US)
    at = bench.egress.interrupt(1)
    bench.run(10 * TICK_US)
    assert bench.egress.position.next_frame == 4
    assert bench.egress.position.sample_end == at.sample_end


def test_many_requests_make_one_key_frame_request(bench: Bench) -> None:
    for _ in range(20):
        bench.egress.subscribe(Taken())
        bench.egress.request_keyframe()
    assert bench.keyframes == 1
    bench.egress.push(tick(0))
    bench.run(2 * TICK_US)
    bench.egress.request_keyframe()
    assert bench.keyframes == 1, "too soon after the last one"
    for frame in range(1, 20):
        bench.egress.push(tick(frame))
    bench.run(20 * TICK_US)
    assert bench.keyframes == 2, "but it was not forgotten"


def test_a_key_frame_that_never_comes_is_asked_for_again(bench: Bench) -> None:
    bench.egress.request_keyframe()
    bench.now_us += 999_000
    bench.egress.request_keyframe()
    assert bench.keyframes == 1
    bench.now_us += 1_000
    bench.egress.request_keyframe()
    assert bench.keyframes == 2


def test_a_failing_subscriber_is_removed_and_the_others_go_on(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Taken):
        def take(self, unit: MediaUnit) -> None:
            raise RuntimeError("no")

    broken, sound = Broken(), Taken()
    bench.egress.subscribe(broken)
    bench.egress.subscribe(sound)
    for frame in range(3):
        bench.egress.push(tick(frame))
    bench.run(5 * TICK_US)
    assert len(sound.units) == 6
    assert broken.over == 1
    assert bench.egress.stats().subscribers == 1
    assert "a subscriber failed" in caplog.text


def test_a_frozen_egress_keeps_its_position_and_thaws(bench: Bench) -> None:
    viewer = Taken()
    bench.egress.subscribe(viewer)
    for frame in range(4):
        bench.egress.push(tick(frame))
    bench.run(TICK_US)
    at = bench.egress.freeze()
    bench.run(2 * TICK_US)
    assert bench.egress.position.next_frame == at.next_frame
    assert viewer.units[-1].half == 1, "the tick that had begun was finished"
    bench.egress.thaw()
    bench.run(5 * TICK_US)
    assert bench.egress.position.next_frame == 4


def test_closing_finishes_the_tick_that_had_begun_and_ends_the_viewers(bench: Bench) -> None:
    viewer = Taken()
    bench.egress.subscribe(viewer)
    for frame in range(4):
        bench.egress.push(tick(frame))
    bench.run(UNIT_US)
    assert viewer.units[-1].half == 0
    end = bench.egress.close()
    assert viewer.units[-1].half == 1
    assert end.next_frame == viewer.units[-1].frame_index + 1
    assert viewer.over == 1
    assert bench.egress.push(tick(5)) is TickRefusal.CLOSED
    assert bench.egress.advance(bench.now_us + TICK_US) is None
    late = Taken()
    bench.egress.subscribe(late)
    assert late.over == 1


def test_a_new_binding_keeps_the_viewers_and_the_clock_grows(bench: Bench) -> None:
    viewer = Taken()
    bench.egress.subscribe(viewer)
    for frame in range(4):
        bench.egress.push(tick(frame))
    bench.run(2 * UNIT_US)
    start = bench.egress.position.next_frame
    bench.egress.rebind(binding=2, epoch=1, start_frame=start)
    assert bench.egress.push(tick(start)) is TickRefusal.WRONG_BINDING
    bench.now_us += 3 * TICK_US
    for frame in range(start, start + 3):
        assert bench.egress.push(tick(frame, binding=2)) is None
    bench.run(6 * TICK_US)
    assert [sent.frame_index for sent in bench.sent] == list(range(start + 3))
    media = [unit.media_us for unit in viewer.units]
    assert media == sorted(set(media))
    assert bench.credits[-1] >= start + 3 + 3


def test_ticks_that_come_from_inside_a_credit_callback_are_sent_in_order() -> None:
    """A stage runtime may answer a credit at once, on the same stack."""
    bench = Bench()
    made = -1

    def make_up_to(credit: int) -> None:
        nonlocal made
        while made < credit:
            made += 1
            assert bench.egress.push(tick(made)) is None

    bench.egress._set_credit = make_up_to  # type: ignore[method-assign]
    bench.run(20 * TICK_US)
    assert len(bench.sent) >= 18
    assert [sent.frame_index for sent in bench.sent] == list(range(len(bench.sent)))
    assert bench.egress.stats().lateness.max_us == 0


def test_a_newcomer_gets_what_came_since_a_young_key_frame(bench: Bench) -> None:
    for frame in range(8):
        bench.egress.push(tick(frame))
    bench.run(5 * TICK_US)
    viewer = Taken()
    past = bench.egress.subscribe(viewer)
    assert past[0].keyframe
    assert past[0].frame_index == 0
    bench.run(5 * TICK_US)
    units = [*past, *viewer.units]
    assert [(unit.frame_index, unit.half) for unit in units] == [
        divmod(index, 2) for index in range(16)
    ]
    assert bench.keyframes == 0, "no key frame was needed"


def test_an_old_key_frame_is_no_beginning(bench: Bench) -> None:
    for frame in range(24):
        bench.egress.push(tick(frame))
        bench.run(TICK_US)
    assert bench.egress.subscribe(Taken()) == ()
    assert bench.keyframes == 1


def test_no_unit_of_another_binding_is_a_beginning(bench: Bench) -> None:
    bench.egress.push(tick(0))
    bench.run(TICK_US)
    bench.egress.rebind(binding=2, epoch=1, start_frame=1)
    assert bench.egress.subscribe(Taken()) == ()
