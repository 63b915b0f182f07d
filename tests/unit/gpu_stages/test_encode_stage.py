"""Encoding: what comes out can be decoded, is complete, and is silent when it has to be."""

import io
from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction

import av
import numpy as np
import pytest

from gpu_stages.encode import video
from gpu_stages.encode.audio import AudioSettings, OpusEncoder
from gpu_stages.encode.choice import choose
from gpu_stages.encode.mute import FADE_SAMPLES, Muter
from gpu_stages.encode.pictures import PictureMismatch
from gpu_stages.encode.settings import read_settings
from gpu_stages.encode.video import VideoSettings
from gpu_stages.header import Header, MessageKind
from gpu_stages.live_table import LiveRow
from gpu_stages.stage import Message
from gpu_stages.stages.encode import EncodeStage
from schemas.media import TICK_SAMPLES, TickFlag
from tests.support.stage_fakes import FakeOutbox, live_row, part_view

SIZE = 128


def picture(frame_index: int, size: int = SIZE) -> np.ndarray:
    """A disc that moves over a shaded ground, RGB u8 [size, size, 3]."""
    y, x = np.mgrid[0:size, 0:size]
    image = np.stack([40 + x * 80 // size, 60 + y * 80 // size, np.full_like(x, 120)], -1)
    centre = size / 2 + size / 8 * np.sin(frame_index / 5)
    image[(x - centre) ** 2 + (y - size / 2) ** 2 < (size / 5) ** 2] = (220, 170, 140)
    return image.astype(np.uint8)


def i420(rgb: np.ndarray) -> np.ndarray:
    frame = av.VideoFrame.from_ndarray(rgb, format="rgb24")
    return frame.reformat(format="yuv420p", dst_colorspace="ITU601").to_ndarray()


def tone(frame_index: int, hz: float = 217.0) -> np.ndarray:
    at = (frame_index * TICK_SAMPLES + np.arange(TICK_SAMPLES)) / 24_000
    return (9000 * np.sin(2 * np.pi * hz * at)).astype(np.int16)


def tick(
    row: LiveRow,
    frame_index: int,
    *,
    sound: np.ndarray | None = None,
    image: object = None,
    utterance: int = 0,
) -> Message:
    header = Header(
        MessageKind.TICK_PICTURE,
        row.live_slot,
        row.binding,
        row.epoch,
        utterance=utterance,
        frame_index=frame_index,
        segment_id=3,
        sample_start=frame_index * TICK_SAMPLES,
        speech_samples=TICK_SAMPLES,
        stamps_us=(1, 2, 3, 0),
    )
    pcm = np.zeros(TICK_SAMPLES, np.int16) if sound is None else sound
    pixels = picture(frame_index) if image is None else image
    assert isinstance(pixels, np.ndarray)
    return Message(header, (part_view(pcm), part_view(np.ascontiguousarray(pixels))))


def small_row(live_slot: int = 0, **changes: object) -> LiveRow:
    return replace(live_row(live_slot), width_px=SIZE, height_px=SIZE, **changes)


def made(**settings: object) -> EncodeStage:
    stage = EncodeStage()
    stage.load(settings, "cpu")
    return stage


def run(stage: EncodeStage, count: int, **row: object) -> list[Message]:
    out = FakeOutbox()
    for index in range(count):
        live = small_row(**row)
        stage.process([tick(live, index, sound=tone(index))], [live], out)
    return out.sent


def decode_video(units: Iterable[bytes], codec: str = "h264") -> list[np.ndarray]:
    decoder = av.CodecContext.create(codec, "r")
    frames = [frame for unit in units for frame in decoder.decode(av.Packet(unit))]
    frames += decoder.decode(None)
    return [frame.to_ndarray(format="rgb24") for frame in frames]


def decode_opus(packets: Iterable[bytes]) -> np.ndarray:
    """int16 at 24 kHz, as Opus gives it: 6.5 ms late."""
    decoder = av.CodecContext.create("libopus", "r")
    decoder.sample_rate = 48_000
    decoder.layout = "mono"
    chunks = [f.to_ndarray().reshape(-1) for p in packets for f in decoder.decode(av.Packet(p))]
    return np.concatenate(chunks)[::2]


def opus_of(ticks: Iterable[Message]) -> list[bytes]:
    return [bytes(part) for message in ticks for part in message.parts[:2]]


def nal_types(unit: bytes) -> list[int]:
    return [chunk[0] & 31 for chunk in unit.split(b"\x00\x00\x01")[1:]]


def test_every_tick_gives_two_packets_and_one_access_unit() -> None:
    ticks = run(made(), 60)
    assert len(ticks) == 60
    for index, message in enumerate(ticks):
        assert message.header.kind is MessageKind.TICK_MEDIA
        assert message.header.frame_index == index
        assert message.header.segment_id == 3
        assert message.header.stamps_us[:3] == (1, 2, 3)
        assert message.header.stamps_us[3] > 0
        assert all(len(part) for part in message.parts)
    keyframes = [i for i, m in enumerate(ticks) if m.header.flags & TickFlag.KEYFRAME]
    assert keyframes[0] == 0
    assert np.diff([*keyframes, 60]).max() <= 50


def test_h264_is_constrained_baseline_in_annex_b_and_decodes_to_the_pictures() -> None:
    units = [bytes(message.parts[2]) for message in run(made(), 60)]
    assert units[0].startswith(b"\x00\x00\x00\x01")
    sps = units[0].split(b"\x00\x00\x01")[1]
    assert sps[0] & 31 == 7
    assert sps[1] == 66
    assert sps[2] & 0xC0 == 0xC0
    for unit in units:
        kinds = nal_types(unit)
        assert (5 in kinds) == (7 in kinds) == (8 in kinds)
    frames = decode_video(units)
    assert len(frames) == 60
    for index in (0, 20, 59):
        assert np.abs(frames[index].astype(int) - picture(index)).mean() < 6


def test_a_key_frame_is_made_when_asked_for_and_decodes_alone() -> None:
    stage, out = made(), FakeOutbox()
    for index in range(20):
        row = small_row(keyframe_requests=1 if index >= 9 else 0)
        stage.process([tick(row, index)], [row], out)
    keyframes = [i for i, m in enumerate(out.sent) if m.header.flags & TickFlag.KEYFRAME]
    assert keyframes == [0, 9]
    assert len(decode_video(bytes(message.parts[2]) for message in out.sent[9:])) == 11


def test_a_new_binding_starts_with_a_key_frame() -> None:
    stage, out = made(), FakeOutbox()
    for binding in (1, 1, 2):
        row = small_row(binding=binding)
        stage.process([tick(row, 0)], [row], out)
    stage.forget(0)
    stage.process([tick(row, 1)], [row], out)
    flags = [bool(message.header.flags & TickFlag.KEYFRAME) for message in out.sent]
    assert flags == [True, False, True, True]


def test_rgb_and_i420_look_the_same_and_anything_else_is_refused() -> None:
    both = []
    for convert in (lambda rgb: rgb, i420):
        stage, out, row = made(), FakeOutbox(), small_row()
        for index in range(5):
            stage.process([tick(row, index, image=convert(picture(index)))], [row], out)
        both.append(decode_video(bytes(message.parts[2]) for message in out.sent))
    difference = np.abs(both[0][4].astype(int) - both[1][4])
    assert difference.mean() < 2
    with pytest.raises(PictureMismatch):
        stage.process([tick(row, 5, image=picture(0, SIZE // 2))], [row], out)


def test_opus_decodes_to_the_sound_and_its_length() -> None:
    ticks = run(made(), 50)
    heard = decode_opus(opus_of(ticks))
    assert len(heard) == 50 * TICK_SAMPLES
    want = np.concatenate([tone(index) for index in range(50)])
    delay = 156
    pair = np.corrcoef(heard[4800 + delay : 40_000 + delay], want[4800:40_000])
    assert pair[0, 1] > 0.98


def test_the_same_ticks_give_the_same_bytes() -> None:
    first, second = run(made(), 12), run(made(), 12)
    assert [m.parts for m in first] == [m.parts for m in second]


def test_lives_side_by_side_in_threads_keep_their_order_and_bytes() -> None:
    alone = run(made(threads=1), 8)
    stage, out = made(threads=3), FakeOutbox()
    rows = [small_row(slot) for slot in range(4)]
    for begin in (0, 4):
        batch = [
            (tick(row, index, sound=tone(index)), row)
            for index in range(begin, begin + 4)
            for row in rows
        ]
        stage.process([message for message, _ in batch], [row for _, row in batch], out)
    stage.close()
    for row in rows:
        mine = [m for m in out.sent if m.header.live_slot == row.live_slot]
        assert [m.header.frame_index for m in mine] == list(range(8))
        assert [m.parts for m in mine] == [m.parts for m in alone]


def test_a_muted_turn_fades_and_the_picture_goes_on() -> None:
    stage, out = made(), FakeOutbox()
    for index in range(30):
        row = small_row(utterance=1 if index >= 10 else 0)
        message = tick(row, index, sound=tone(index), utterance=1 if index >= 20 else 0)
        stage.process([message], [row], out)
    muted = [bool(message.header.flags & TickFlag.MUTED) for message in out.sent]
    assert muted == [False] * 10 + [True] * 10 + [False] * 10
    heard = decode_opus(opus_of(out.sent)).astype(float)[156:]
    at = 10 * TICK_SAMPLES
    assert np.abs(heard[at - 960 : at]).max() > 6000
    assert np.abs(heard[at + FADE_SAMPLES + 480 : 20 * TICK_SAMPLES - 480]).max() < 60
    assert np.abs(heard[21 * TICK_SAMPLES : 22 * TICK_SAMPLES]).max() > 6000
    assert len(decode_video(bytes(message.parts[2]) for message in out.sent)) == 30


def high_share(sound: np.ndarray) -> float:
    """Of the energy, the share above 2 kHz: a click is broad, a faded tone is not."""
    spectrum = np.abs(np.fft.rfft(sound * np.hanning(len(sound)))) ** 2
    hz = np.fft.rfftfreq(len(sound), 1 / 24_000)
    return float(spectrum[hz > 2000].sum() / spectrum.sum())


@pytest.mark.parametrize("on_its_way", [True, False])
def test_the_fade_does_not_click(on_its_way: bool) -> None:
    """Whether ticks of the turn still come (muted) or the next tick is silent already."""
    muter = Muter()
    rest = [tone(2), tone(3)] if on_its_way else [np.zeros(TICK_SAMPLES, np.int16)] * 2
    kept = [muter.step(pcm, muted=False) for pcm in (tone(0), tone(1))]
    kept += [muter.step(pcm, muted=on_its_way) for pcm in rest]
    sound = np.concatenate(kept).astype(float)
    end = 2 * TICK_SAMPLES
    around = slice(end - 600, end + 600)
    cut = sound.copy()
    cut[end:] = 0.0
    assert abs(cut[end - 1]) > 2000, "a cut here would click"
    assert high_share(cut[around]) > 20 * high_share(sound[around])
    assert high_share(sound[around]) < 1e-4
    assert sound[end : end + FADE_SAMPLES].any()
    assert not sound[end + FADE_SAMPLES :].any()


def test_speech_taken_up_in_the_middle_does_not_begin_with_a_click() -> None:
    sound = np.roll(tone(0), -11)
    assert abs(int(sound[0])) > 2000, "a beginning here would click"
    heard = Muter().step(sound, muted=False)
    before = np.zeros(600)
    cut, faded = (np.concatenate([before, one[:600]]).astype(float) for one in (sound, heard))
    assert high_share(cut) > 20 * high_share(faded)
    assert np.array_equal(heard[FADE_SAMPLES:], sound[FADE_SAMPLES:])
    muter = Muter()
    muter.step(tone(0), muted=False)
    assert np.array_equal(muter.step(sound, muted=False), sound), "within speech nothing fades"


def test_silence_stays_silence_and_sound_stays_sound() -> None:
    muter = Muter()
    quiet = np.zeros(TICK_SAMPLES, np.int16)
    assert not muter.step(quiet, muted=False).any()
    assert np.array_equal(muter.step(tone(0), muted=False), tone(0))
    assert np.array_equal(muter.step(tone(1), muted=False), tone(1))
    muter.step(tone(2), muted=True)
    assert not muter.step(tone(3), muted=True).any()
    assert not muter.step(quiet, muted=False).any()


def test_sound_that_would_begin_muted_does_not_begin() -> None:
    muter = Muter()
    muter.step(np.zeros(TICK_SAMPLES, np.int16), muted=False)
    assert not muter.step(tone(0), muted=True).any()


def test_vp8_is_an_option() -> None:
    stage = made(codec="vp8", quality=20)
    ticks = run(stage, 20)
    assert ticks[0].header.flags & TickFlag.KEYFRAME
    frames = decode_video((bytes(message.parts[2]) for message in ticks), "vp8")
    assert len(frames) == 20
    assert np.abs(frames[10].astype(int) - picture(10)).mean() < 10
    out = FakeOutbox()
    row = small_row(keyframe_requests=1)
    stage.process([tick(row, 20)], [row], out)
    assert out.sent[0].header.flags & TickFlag.KEYFRAME


def test_hardware_that_is_not_there_gives_way_to_software() -> None:
    chosen = choose(VideoSettings(encoder="h264_nvenc"))
    assert (chosen.settings.encoder == "h264_nvenc") == (chosen.refused == ())
    assert chosen.settings.encoder in ("h264_nvenc", "libx264")


class StandIn:
    """NVENC as FFmpeg shows it, on libx264: takes its options, and may refuse as a driver does."""

    def __init__(self, refuses: str = "") -> None:
        object.__setattr__(self, "_codec", av.CodecContext.create("libx264", "w"))
        object.__setattr__(self, "asked", {})
        object.__setattr__(self, "_refuses", refuses)

    def __setattr__(self, name: str, value: object) -> None:
        if name == "options":
            self.asked.update(value)
            value = {"preset": "ultrafast", "tune": "zerolatency", "forced-idr": "1"}
        setattr(self._codec, name, value)

    def __getattr__(self, name: str) -> object:
        return getattr(self._codec, name)

    def open(self) -> None:
        if self._refuses == "open":
            raise av.error.ExternalError(-1, "OpenEncodeSessionEx failed: unsupported device")
        self._codec.open()

    def encode(self, frame: av.VideoFrame) -> list[av.Packet]:
        return [] if self._refuses == "encode" else list(self._codec.encode(frame))


def with_nvenc(monkeypatch: pytest.MonkeyPatch, refuses: str = "") -> list[StandIn]:
    made: list[StandIn] = []
    create = video._create

    def stand_in(encoder: str) -> object:
        if encoder != "h264_nvenc":
            return create(encoder)
        made.append(StandIn(refuses))
        return made[-1]

    monkeypatch.setattr(video, "_create", stand_in)
    return made


def test_on_a_gpu_that_has_an_encoder_it_is_taken_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    made = with_nvenc(monkeypatch)
    stage, out = EncodeStage(), FakeOutbox()
    stage.load({}, "cuda:3")
    row = small_row()
    for index in range(3):
        stage.process([tick(row, index, sound=tone(index))], [row], out)
    assert len(made) == 2, "one tried out, one of the live"
    assert made[1].asked["gpu"] == "3"
    assert made[1].asked["delay"] == made[1].asked["bf"] == "0", "one picture in, one unit out"
    assert out.sent[0].header.flags & TickFlag.KEYFRAME
    assert len(decode_video(bytes(m.parts[2]) for m in out.sent)) == 3


@pytest.mark.parametrize("refuses", ["open", "encode"])
def test_a_gpu_without_an_encoder_leaves_it_to_software(
    monkeypatch: pytest.MonkeyPatch, refuses: str
) -> None:
    made_by_hardware = with_nvenc(monkeypatch, refuses)
    chosen = choose(read_settings({}).video, "cuda:0")
    assert chosen.settings.encoder == "libx264"
    assert chosen.refused[-1].startswith("h264_nvenc does not work here: ")
    assert len(made_by_hardware) == 1
    stage = EncodeStage()
    stage.load({}, "cuda:0")
    out, row = FakeOutbox(), small_row()
    stage.process([tick(row, 0)], [row], out)
    assert len(decode_video([bytes(out.sent[0].parts[2])])) == 1


def chosen(settings: dict[str, object], device: str) -> str:
    return choose(read_settings(settings).video, device).settings.encoder


def test_without_a_gpu_or_for_vp8_the_hardware_is_not_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = with_nvenc(monkeypatch)
    assert chosen({}, "cpu") == "libx264"
    assert chosen({"codec": "vp8"}, "cuda:0") == "libvpx"
    assert chosen({"encoder": "libx264"}, "cuda:0") == "libx264"
    assert made == []


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"codec": "av1"}, "codec"),
        ({"codec": "vp8", "encoder": "libx264"}, "encoder"),
        ({"quality": 99}, "quality"),
        ({"keyframe_interval_frames": 500}, "keyframe_interval_frames"),
        ({"threads": True}, "threads"),
        ({"bits_per_pixel_s": "much"}, "bits_per_pixel_s"),
        ({"bitrate": 1}, "bitrate"),
    ],
)
def test_wrong_settings_are_named(settings: dict[str, object], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        read_settings(settings)


def test_a_container_plays_sound_and_picture_for_the_same_time() -> None:
    """The packets as they are, in MP4: 2 s of each, pts without a gap."""
    ticks = run(made(), 50)
    box = io.BytesIO()
    with av.open(box, "w", format="mp4") as container:
        video = container.add_stream("libx264", rate=25, width=SIZE, height=SIZE)
        for index, message in enumerate(ticks):
            packet = av.Packet(bytes(message.parts[2]))
            packet.stream, packet.pts, packet.dts = video, index, index
            packet.time_base, packet.duration = Fraction(1, 25), 1
            packet.is_keyframe = bool(message.header.flags & TickFlag.KEYFRAME)
            container.mux(packet)
    box.seek(0)
    with av.open(box) as container:
        stamps = [frame.pts * frame.time_base for frame in container.decode(video=0)]
    assert len(stamps) == 50
    assert np.allclose(np.diff([float(stamp) for stamp in stamps]), 0.04)
    assert len(opus_of(ticks)) * 0.02 == pytest.approx(len(stamps) * 0.04)


def test_silence_is_cheap() -> None:
    encoder = OpusEncoder(AudioSettings())
    silent = [encoder.encode(np.zeros(TICK_SAMPLES, np.int16)) for _ in range(10)]
    assert sum(len(packet) for packet in silent[-1]) < 40


@pytest.mark.parametrize("threads", [1, 3])
def test_a_live_that_cannot_be_encoded_fails_alone(threads: int) -> None:
    alone = run(made(threads=1), 6)
    stage, out = made(threads=threads), FakeOutbox()
    rows = [small_row(slot) for slot in range(3)]
    for index in range(6):
        batch = [tick(row, index, sound=tone(index)) for row in rows]
        if index == 3:
            batch[1] = tick(rows[1], index, image=np.zeros(17, np.uint8))
        stage.process(batch, rows, out)
    stage.close()
    assert [(header.live_slot, header.segment_id) for header, _ in out.failed] == [(1, 3)]
    assert "PictureMismatch: 17 bytes" in out.failed[0][1]
    for slot in (0, 2):
        mine = [m for m in out.sent if m.header.live_slot == slot]
        assert [m.parts for m in mine] == [m.parts for m in alone], "not a bit of theirs changed"
    broken = [m for m in out.sent if m.header.live_slot == 1]
    assert [m.header.frame_index for m in broken] == [0, 1, 2, 4, 5]
    assert broken[3].header.flags & TickFlag.KEYFRAME, "its stream begins anew"
    assert len(decode_video(bytes(m.parts[2]) for m in broken[3:])) == 2


def test_a_batch_of_which_nothing_can_be_encoded_raises() -> None:
    rows = [small_row(slot) for slot in range(2)]
    batch = [tick(row, 0, image=np.zeros(17, np.uint8)) for row in rows]
    with pytest.raises(PictureMismatch):
        made().process(batch, rows, FakeOutbox())
