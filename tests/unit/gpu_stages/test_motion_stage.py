"""Motion: every sample accounted for, every tick in its place, and silence when it is told."""

from dataclasses import replace

import numpy as np
import pytest

from gpu_stages.face.coarticulation import LOOK_SAMPLES
from gpu_stages.face.idle_life import idle_frames
from gpu_stages.face.parameters import FACE_PARAMETERS, Face
from gpu_stages.face.phonemes import Viseme, visemes_of
from gpu_stages.header import Header, MessageKind
from gpu_stages.speech.voice_parts import (
    EMPTY,
    PHONEME_DTYPE,
    BadVoiceParts,
    VoiceParts,
    read_voice_parts,
)
from gpu_stages.stage import Message
from gpu_stages.stages.motion import CATCH_UP_TICKS, MotionStage
from gpu_stages.stages.speech import SpeechStage
from schemas.media import SAMPLE_RATE_HZ, TICK_SAMPLES, TickFlag
from tests.support.stage_fakes import (
    FakeOutbox,
    live_row,
    part_view,
    speak_all,
    text_message,
)

FIRST, LAST = TickFlag.FIRST_OF_SEGMENT, TickFlag.LAST_OF_SEGMENT


def voice_message(
    samples: int,
    *,
    segment_id: int = 1,
    utterance: int = 0,
    sample_start: int = 0,
    flags: TickFlag = FIRST | LAST,
    live_slot: int = 0,
) -> Message:
    """A voice of rising sample values, an open vowel all along."""
    pcm = (np.arange(sample_start, sample_start + samples) % 20_000 + 1).astype(np.int16)
    phonemes = np.array([(0, sample_start + samples, ord("ɑ"), 2, 0)], PHONEME_DTYPE)
    parts = VoiceParts(pcm, phonemes, np.ones(-(-samples // 240), np.float32))
    row = live_row(live_slot)
    header = Header(
        MessageKind.SEGMENT_VOICE,
        live_slot,
        row.binding,
        row.epoch,
        utterance=utterance,
        segment_id=segment_id,
        sample_start=sample_start,
        speech_samples=samples,
        flags=flags,
        seed=5,
        stamps_us=(11, 22, 0, 0),
    )
    return Message(header, tuple(part_view(part) for part in parts.parts()))


def run(stage: MotionStage, out: FakeOutbox, credit: int, **row: object) -> list[Message]:
    """Ticks up to `credit`, as the process's loop would ask for them."""
    for _ in range(-(-credit // CATCH_UP_TICKS) + 2):
        stage.on_tick([live_row(credit_frame=credit, **row)], 0, out)
    return out.take()


def face(message: Message) -> np.ndarray:
    return np.frombuffer(message.parts[1], np.float32)


def pcm(message: Message) -> np.ndarray:
    return np.frombuffer(message.parts[0], np.int16)


@pytest.fixture
def stage() -> MotionStage:
    made = MotionStage()
    made.load({}, "cpu")
    return made


def test_ticks_come_with_credit_only_and_without_a_gap(stage: MotionStage) -> None:
    out = FakeOutbox()
    stage.on_tick([live_row(credit_frame=-1)], 0, out)
    assert not out.sent
    ticks = run(stage, out, 40)
    assert [message.header.frame_index for message in ticks] == list(range(41))
    assert run(stage, out, 40) == []
    for message in ticks:
        header = message.header
        assert header.kind is MessageKind.TICK_MOTION
        assert (header.segment_id, header.sample_start, header.speech_samples) == (0, -1, 0)
        assert header.flags == TickFlag.NONE
        assert not pcm(message).any()
        assert len(pcm(message)) == TICK_SAMPLES
        assert len(face(message)) == FACE_PARAMETERS


@pytest.mark.parametrize("samples", [1, 959, 960, 961, 9600, 12_345])
def test_every_sample_of_a_segment_is_in_one_tick(stage: MotionStage, samples: int) -> None:
    out = FakeOutbox()
    row = live_row()
    stage.process([voice_message(samples)], [row], out)
    ticks = run(stage, out, 30)
    said = [message for message in ticks if message.header.segment_id]
    assert sum(message.header.speech_samples for message in said) == samples
    assert [message.header.frame_index for message in ticks] == list(range(31))
    starts = [message.header.sample_start for message in said]
    assert starts == [index * TICK_SAMPLES for index in range(len(said))]
    flags = [message.header.flags for message in said]
    assert flags[0] & FIRST
    assert flags[-1] & LAST
    assert all(not flag & FIRST for flag in flags[1:])
    assert all(not flag & LAST for flag in flags[:-1])
    heard = np.concatenate([pcm(message) for message in said])
    assert np.array_equal(heard[:samples], np.arange(samples) % 20_000 + 1)
    assert not heard[samples:].any()
    assert all(message.header.stamps_us[:2] == (11, 22) for message in said)


def test_segments_follow_each_other_in_order_tick_by_tick(stage: MotionStage) -> None:
    out = FakeOutbox()
    row = live_row()
    batch = [
        voice_message(3000, segment_id=1),
        voice_message(1920, segment_id=2, flags=FIRST),
        voice_message(960, segment_id=2, sample_start=1920, flags=LAST),
    ]
    stage.process(batch, [row] * 3, out)
    ticks = run(stage, out, 10)
    assert [message.header.segment_id for message in ticks[:8]] == [1, 1, 1, 1, 2, 2, 2, 0]
    assert [m.header.sample_start for m in ticks[4:7]] == [0, 960, 1920]
    assert [m.header.flags for m in ticks[4:7]] == [FIRST, TickFlag.NONE, LAST]


def test_an_empty_segment_begins_and_ends_in_one_tick(stage: MotionStage) -> None:
    out = FakeOutbox()
    empty = voice_message(0, segment_id=4)
    parts = tuple(part_view(part) for part in EMPTY.parts())
    stage.process([Message(empty.header, parts), voice_message(960)], [live_row()] * 2, out)
    ticks = run(stage, out, 3)
    assert ticks[0].header.segment_id == 4
    assert ticks[0].header.flags == FIRST | LAST
    assert ticks[0].header.speech_samples == 0
    assert ticks[1].header.segment_id == 1


def test_a_segment_whose_rest_is_late_goes_on_when_it_comes(stage: MotionStage) -> None:
    out = FakeOutbox()
    stage.process([voice_message(960, flags=FIRST)], [live_row()], out)
    assert [m.header.segment_id for m in run(stage, out, 2)] == [1, 0, 0]
    assert stage.stats()["starved_ticks"] == 2
    stage.process([voice_message(960, sample_start=960, flags=LAST)], [live_row()], out)
    (tick,) = run(stage, out, 3)
    assert (tick.header.sample_start, tick.header.flags) == (960, LAST)


def test_no_room_delays_but_loses_nothing(stage: MotionStage) -> None:
    out = FakeOutbox(free=2)
    stage.process([voice_message(9600)], [live_row()], out)
    ticks: list[Message] = []
    for _ in range(20):
        stage.on_tick([live_row(credit_frame=15)], 0, out)
        assert len(out.sent) <= 2
        ticks += out.take()
    assert [message.header.frame_index for message in ticks] == list(range(16))
    assert sum(message.header.speech_samples for message in ticks) == 9600


def test_room_goes_to_the_live_that_is_furthest_behind(stage: MotionStage) -> None:
    out = FakeOutbox()
    rows = [live_row(0, credit_frame=20), live_row(1, credit_frame=2)]
    for _ in range(3):
        stage.on_tick(rows, 0, out)
    out.take()
    out.free = 1
    stage.on_tick([live_row(0, credit_frame=22), live_row(1, credit_frame=8)], 0, out)
    assert [message.header.live_slot for message in out.sent] == [1]


def test_an_interrupt_closes_the_mouth_and_drops_what_waits(stage: MotionStage) -> None:
    out = FakeOutbox()
    voices = [voice_message(48_000, segment_id=1), voice_message(4800, segment_id=2)]
    stage.process(voices, [live_row()] * 2, out)
    before = run(stage, out, 20)
    open_jaw = face(before[-1])[Face.JAW_OPEN]
    assert open_jaw > 0.5
    after = run(stage, out, 30, utterance=1)
    assert all(message.header.segment_id == 0 for message in after)
    assert all(message.header.utterance == 1 for message in after)
    jaws = [float(face(message)[Face.JAW_OPEN]) for message in after[:4]]
    assert jaws == sorted(jaws, reverse=True)
    assert jaws[2] < 0.02, "closed within 120 ms"
    steps = np.abs(np.diff([open_jaw, *jaws]))
    assert steps.max() < 0.6
    stage.process([voice_message(960, segment_id=3)], [live_row(utterance=1)], out)
    assert run(stage, out, 31, utterance=1)[0].header.segment_id == 0, "of the turn before"
    stage.process([voice_message(960, segment_id=5, utterance=1)], [live_row(utterance=1)], out)
    tick = run(stage, out, 32, utterance=1)[0]
    assert (tick.header.segment_id, tick.header.utterance) == (5, 1)
    assert stage.stats()["muted_voices"] == 3


def test_a_new_binding_starts_afresh_at_its_start_frame(stage: MotionStage) -> None:
    out = FakeOutbox()
    stage.process([voice_message(9600)], [live_row()], out)
    run(stage, out, 3)
    stage.forget(0)
    row = replace(live_row(), binding=77, start_frame=1000, credit_frame=1001)
    stage.on_tick([row], 0, out)
    ticks = out.take()
    assert [message.header.frame_index for message in ticks] == [1000, 1001]
    assert [message.header.segment_id for message in ticks] == [0, 0]
    assert {message.header.binding for message in ticks} == {77}
    assert np.array_equal(face(ticks[0]), idle_frames(row.seed, 1000, 1)[0])


def test_parts_that_do_not_fit_are_an_error(stage: MotionStage) -> None:
    message = voice_message(960)
    with pytest.raises(BadVoiceParts):
        stage.process([Message(message.header, message.parts[:2])], [live_row()], FakeOutbox())
    with pytest.raises(ValueError, match="unknown settings"):
        MotionStage().load({"smile": 1}, "cpu")


# ---- with the real voice

SENTENCES = [
    "Peter Piper picked a peck of pickled peppers.",
    "Mama baked a big apple pie for my brother Bob.",
    "Please remember to bring a map of the campus.",
    "The umbrella bumped above the pump, but nobody moved.",
    "Maybe we could simply jump to the last example?",
]


@pytest.fixture(scope="module")
def speech() -> SpeechStage:
    made = SpeechStage()
    made.load({"voices": ["heart"]}, "cpu")
    return made


def voices_of(speech: SpeechStage, text: str, skip_samples: int = 0) -> list[Message]:
    row = live_row()
    message = text_message(row, text, skip_samples=skip_samples)
    return speak_all(speech, [message], [row]).sent


def ticks_of(voices: list[Message], *, start_frame: int = 0, count: int = 150) -> list[Message]:
    stage = MotionStage()
    stage.load({}, "cpu")
    out = FakeOutbox()
    row = live_row(start_frame=start_frame, credit_frame=start_frame + count - 1)
    stage.process(voices, [row] * len(voices), out)
    for _ in range(count // CATCH_UP_TICKS + 2):
        stage.on_tick([row], 0, out)
    return out.take()


@pytest.mark.parametrize("text", SENTENCES)
def test_lips_are_closed_at_every_p_b_m_and_open_in_open_vowels(
    speech: SpeechStage, text: str
) -> None:
    (voice,) = voices_of(speech, text)
    ticks = ticks_of([voice])
    faces = np.stack([face(message) for message in ticks])
    look_s = (np.arange(len(ticks)) * TICK_SAMPLES + LOOK_SAMPLES) / SAMPLE_RATE_HZ
    worst, open_worst, closures = 0.0, 0.0, 0
    for phoneme in read_voice_parts(voice.parts).phonemes:
        shape = visemes_of(int(phoneme["phoneme"]))[0]
        start, end = phoneme["start"] / SAMPLE_RATE_HZ, phoneme["end"] / SAMPLE_RATE_HZ
        if shape is Viseme.PP:
            closures += 1
            near = (look_s > start - 0.03) & (look_s < end + 0.03)
            worst = max(worst, 1.0 - faces[near, Face.LIPS_CLOSED].max(initial=0.0))
        if shape in (Viseme.AA, Viseme.AE, Viseme.OH) and end - start >= 0.08:
            near = np.abs(look_s - (start + end) / 2) <= 0.02
            open_worst = max(open_worst, faces[near, Face.LIPS_CLOSED].max(initial=0.0))
    assert closures >= 4
    assert worst < 0.02
    assert open_worst < 0.2


@pytest.mark.parametrize("text", SENTENCES[:2])
def test_no_jump_from_face_to_face(speech: SpeechStage, text: str) -> None:
    faces = np.stack([face(message) for message in ticks_of(voices_of(speech, text))])
    steps = np.abs(np.diff(faces, axis=0)).max(axis=0)
    assert steps[Face.JAW_OPEN] < 0.5
    assert steps[[Face.LIPS_ROUND, Face.LIPS_WIDE]].max() < 0.45
    assert steps[[Face.HEAD_YAW, Face.HEAD_PITCH, Face.HEAD_ROLL]].max() < 0.03
    assert steps[[Face.BROW_UP_LEFT, Face.BROW_UP_RIGHT]].max() < 0.3
    assert faces.max() <= 1.0
    assert faces.min() >= -1.0


@pytest.mark.parametrize("moved_at", [1, 17, 40, 70])
def test_a_new_owner_goes_on_without_a_jump(speech: SpeechStage, moved_at: int) -> None:
    text = f"{SENTENCES[0]} {SENTENCES[1]}"
    whole = ticks_of(voices_of(speech, text))
    skip = whole[moved_at].header.sample_start
    later = ticks_of(voices_of(speech, text, skip), start_frame=moved_at, count=60)
    for old, new in zip(whole[moved_at:], later, strict=False):
        assert new.header.frame_index == old.header.frame_index
        assert new.header.sample_start == old.header.sample_start
        assert new.header.speech_samples == old.header.speech_samples
        assert new.header.flags & LAST == old.header.flags & LAST
        assert np.abs(face(new) - face(old)).max() < 0.02
    assert np.array_equal(pcm(later[1]), pcm(whole[moved_at + 1]))


def test_the_mouth_moves_with_the_sound(speech: SpeechStage) -> None:
    """Over some sentences, the jaw follows the loudness best at a lead of 0 to 80 ms."""
    lags = range(-4, 5)
    found = np.zeros(len(lags))
    for text in SENTENCES:
        ticks = ticks_of(voices_of(speech, text), count=120)
        level = np.array([np.sqrt((pcm(m).astype(float) ** 2).mean()) for m in ticks])
        jaw = np.array([face(m)[Face.JAW_OPEN] for m in ticks])
        level, jaw = level - level.mean(), jaw - jaw.mean()
        found += [np.dot(np.roll(level, -lag)[5:-5], jaw[5:-5]) for lag in lags]
    lead_ms = 40 * list(lags)[int(found.argmax())]
    assert 0 <= lead_ms <= 80
    assert found.max() > 0


def test_a_voice_that_cannot_be_moved_fails_alone(stage: MotionStage) -> None:
    out = FakeOutbox()
    good, bad = voice_message(960, live_slot=0), voice_message(960, live_slot=1, segment_id=9)
    bad = Message(bad.header, (bad.parts[0][:-1], *bad.parts[1:]))
    stage.process([bad, good], [live_row(1), live_row(0)], out)
    assert [header.segment_id for header, _ in out.failed] == [9]
    assert "BadVoiceParts" in out.failed[0][1]
    assert run(stage, out, 0)[0].header.speech_samples == 960
    with pytest.raises(BadVoiceParts):
        stage.process([bad], [live_row(1)], out)


def test_a_curve_of_another_shape_is_refused_by_name() -> None:
    class Short(MotionStage):
        def curve_of(self, header: Header, parts: VoiceParts, ticks: int) -> np.ndarray:
            return np.zeros((ticks - 1, FACE_PARAMETERS), np.float32)

    with pytest.raises(ValueError, match=r"gave float32 \[1, 24\] for 2 ticks"):
        Short().process([voice_message(1920)], [live_row()], FakeOutbox())
