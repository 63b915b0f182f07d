"""Speech: what is said, that it is always the same, and that nobody waits for long."""

import hashlib

import numpy as np
import pytest

from gpu_stages.header import MessageKind
from gpu_stages.live_table import name_code
from gpu_stages.speech.voice_parts import read_voice_parts
from gpu_stages.stage import Message, PartTooLarge
from gpu_stages.stages.speech import SpeechStage
from schemas.media import TICK_SAMPLES, TickFlag
from tests.support.stage_fakes import FakeOutbox, live_row, speak_all, text_message

SENTENCES = [
    "Hello there, this is a test of the voice.",
    "Peter Piper picked a peck of pickled peppers!",
    "Where did you put my book?",
]


@pytest.fixture(scope="module")
def stage() -> SpeechStage:
    made = SpeechStage()
    made.load({"voices": ["heart"]}, "cpu")
    return made


def speak(stage: SpeechStage, *messages: Message) -> list[Message]:
    rows = [live_row(message.header.live_slot) for message in messages]
    out = speak_all(stage, messages, rows)
    assert not out.failed
    return out.sent


def samples(messages: list[Message]) -> np.ndarray:
    return np.concatenate([read_voice_parts(message.parts).pcm for message in messages])


def digest(messages: list[Message]) -> str:
    return hashlib.sha256(samples(messages).tobytes()).hexdigest()


def test_a_segment_has_one_beginning_one_end_and_no_gap(stage: SpeechStage) -> None:
    text = "One sentence. And a second one, with a clause! A third?"
    sent = speak(stage, text_message(live_row(), text, segment_id=9, utterance=0))
    assert len(sent) == 3
    assert [message.header.kind for message in sent] == [MessageKind.SEGMENT_VOICE] * 3
    flags = [message.header.flags for message in sent]
    assert flags == [TickFlag.FIRST_OF_SEGMENT, TickFlag.NONE, TickFlag.LAST_OF_SEGMENT]
    at = 0
    for message in sent:
        voice = read_voice_parts(message.parts)
        assert message.header.segment_id == 9
        assert message.header.sample_start == at
        assert message.header.speech_samples == len(voice.pcm)
        assert len(voice.pcm) % TICK_SAMPLES == 0
        assert message.header.stamps_us[0] == 1_000
        assert message.header.stamps_us[1] > 0
        at += len(voice.pcm)


@pytest.mark.parametrize("text", SENTENCES)
def test_the_phoneme_table_covers_the_sound(stage: SpeechStage, text: str) -> None:
    (message,) = speak(stage, text_message(live_row(), text))
    voice = read_voice_parts(message.parts)
    table = voice.phonemes
    assert (table["start"][1:] >= table["end"][:-1] - 1).all()
    assert (table["end"] >= table["start"]).all()
    assert table["start"][0] == 0
    assert 0 < table["end"][-1] <= len(voice.pcm)
    loud = np.flatnonzero(np.abs(voice.pcm.astype(int)) > 400)
    assert table["end"][-1] >= loud[-1] - 240
    assert len(voice.loudness) == len(voice.pcm) // 240


def test_the_durations_add_up_to_the_sound(stage: SpeechStage) -> None:
    model = stage._models[name_code("heart")]
    for text in SENTENCES:
        for phonemes in model.phonemes(text):
            raw = model.speak(phonemes, 1.0, 3)
            assert int(raw.durations.sum()) * 600 == len(raw.wave)
            assert len(raw.symbols) == len(raw.durations)


def test_the_same_text_and_seed_give_the_same_samples_alone_and_in_a_batch(
    stage: SpeechStage,
) -> None:
    alone = [
        digest(speak(stage, text_message(live_row(), text, seed=100 + index)))
        for index, text in enumerate(SENTENCES)
    ]
    batch = [
        text_message(live_row(index), text, seed=100 + index)
        for index, text in enumerate(SENTENCES)
    ]
    together = speak(stage, *batch)
    for index in range(len(SENTENCES)):
        mine = [message for message in together if message.header.live_slot == index]
        assert digest(mine) == alone[index]
    assert digest(speak(stage, text_message(live_row(), SENTENCES[0], seed=999))) != alone[0]


