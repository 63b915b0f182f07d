"""NVENC through PyNvVideoCodec, on a stand-in for the library; and on the real one where it is."""

import importlib
from collections.abc import Iterator

import av
import numpy as np
import pytest
import torch

from gpu_stages.encode import choice, device
from gpu_stages.encode.annexb import BASELINE, is_key_frame, profile_of
from gpu_stages.encode.audio import EncoderBroke
from gpu_stages.encode.choice import PYNVVIDEOCODEC, choose, open_or_next
from gpu_stages.encode.device import DeviceEncoder
from gpu_stages.encode.pictures import PictureMismatch, to_nv12
from gpu_stages.encode.video import VideoEncoder, VideoSettings
from gpu_stages.stage import DevicePart, Message
from gpu_stages.stages.encode import EncodeStage
from tests.support.fake_nvenc import FakeNvenc, install
from tests.support.real_cuda import device_asked
from tests.support.stage_fakes import FakeOutbox
from tests.unit.gpu_stages.test_encode_stage import (
    SIZE,
    decode_video,
    i420,
    nal_types,
    picture,
    small_row,
    tick,
    with_nvenc,
)

AUTO_ON_GPU = VideoSettings(encoder="auto")
NAMED = VideoSettings(encoder=PYNVVIDEOCODEC)


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeNvenc]:
    """The stand-in installed. Whatever was encoded was flushed at the end."""
    made = install(monkeypatch)
    yield made
    assert all(encoder.calls.count("EndEncode") for encoder in made.made if encoder.calls)


def part_of(image: np.ndarray, kept: list[np.ndarray]) -> DevicePart:
    kept.append(np.ascontiguousarray(image))
    return DevicePart(kept[-1].ctypes.data, kept[-1].nbytes)


def encoded(encoder: DeviceEncoder, count: int, key_at: tuple[int, ...] = ()) -> list[bytes]:
    kept: list[np.ndarray] = []
    units = []
    for index in range(count):
        given = part_of(i420(picture(index)), kept)
        unit, keyframe = encoder.encode(given, keyframe=index in key_at)
        assert keyframe == is_key_frame(unit)
        units.append(unit)
    encoder.close()
    return units


def test_a_picture_on_the_device_becomes_one_unit_that_decodes_to_it(library: FakeNvenc) -> None:
    units = encoded(DeviceEncoder(NAMED, SIZE, SIZE), 12, key_at=(5,))
    frames = decode_video(units)
    assert len(frames) == 12
    for index in (0, 11):
        assert np.abs(frames[index].astype(int) - picture(index)).mean() < 6
    assert [i for i, unit in enumerate(units) if is_key_frame(unit)] == [0, 5]
    assert {7, 8} <= set(nal_types(units[5])), "parameter sets in front of every key frame"
    [encoder] = library.made
    assert encoder.calls == ["Encode 0"] * 5 + ["Encode 2"] + ["Encode 0"] * 6 + ["EndEncode"]


def test_what_the_library_is_told(library: FakeNvenc) -> None:
    settings = VideoSettings(encoder=PYNVVIDEOCODEC, gpu=3, bits_per_pixel_s=20.0, quality=27)
    DeviceEncoder(settings, 256, 256).close()
    [encoder] = library.made
    told = encoder.options
    assert told["gpu_id"] == "3"
    assert (told["codec"], told["tuning_info"]) == ("h264", "ultra_low_latency")
    assert (told["bf"], told["lookahead"]) == ("0", "0"), "nothing is kept back or reordered"
    assert told["gop"] == told["idrperiod"] == "50"
    assert told["repeatspspps"] == "1"
    assert told["bitrate"] == told["maxbitrate"] == str(256 * 256 * 20)
    assert told["qmin"] == "27"
    assert "colorspace" not in told, "it would mark the stream as full range"


def test_pictures_that_are_kept_back_are_fetched_at_once(library: FakeNvenc) -> None:
    library.kept = 3
    units = encoded(DeviceEncoder(NAMED, SIZE, SIZE), 6)
    assert len(decode_video(units)) == 6
    assert library.made[0].calls[:4] == ["Encode 0", "EndEncode"] * 2


def test_a_driver_that_begins_anew_after_each_flush_is_refused(library: FakeNvenc) -> None:
    library.kept, library.key_frame_after_flush = 3, True
    chosen = choose(NAMED, "cuda:0")
    assert chosen.settings.encoder != PYNVVIDEOCODEC
    assert (
        "asked for key frames (True, False, True) it made (True, True, True)" in (chosen.refused[0])
    )