@pytest.mark.parametrize("skip_ticks", [0, 1, 13, 40, 41, 60])
def test_what_is_left_out_changes_nothing_behind_it(stage: SpeechStage, skip_ticks: int) -> None:
    text = "The first sentence is here. The second one follows it."
    whole = samples(speak(stage, text_message(live_row(), text)))
    skip = skip_ticks * TICK_SAMPLES
    sent = speak(stage, text_message(live_row(), text, skip_samples=skip))
    rest = samples(sent)
    assert sent[0].header.sample_start == skip
    assert sent[0].header.flags & TickFlag.FIRST_OF_SEGMENT
    assert sent[-1].header.flags & TickFlag.LAST_OF_SEGMENT
    assert len(rest) == len(whole) - skip
    assert np.array_equal(rest, whole[skip:])


def test_all_skipped_still_ends(stage: SpeechStage) -> None:
    (message,) = speak(stage, text_message(live_row(), "Short.", skip_samples=10_000_000))
    assert message.header.flags == TickFlag.FIRST_OF_SEGMENT | TickFlag.LAST_OF_SEGMENT
    assert message.header.speech_samples == 0


@pytest.mark.parametrize("text", ["🙂🎉", "...", " ", "—", "?!", "。", "\u200b"])
def test_nothing_to_say_is_an_empty_voice_that_ends(stage: SpeechStage, text: str) -> None:
    (message,) = speak(stage, text_message(live_row(), text))
    assert message.header.flags == TickFlag.FIRST_OF_SEGMENT | TickFlag.LAST_OF_SEGMENT
    assert message.header.speech_samples == 0
    assert message.header.sample_start == 0


def test_edges_are_silent_and_nothing_is_clipped(stage: SpeechStage) -> None:
    for text in SENTENCES:
        pcm = samples(speak(stage, text_message(live_row(), text))).astype(int)
        assert abs(pcm[0]) < 50
        assert abs(pcm[-1]) == 0
        assert np.abs(pcm).max() <= 0.9 * 32767
        active = pcm[np.abs(pcm) > 300]
        assert -26 < 20 * np.log10(np.sqrt(np.mean((active / 32768) ** 2))) < -14


def test_speed_changes_the_length(stage: SpeechStage) -> None:
    text = SENTENCES[0]
    out: dict[float, int] = {}
    for speed in (0.7, 1.0, 1.5):
        box = speak_all(stage, [text_message(live_row(), text)], [live_row(speed=speed)])
        out[speed] = len(samples(box.sent))
    assert out[0.7] > 1.2 * out[1.0] > 1.44 * out[1.5]


def test_long_text_is_cut_and_lives_take_turns(stage: SpeechStage) -> None:
    endless = " ".join(["the wide river runs below the old stone bridge"] * 40)
    sent = speak(
        stage,
        text_message(live_row(0), endless),
        text_message(live_row(1), "Me too."),
    )
    assert len(sent) > 5
    assert [message.header.live_slot for message in sent[:2]] == [0, 1]
    mine = [message for message in sent if message.header.live_slot == 0]
    assert all(message.header.speech_samples < 30 * 24_000 for message in mine)


def test_a_voice_that_exceeds_a_slot_is_split(stage: SpeechStage) -> None:
    small = SpeechStage()
    small.load({"voices": ["heart"], "voice_bytes_max": 50_000}, "cpu")
    text = SENTENCES[1]
    whole = speak(stage, text_message(live_row(), text))
    split = speak(small, text_message(live_row(), text))
    assert len(split) > len(whole) == 1
    assert np.array_equal(samples(split), samples(whole))
    assert all(len(message.parts[0]) <= 50_000 for message in split)
    assert [bool(m.header.flags & TickFlag.LAST_OF_SEGMENT) for m in split][-2:] == [False, True]
    starts = [message.header.sample_start for message in split]
    assert starts == list(np.cumsum([0] + [m.header.speech_samples for m in split])[:-1])