def test_rgb_and_i420_give_the_same_picture(library: FakeNvenc) -> None:
    rgb = picture(7)
    planes = torch.from_numpy(rgb.reshape(-1).copy())
    ours = to_nv12(planes, SIZE, SIZE).numpy()
    frame = av.VideoFrame.from_ndarray(rgb, format="rgb24")
    theirs = frame.reformat(format="nv12", dst_colorspace="ITU601").to_ndarray()
    off = np.abs(ours.astype(int) - theirs)
    assert off[:SIZE].max() <= 2
    assert off[SIZE:].mean() < 1.5, "chroma is averaged over a square, FFmpeg takes fewer samples"
    flat = torch.from_numpy(i420(rgb).reshape(-1).copy())
    straight = to_nv12(flat, SIZE, SIZE).numpy()
    assert np.array_equal(straight[:SIZE], i420(rgb)[:SIZE])
    with pytest.raises(PictureMismatch, match="17 bytes"):
        to_nv12(torch.zeros(17, dtype=torch.uint8), SIZE, SIZE)


def test_the_order_on_a_gpu_begins_with_it(library: FakeNvenc) -> None:
    chosen = choose(AUTO_ON_GPU, "cuda:1")
    assert (chosen.settings.encoder, chosen.settings.gpu) == (PYNVVIDEOCODEC, 1)
    assert chosen.refused == ()
    assert library.made[0].calls == ["Encode 2", "Encode 0", "Encode 2", "EndEncode"]


def refusing(library: FakeNvenc, what: str) -> str:
    """Make the stand-in refuse; what the reason must say."""
    if what == "no encoder on the card":
        library.fail["CreateEncoder"] = (
            "PyNvEncoderCaps : \nError code : 2\nError Type : NV_ENC_ERR_UNSUPPORTED_DEVICE\nat x\n"
        )
        return "PyNvVideoCodec 2.2.4: PyNvEncoderCaps : Error code : 2 Error Type : NV_ENC_ERR_UNS"
    if what == "out of sessions":
        library.sessions = 0
        return "out of memory"
    if what == "does not encode":
        library.fail["Encode"] = "nvEncEncodePicture API failed"
        return "nvEncEncodePicture API failed"
    if what == "gives nothing":
        library.answer = lambda _packets: []
        return "gave 0 units for one picture"
    if what == "an older version":
        library.answer = lambda packets: b"".join(packet["data"] for packet in packets)
        return "PyNvVideoCodec: TypeError"
    if what == "another API":
        library.NV_ENC_PIC_FLAGS = object()
        return "FORCEIDR"
    assert what == "another profile"
    library.profile = "main"
    return "its H.264 is of profile 77, viewers are promised 66"


@pytest.mark.parametrize(
    "what",
    [
        "no encoder on the card", "out of sessions", "does not encode", "gives nothing",
        "an older version", "another API", "another profile",
    ],
)  # fmt: skip
def test_what_it_refuses_gives_way_with_the_reason(
    library: FakeNvenc, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = refusing(library, what)
    with_nvenc(monkeypatch)
    chosen = choose(AUTO_ON_GPU, "cuda:0")
    assert chosen.settings.encoder == "h264_nvenc", "the next in the order"
    [reason] = chosen.refused
    assert reason.startswith("pynvvideocodec does not work here: ")
    assert expected in reason
    assert "\n" not in reason


def test_named_by_the_settings_it_may_make_another_profile(library: FakeNvenc) -> None:
    library.profile = "main"
    assert choose(NAMED, "cuda:0").settings.encoder == PYNVVIDEOCODEC
    assert profile_of(encoded(DeviceEncoder(NAMED, SIZE, SIZE), 1)[0]) == 77


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ImportError("No module named 'PyNvVideoCodec'"), "is not installed or not whole"),
        (
            RuntimeError(
                "libnvidia-encode.so.1: cannot open\n\n=== TROUBLESHOOTING STEPS ===\nlong"
            ),
            "cannot be used: libnvidia-encode.so.1: cannot open",
        ),
        (RuntimeError("Driver version is too old"), "cannot be used: Driver version is too old"),
    ],
)
def test_without_the_library_or_its_driver_the_next_one_serves(
    monkeypatch: pytest.MonkeyPatch, error: Exception, expected: str
) -> None:
    def broken(_name: str) -> None:
        raise error

    monkeypatch.setattr(device.importlib, "import_module", broken)
    with_nvenc(monkeypatch, "open")
    chosen = choose(AUTO_ON_GPU, "cuda:0")
    assert chosen.settings.encoder == "libx264"
    assert [reason.partition(" does")[0] for reason in chosen.refused] == [
        "pynvvideocodec",
        "h264_nvenc",
    ]
    assert expected in chosen.refused[0]
    assert "TROUBLESHOOTING" not in chosen.refused[0]


def test_a_live_for_which_no_session_is_left_is_encoded_by_the_next(
    library: FakeNvenc, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its pictures still come on the device, and are copied down for the software."""
    with_nvenc(monkeypatch, "open")
    stage, out = EncodeStage(), FakeOutbox()
    assert stage.accepts_device_parts({}, "cuda:0")
    stage.load({}, "cuda:0")
    library.sessions = len(library.made) + 1
    rows = [small_row(0), small_row(1)]
    kept: list[np.ndarray] = []
    for index in range(4):
        batch = []
        for row in rows:
            message = tick(row, index)
            there = part_of(i420(picture(index)), kept)
            parts = (message.parts[0], memoryview(b""))
            batch.append(Message(message.header, parts, (None, there, None, None)))
        stage.process(batch, rows, out)
    assert out.failed == []
    for row in rows:
        units = [bytes(m.parts[2]) for m in out.sent if m.header.live_slot == row.live_slot]
        frames = decode_video(units)
        assert len(frames) == 4
        assert np.abs(frames[3].astype(int) - picture(3)).mean() < 6
    assert isinstance(stage._encoders[0].video, DeviceEncoder)
    assert isinstance(stage._encoders[1].video, VideoEncoder)
    stage.close()


def test_a_session_is_given_back_with_the_binding_and_after_an_error(library: FakeNvenc) -> None:
    stage, out, row = EncodeStage(), FakeOutbox(), small_row()
    stage.load({}, "cuda:0")
    stage.process([tick(row, 0)], [row], out)
    mine = library.made[-1]
    stage.forget(row.live_slot)
    assert mine.calls[-1] == "EndEncode"
    stage.process([tick(row, 1)], [row], out)
    mine = library.made[-1]
    library.fail["Encode"] = "nvEncEncodePicture API failed"
    with pytest.raises(EncoderBroke, match="nvEncEncodePicture"):
        stage.process([tick(row, 2)], [row], out)
    assert mine.calls[-1] == "EndEncode"
    library.fail["EndEncode"] = "nvEncLockBitstream failed"
    encoder = DeviceEncoder(NAMED, SIZE, SIZE)
    encoder.close()
    encoder.close()
    assert library.made[-1].calls == ["EndEncode"], "once, and its failure hurts nobody"


def test_only_this_encoder_takes_pictures_on_the_device(
    library: FakeNvenc, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert EncodeStage().accepts_device_parts({}, "cuda:0")
    assert not EncodeStage().accepts_device_parts({"encoder": "libx264"}, "cuda:0")
    library.fail["CreateEncoder"] = "no"
    with_nvenc(monkeypatch)
    assert not EncodeStage().accepts_device_parts({}, "cuda:0"), "FFmpeg's takes them on the host"


def test_the_machine_is_asked_once_and_the_reasons_are_logged(
    library: FakeNvenc, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    refusing(library, "no encoder on the card")
    asked = with_nvenc(monkeypatch, "open")
    stage = EncodeStage()
    assert not stage.accepts_device_parts({}, "cuda:0")
    stage.load({}, "cuda:0")
    assert len(asked) == 1
    said = capsys.readouterr().out
    assert said.count("NV_ENC_ERR_UNSUPPORTED_DEVICE") == 1
    assert said.count("h264_nvenc does not work here") == 1
    assert "libx264" in said


def test_the_next_encoder_raises_its_own_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with_nvenc(monkeypatch, "open")
    with pytest.raises(ValueError, match="even sizes"):
        open_or_next(VideoSettings(encoder="h264_nvenc"), 65, 64)


def test_units_say_what_they_are() -> None:
    parameters, idr, delta = b"\0\0\0\1\x67\x42\xc0\x1f", b"\0\0\1\x65\x88", b"\0\0\1\x41\x9a"
    assert is_key_frame(parameters + idr)
    assert not is_key_frame(parameters + delta)
    assert not is_key_frame(delta + idr), "the first slice says it"
    assert not is_key_frame(b"")
    assert profile_of(parameters + idr) == BASELINE
    assert profile_of(idr) is None
    assert profile_of(b"\0\0\1\x67") is None


def real_library() -> str:
    """Why the real one cannot be tested here; empty when it can."""
    if not device_asked():
        return "no GPU was named (DHSCHED_TEST_CUDA, set by make bench-gpu)"
    try:
        importlib.import_module("PyNvVideoCodec")
    except Exception as error:
        return f"PyNvVideoCodec: {str(error).splitlines()[0]}"
    return ""


@pytest.mark.skipif(bool(real_library()), reason=real_library() or "it is here")
def test_the_real_library_does_what_the_stand_in_does() -> None:
    named = choose(NAMED, device_asked())
    if named.refused:
        pytest.skip(f"no encoder here: {named.refused[0]}")
    encoder = DeviceEncoder(named.settings, 256, 256)
    shown = [torch.from_numpy(i420(picture(i, 256))).to(device_asked()) for i in range(30)]
    units = []
    for index, there in enumerate(shown):
        part = DevicePart(there.data_ptr(), there.numel())
        units.append(encoder.encode(part, keyframe=index in (0, 9))[0])
    encoder.close()
    assert [i for i, unit in enumerate(units) if is_key_frame(unit)] == [0, 9]
    frames = decode_video(units)
    assert len(frames) == 30
    assert np.abs(frames[29].astype(int) - picture(29, 256)).mean() < 8
    assert choice.takes_device_pictures(named.settings)