def test_an_interrupt_drops_what_waits(stage: SpeechStage) -> None:
    out = FakeOutbox(free=0)
    row = live_row()
    stage.process([text_message(row, SENTENCES[0]), text_message(row, "Next.")], [row, row], out)
    assert not out.sent
    assert stage.stats()["waiting"] == 2
    out.free = 10
    stage.on_tick([live_row(utterance=1)], 0, out)
    assert not out.sent
    assert stage.stats()["waiting"] == 0


def test_no_room_loses_nothing(stage: SpeechStage) -> None:
    out = FakeOutbox(free=1)
    row = live_row()
    stage.process([text_message(row, "One. Two. Three.")], [row], out)
    got = out.take()
    for _ in range(10):
        out.free = 1
        stage.on_tick([row], 0, out)
        got += out.take()
    whole = speak(stage, text_message(row, "One. Two. Three."))
    assert digest(got) == digest(whole)


def test_forget_drops_the_queue(stage: SpeechStage) -> None:
    out = FakeOutbox(free=0)
    stage.process([text_message(live_row(), "One. Two.")], [live_row()], out)
    stage.forget(0)
    out.free = 10
    stage.on_tick([live_row()], 0, out)
    assert not out.sent


def test_a_voice_that_is_not_here_fails_its_segment_only(stage: SpeechStage) -> None:
    rows = [live_row(0, voice=name_code("nobody")), live_row(1)]
    out = speak_all(stage, [text_message(row, "Hi.") for row in rows], rows)
    assert [header.live_slot for header, _ in out.failed] == [0]
    assert "heart" in out.failed[0][1]
    assert [message.header.live_slot for message in out.sent] == [1]


@pytest.mark.parametrize(
    "settings",
    [{"vioces": []}, {"voices": "heart"}, {"voices": ["nobody"]}, {"voice_bytes_max": 1}],
)
def test_wrong_settings_are_told(settings: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"voice|vioces"):
        SpeechStage().load(settings, "cpu")


def test_a_voice_is_never_downloaded(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIBARI_HOME", str(tmp_path))
    with pytest.raises(ValueError, match="HIBARI_HOME"):
        SpeechStage().load({"voices": ["emma"]}, "cpu")
    (tmp_path / "bf_emma.int8.onnx").write_bytes(b"not a model")
    with pytest.raises(ValueError, match="sha256"):
        SpeechStage().load({"voices": ["emma"]}, "cpu")


def test_a_voice_that_breaks_fails_one_segment_and_goes_on(
    stage: SpeechStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = stage._models[name_code("heart")]
    real = model.speak

    def breaking(phonemes: str, speed: float, seed: int):
        if phonemes.startswith("b"):
            raise RuntimeError("the network fell over")
        return real(phonemes, speed, seed)

    monkeypatch.setattr(model, "speak", breaking)
    row = live_row()
    messages = [
        text_message(row, "Boom.", segment_id=1),
        text_message(row, "Hello.", segment_id=2),
    ]
    out = speak_all(stage, messages, [row, row])
    assert [(header.segment_id, reason) for header, reason in out.failed] == [
        (1, "RuntimeError: the network fell over")
    ]
    assert [message.header.segment_id for message in out.sent] == [2]


def test_a_message_too_large_for_the_ring_names_the_setting(stage: SpeechStage) -> None:
    class SmallRing(FakeOutbox):
        def send(self, header, parts) -> None:
            if header.kind is MessageKind.SEGMENT_VOICE:
                raise PartTooLarge("120000 bytes do not fit 48000")
            super().send(header, parts)

    out = SmallRing()
    stage.process([text_message(live_row(), "Hello.")], [live_row()], out)
    assert "voice_bytes_max" in out.failed[0][1]
    assert stage.stats()["waiting"] == 0
